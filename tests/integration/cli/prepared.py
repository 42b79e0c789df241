"""Commands in processes that begin with their modules loaded.

Two thirds of the time of a short command are imports. `Starter` loads the modules once, in a
process of its own that runs nothing else, and starts each command as a copy of it: a process with
its own variables, folder, streams and exit code, like any other. Tests of what a command imports,
and of long ones such as a gateway, start Python itself.
"""

from __future__ import annotations

import gc
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib import import_module, invalidate_caches
from pathlib import Path
from typing import Any, Self

REPOSITORY = Path(__file__).parents[3]
LOADED = (
    *("asyncio", "json", "loguru", "pydantic", "sqlite3", "typer", "yaml"),
    *("nanobot_core.app.application", "nanobot_core.app.client", "nanobot_core.cli.root"),
    *("nanobot_core.config.loading", "nanobot_core.config.editing", "nanobot_core.cli.agent"),
)
FIXED = ("LANG", "LC_ALL", "PYTHONWARNINGS")
"""Variables that Python reads at its start; they are those of the starter."""
MAX_INPUT_CHARS = 10_000
"""A pipe holds this much without a reader."""


class Starter:
    """Starts commands; a context manager.

    Args:
        environ: variables of the process with the modules.
    """

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = {**environ, "PYTHONPATH": str(REPOSITORY)}
        self._folder = tempfile.TemporaryDirectory(prefix="starter-")
        self._address = str(Path(self._folder.name) / "starter.sock")

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            [sys.executable, __file__, self._address],
            env=self._environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
        )
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == b"ready\n"
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._folder.cleanup()

    def can_start(self, environ: Mapping[str, str], stdin: str | None) -> bool:
        """Whether a copy is the same as a new process would be."""
        return (
            environ.get("PYTHONPATH", "").split(os.pathsep)[0] == str(REPOSITORY)
            and all(environ.get(name) == self._environ.get(name) for name in FIXED)
            and not any(name.startswith("COV") for name in environ)
            and len(stdin or "") <= MAX_INPUT_CHARS
        )

    def run(
        self,
        args: Sequence[str],
        environ: Mapping[str, str],
        folder: Path | None,
        stdin: str | None,
        limit_s: float,
    ) -> subprocess.CompletedProcess[str]:
        """Run ``nanobot`` with `args`; the rest as for `subprocess.run`."""
        asked = {"args": args, "environ": dict(environ), "folder": str(folder or Path.cwd())}
        with (
            tempfile.TemporaryFile() as stdout,
            tempfile.TemporaryFile() as stderr,
            socket.socket(socket.AF_UNIX) as connection,
        ):
            connection.settimeout(limit_s)
            connection.connect(self._address)
            source = _source(stdin)
            try:
                streams = [source, stdout.fileno(), stderr.fileno()]
                socket.send_fds(connection, [json.dumps(asked).encode()], streams)
            finally:
                os.close(source)
            connection.shutdown(socket.SHUT_WR)
            with connection.makefile("r") as answer:
                pid = int(answer.readline())
                try:
                    code = int(answer.readline())
                except TimeoutError:
                    os.kill(pid, signal.SIGKILL)
                    raise subprocess.TimeoutExpired(list(args), limit_s) from None
            for file in (stdout, stderr):
                file.seek(0)
            return subprocess.CompletedProcess(
                list(args), code, stdout.read().decode(), stderr.read().decode()
            )


def _source(text: str | None) -> int:
    """Return a descriptor to read `text` from, or nothing at all."""
    if text is None:
        return os.open(os.devnull, os.O_RDONLY)
    source, end = os.pipe()
    os.write(end, text.encode(errors="surrogateescape"))
    os.close(end)
    return source


def _serve(address: str) -> list[str]:
    """Start a process for each request; returns, in that process, the arguments of the command."""
    for name in LOADED:
        import_module(name)
    gc.freeze()
    # Keepers are not awaited.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(address)
        listening.listen()
        os.write(1, b"ready\n")
        while True:
            connection, _ = listening.accept()
            with connection:
                if os.fork() == 0:
                    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                    listening.close()
                    return _keep(connection)


def _keep(connection: socket.socket) -> list[str]:
    """Report the command's process and its end; returns in that process only."""
    data, streams, _, _ = socket.recv_fds(connection, 1_000_000, 3)
    while more := connection.recv(1_000_000):
        data += more
    asked = json.loads(data)
    if pid := os.fork():
        for stream in streams:
            os.close(stream)
        _, status = os.waitpid(pid, 0)
        with suppress(OSError):
            connection.sendall(f"{os.waitstatus_to_exitcode(status)}\n".encode())
        os._exit(0)
    connection.sendall(f"{os.getpid()}\n".encode())
    connection.close()
    return _become(asked, streams)


def _become(asked: dict[str, Any], streams: Sequence[int]) -> list[str]:
    """Take over the streams, variables and folder of a command, and return its arguments."""
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.environ.clear()
    os.environ.update(asked["environ"])
    os.chdir(asked["folder"])
    # As `python -m` does: the present folder, PYTHONPATH, the rest.
    paths = asked["environ"]["PYTHONPATH"].split(os.pathsep)
    rest = [path for path in sys.path[1:] if path != str(REPOSITORY)]
    sys.path[:] = [os.getcwd(), *paths, *rest]  # noqa: PTH109 - a text
    sys.path_importer_cache.clear()
    invalidate_caches()
    arguments: list[str] = asked["args"]
    return arguments


if __name__ == "__main__":
    sys.argv[1:] = _serve(sys.argv[1])
    runpy.run_module("nanobot_core", run_name="__main__", alter_sys=True)
