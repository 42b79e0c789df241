"""A home full of secrets, the command line that works there, and a gateway that runs there."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Self
from uuid import uuid4

import httpx
import yaml

from nanobot_core import TurnOutcome
from nanobot_core.app.client import ControlClient
from nanobot_core.events import RunEvent
from tests.security.leaks.canaries import PLANTED
from tests.security.leaks.services import Background

REPOSITORY = Path(__file__).parents[3]
LIMIT_S = 50.0
PLUGINS = (
    *("files", "http", "mcp", "message", "openai", "shell", "telegram", "transcription"),
    *("usage", "web", "webhook"),
)
ENVIRONMENT = {
    "LEAK_MODEL_KEY": PLANTED["key from a variable"],
    "NANOBOT_PROVIDERS__MISTRAL__API_KEY": PLANTED["key from NANOBOT_ variable"],
    "UNRELATED_DB_PASSWORD": PLANTED["variable that sounds secret"],
    "UNRELATED_NOTE": PLANTED["variable that does not"],
}
CLOSED = "127.0.0.1:9"
"""Nothing listens there."""


class Home:
    """A folder of nanobot's with every secret in it.

    Attributes:
        path: nanobot's folder; the user's home is the one above.
        workspace: the agent's folder.
        environment: variables of each process that works here.
    """

    def __init__(self, parent: Path, services: Background, **sections: Any) -> None:
        self.path: Path = parent / ".nanobot"
        self.workspace: Path = self.path / "workspace"
        self.workspace.mkdir(parents=True)
        self.folder: Path = parent
        self.environment: dict[str, str] = {
            **{name: value for name, value in os.environ.items() if name.startswith("COV")},
            **ENVIRONMENT,
            "HOME": str(parent),
            "NANOBOT_HOME": str(self.path),
            "PATH": f"{_spying_programs(parent)}:{os.environ['PATH']}",
            "PYTHONPATH": str(REPOSITORY),
        }
        (self.path / "model.key").write_text(f"{PLANTED['key from a secret file']}\n")
        (self.path / ".env").write_text(f"API_KEY={PLANTED['key in .env']}\n")
        content = _configuration(self.workspace, services)
        for name, section in sections.items():
            content[name] = {**content.get(name, {}), **section}
        self.write(yaml.safe_dump(content))

    def write(self, text: str) -> None:
        """Make `text` the configuration."""
        file = self.path / "config.yaml"
        file.write_text(text)
        file.chmod(0o600)

    def nanobot(self, *words: str, **changes: str) -> str:
        """Run a command and return all that it prints, however it ends."""
        return self.python("-m", "nanobot_core", *words, **changes)

    def python(self, *words: str, **changes: str) -> str:
        """Run Python and return all that it prints."""
        done = subprocess.run(
            [sys.executable, *words],
            env={**self.environment, **changes},
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=LIMIT_S,
            check=False,
        )
        return (done.stdout + done.stderr).decode(errors="replace")

    def written(self, *patterns: str) -> bytes:
        """Return names and contents of all files below the home that match."""
        found = sorted({path for pattern in patterns for path in self.path.glob(pattern)})
        return b"\n".join(
            str(path).encode() + b"\n" + path.read_bytes() for path in found if path.is_file()
        )


class GatewayHome(Home):
    """The same with a gateway, as a context manager.

    Attributes:
        services: what the gateway talks to.
        url: where it serves HTTP.
    """

    def __init__(self, parent: Path, services: Background, **sections: Any) -> None:
        super().__init__(parent, services, **sections)
        self.services: Background = services
        self.url: str = ""
        self._stderr = parent / "stderr.txt"

    def __enter__(self) -> Self:
        with self._stderr.open("wb") as stderr:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "nanobot_core", "--debug", "gateway"],
                env=self.environment,
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=stderr,
                stderr=stderr,
            )
        try:
            self._await(lambda: "gateway ready" in self.stderr)
            self._await(lambda: bool(self._address()))
        except BaseException:
            self.__exit__()
            raise
        self.url = self._address()
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        try:
            self._process.wait(LIMIT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def stderr(self) -> str:
        """What the gateway has written there so far."""
        return self._stderr.read_text(errors="replace")

    def turn(self, text: str, model: str | None = None) -> str:
        """Have a message answered at the terminal; return the answer and all that was shown."""
        shown: list[str] = []

        async def watch(event: RunEvent) -> None:
            shown.append(repr(event))

        async def answer() -> TurnOutcome:
            asked: dict[str, Any] = {"text": text, "session": f"cli:{uuid4().hex}"}
            if model:
                asked["model"] = model
            return await ControlClient(self.path / "gateway").turn(asked, watch)

        outcome = self.services.run(answer())
        return "\n".join([repr(outcome), *shown])

    def get(self, path: str, *, method: str = "GET", **options: Any) -> str:
        """Return the whole answer to a request."""
        with httpx.Client(trust_env=False, timeout=LIMIT_S) as client:
            answer = client.request(method, f"{self.url}{path}", **options)
        return f"HTTP {answer.status_code}\n{dict(answer.headers)}\n{answer.text}"

    def other(self, **sections: Any) -> Home:
        """Return another home with the same secrets, without a gateway."""
        parent = self.folder / f"other-{uuid4().hex[:8]}"
        parent.mkdir()
        return Home(parent, self.services, **sections)

    @contextmanager
    def watched(self) -> Iterator[Children]:
        """Look at the processes of the gateway meanwhile."""
        with Children().watching(self.pid) as children:
            yield children

    def _address(self) -> str:
        files = list(self.path.glob("**/http/address"))
        return files[0].read_text().strip() if files else ""

    def _await(self, holds: Callable[[], bool]) -> None:
        end = time.monotonic() + LIMIT_S
        while not holds():
            assert self._process.poll() is None, self.stderr
            assert time.monotonic() < end, self.stderr
            time.sleep(0.05)


class Children:
    """What can be read of the processes below one: command lines and environments.

    Attributes:
        commands: command lines.
        environments: (command line, environment) as ``/proc`` has them.
    """

    def __init__(self) -> None:
        self.commands: set[bytes] = set()
        self.environments: set[tuple[bytes, bytes]] = set()

    @contextmanager
    def watching(self, pid: int) -> Iterator[Self]:
        """Watch the descendants of `pid` in a thread."""
        ended = threading.Event()

        def watch() -> None:
            while not ended.is_set():
                self.look(pid)
                ended.wait(0.005)

        thread = threading.Thread(target=watch)
        thread.start()
        try:
            yield self
        finally:
            ended.set()
            thread.join()

    def look(self, pid: int) -> None:
        """Note the present processes."""
        own = _read(pid, "cmdline")
        self.commands.add(own)
        for child in _descendants(pid):
            command, environment = _read(child, "cmdline"), _read(child, "environ")
            # A child has the memory of its parent until it starts its program.
            if command and command != own and command == _read(child, "cmdline"):
                self.commands.add(command)
                self.environments.add((command, environment))

    def of(self, word: bytes) -> bytes:
        """Return the environments of those whose command line has `word`."""
        return b"\n".join(each for command, each in self.environments if word in command)


def _descendants(pid: int) -> Iterator[int]:
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            fields = _read(int(entry.name), "stat").rpartition(b")")[2].split()
            if fields:
                parents[int(entry.name)] = int(fields[1])
    for child in parents:
        above = child
        while above in parents and above != pid:
            above = parents[above]
        if above == pid != child:
            yield child


def _read(pid: int, name: str) -> bytes:
    with suppress(OSError):
        return Path(f"/proc/{pid}/{name}").read_bytes()
    return b""


def _spying_programs(parent: Path) -> Path:
    """Make an ``rg`` that writes down what it is given before it works."""
    folder = parent / "programs"
    folder.mkdir()
    program = folder / "rg"
    program.write_text(
        f'#!/bin/sh\n{{ env; echo "$@"; }} > {parent}/rg-was-given.txt\n'
        f'PATH="${{PATH#{folder}:}}" exec rg "$@"\n'
    )
    program.chmod(0o755)
    return folder


def _configuration(workspace: Path, services: Background) -> dict[str, Any]:
    server = REPOSITORY / "tests" / "security" / "leaks" / "mcp_server.py"
    return {
        "agents": {"defaults": {"model": "custom/obedient", "workspace": str(workspace)}},
        "plugins": {
            "policy": "listed",
            "enabled": [*PLUGINS, "hurry"],
            "local": [str(REPOSITORY / "tests" / "security" / "leaks" / "hurry.py")],
        },
        "logging": {"level": "TRACE", "json": True},
        "gateway": {"port": 0, "secret": PLANTED["secret of the gateway"]},
        "owner": ["webhook:owner"],
        "providers": _providers(services),
        "profiles": {"work": {"providers": {"openai": {"apiKey": PLANTED["key in a profile"]}}}},
        "transcription": {
            "provider": "custom",
            "api_key": PLANTED["key of the transcription"],
            "api_base": f"{services.echo}/v1",
        },
        "channels": {
            "telegram": {
                "token": PLANTED["token of telegram"],
                "api_base": services.echo,
                "allow_from": ["1"],
            },
            "webhook": {
                "secret": PLANTED["secret of the webhook"],
                "callback_url": f"{services.echo}/hook/{PLANTED['token in the callback']}",
                "allow_from": ["owner", "guest"],
                # The guest says more in a minute than anybody would.
                "rate_limit": 10_000,
            },
        },
        "tools": {
            "restrict_to_workspace": True,
            "ssrf_whitelist": ["127.0.0.1/32"],
            "exec": {"sandbox": "auto"},
            "web": {
                "search": {
                    "provider": "brave",
                    "fallback": [],
                    "api_key": PLANTED["key of the search"],
                    "base_url": services.echo,
                }
            },
            "mcp": {"startup_grace_s": 20},
            "mcp_servers": {
                "tattler": {
                    "command": sys.executable,
                    "args": [str(server)],
                    "env": {
                        "TATTLER_API_KEY": PLANTED["variable of an MCP server"],
                        "TATTLER_REALM": PLANTED["plain variable of an MCP server"],
                    },
                },
                "remote": {
                    "url": f"http://{CLOSED}/mcp?tattlerApiKey={PLANTED['query of an MCP server']}",
                    "headers": {"X-Auth": PLANTED["header of an MCP server"]},
                },
                "off": {
                    "command": "server",
                    "args": ["--token", PLANTED["argument of an MCP server"]],
                    "disabled": True,
                },
            },
        },
    }


def _providers(services: Background) -> dict[str, Mapping[str, object]]:
    return {
        "custom": {"apiKey": PLANTED["key in the file"], "apiBase": services.model.url},
        "groq": {
            "api_key": "${LEAK_MODEL_KEY}",
            "api_base": f"{services.echo}/v1",
            "extra_headers": {
                "X-Api-Key": PLANTED["header that sounds secret"],
                "Helicone-Auth": PLANTED["header that does not"],
            },
        },
        "deepseek": {
            "api_key": "${file:model.key}",
            "api_base": f"http://{PLANTED['user name that is a token']}@{CLOSED}/v1",
            "proxy": f"http://user:{PLANTED['password of a proxy']}@{CLOSED}",
        },
        "openrouter": {
            "api_key": "${LEAK_MODEL_KEY}",
            "api_base": f"http://user:{PLANTED['password in an address']}@{CLOSED}/v1",
        },
    }
