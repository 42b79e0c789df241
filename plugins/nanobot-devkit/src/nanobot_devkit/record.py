"""``nanobot plugins record``: the hook calls of a real run, as a file that tests replay."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Annotated

import typer

from nanobot_core import NanobotError
from nanobot_devkit.program import answer_of, root_options
from nanobot_devkit.recorder import LIMIT_BYTES

LOCAL = "NANOBOT_PLUGINS__LOCAL"
_PLUGIN = '''"""Records hook calls; made by nanobot plugins record."""

from pathlib import Path

from nanobot_devkit.recorder import Recorder

_recorder = Recorder(Path({file!r}), {limit})
start = _recorder.start
after_hook = _recorder.after_hook
stop = _recorder.stop
'''


class RecordingImpossible(NanobotError):
    """The run cannot be recorded; the message says why."""


def record(
    ctx: typer.Context,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="File to write; must not exist.")],
    command: Annotated[
        list[str], typer.Argument(metavar="-- COMMAND…", help="Command of nanobot, with options.")
    ],
    limit_mb: Annotated[
        int, typer.Option(min=1, metavar="MB", help="Size at which the recording ends.")
    ] = LIMIT_BYTES // 1_000_000,
) -> None:
    """Run a command of nanobot, and write the calls of its hooks to a file.

    Each call has the event and the answer of all plugins together. Secrets of the configuration
    are masked; what people and models wrote is not, so read the file before you publish it. The
    fixture `nanobot_replay` makes the calls again with a plugin under test. Exits as the command.

    Example: nanobot plugins record calls.jsonl -- agent -m "What time is it?"
    """
    target = file.absolute()
    if target.exists() or target.is_symlink():
        raise RecordingImpossible(f"'{file}' exists already; remove it or choose another name")
    if not target.parent.is_dir():
        raise RecordingImpossible(f"'{target.parent}' is not a folder; create it first")
    words = command[1:] if command[0] == "nanobot" else command
    options = root_options(ctx)
    if words[0] == "agent" and answer_of(*options, "gateway", "status") is not None:
        msg = "a gateway runs and would do the work; stop it, or record it: -- gateway"
        raise RecordingImpossible(msg)
    with tempfile.TemporaryDirectory(prefix="nanobot-record-") as folder:
        plugin = Path(folder) / "hook-recorder.py"
        plugin.write_text(
            _PLUGIN.format(file=str(target), limit=limit_mb * 1_000_000), encoding="utf-8"
        )
        local = json.dumps([*_local(options), str(plugin)])
        code = _run([*options, *words], f"{LOCAL}={local}")
    if not target.exists():
        typer.echo("nothing was recorded: the command did not start plugins", err=True)
    else:
        typer.echo(f"recorded to {file}", err=True)
    raise typer.Exit(code)


def _local(options: list[str]) -> list[str]:
    """Return what the configuration names under ``plugins.local``."""
    found: object = json.loads(
        answer_of(*options, "config", "get", "plugins.local", "--json") or "[]"
    )
    return [str(each) for each in found] if isinstance(found, list) else []


def _run(words: list[str], variable: str) -> int:
    """Run a command to its end; it decides what an interrupt means. Blocks."""
    child = subprocess.Popen(["env", variable, sys.executable, "-m", "nanobot_core", *words])
    # Ctrl-C reaches the command too: both are in the foreground of the terminal.
    former = signal.signal(signal.SIGINT, signal.SIG_IGN)
    ending = signal.signal(signal.SIGTERM, lambda *_: child.terminate())
    try:
        code = child.wait()
    finally:
        signal.signal(signal.SIGINT, former)
        signal.signal(signal.SIGTERM, ending)
    return code if code >= 0 else 128 - code
