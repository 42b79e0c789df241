"""Child processes, and the time and memory that they used."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.measure import Goal, Row, compare

PROGRAMS = Path(__file__).parent / "programs"
LIMIT_S = 120.0
_LEFT_OUT = ("PYTHONDONTWRITEBYTECODE", "PYTHONPATH", "PYTHONOPTIMIZE")


class ChildError(Exception):
    """A child process failed; the text is the end of its output."""


@dataclass(frozen=True, slots=True)
class ChildRun:
    """One process from its start to its end.

    Attributes:
        started_s: ``time.monotonic()`` just before the start; all processes share this clock.
        wall_ms: milliseconds from start to end.
        cpu_ms: milliseconds of user and system time, children included.
        rss_mb: largest resident set, in units of 1,000,000 bytes.
        output: what it wrote to its standard output.
    """

    started_s: float
    wall_ms: float
    cpu_ms: float
    rss_mb: float
    output: str


def run_child(command: Sequence[str], environment: Mapping[str, str]) -> ChildRun:
    """Run a command to its end.

    Raises:
        ChildError: it failed, or did not end within `LIMIT_S` seconds.
    """
    # A child inherits the largest resident set of its parent, and this process is large.
    with tempfile.NamedTemporaryFile("r", suffix=".json") as report:
        starter = [sys.executable, "-I", "-S", str(PROGRAMS / "start.py"), report.name, *command]
        process = subprocess.Popen(
            starter,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        try:
            output, errors = process.communicate(timeout=LIMIT_S)
        except subprocess.TimeoutExpired as error:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            msg = f"'{' '.join(command)}' did not end within {LIMIT_S:g} s"
            raise ChildError(msg) from error
        if process.returncode:
            msg = f"'{' '.join(command)}' exited with {process.returncode}: {errors[-2000:]}"
            raise ChildError(msg)
        return ChildRun(**json.load(report), output=output)


def environment_of(home: Path | None = None, *, path: Path | None = None) -> dict[str, str]:
    """Return the environment of a child.

    Args:
        home: nanobot's folder; ``None`` leaves it unset.
        path: folder to put in front of the import path.
    """
    kept = {
        name: value
        for name, value in os.environ.items()
        if name not in _LEFT_OUT and not name.startswith("NANOBOT_")
    }
    kept["TERM"] = "dumb"
    if home is not None:
        kept["NANOBOT_HOME"] = str(home)
    if path is not None:
        kept["PYTHONPATH"] = str(path)
    return kept


def nanobot_command(*arguments: str) -> list[str]:
    """Return the installed command, or its module if the script is not installed."""
    script = Path(sysconfig.get_path("scripts")) / "nanobot"
    if script.is_file():
        return [str(script), *arguments]
    return [sys.executable, "-m", "nanobot_core", *arguments]


def program(name: str, *arguments: str) -> list[str]:
    """Return the command of a program in ``programs/``."""
    return [sys.executable, str(PROGRAMS / f"{name}.py"), *arguments]


def child_rows(
    name: str, ours: Sequence[ChildRun], floor: Sequence[ChildRun], goal: Goal | None = None
) -> tuple[Row, Row]:
    """Return CPU time, which has the goal because it is more reliable, and wall time."""
    return (
        compare(f"{name}, cpu", "ms", [r.cpu_ms for r in ours], [r.cpu_ms for r in floor], goal),
        compare(f"{name}, wall", "ms", [r.wall_ms for r in ours], [r.wall_ms for r in floor]),
    )
