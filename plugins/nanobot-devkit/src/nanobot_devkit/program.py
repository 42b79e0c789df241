"""Commands of nanobot in a process of their own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import typer

LIMIT_S = 120.0


def answer_of(*words: str, explain: Callable[[str], object] | None = None) -> str | None:
    """Return what a command prints; ``None`` if it fails. Blocks.

    Args:
        words: the command without ``nanobot``.
        explain: called with the reason of a failure.
    """
    child = subprocess.run(
        [sys.executable, "-m", "nanobot_core", *words],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        stdin=subprocess.DEVNULL,
        check=False,
    )
    if child.returncode == 0:
        return child.stdout
    if explain is not None:
        explain(child.stderr.strip().removeprefix("Error: "))
    return None


def root_options(ctx: typer.Context) -> list[str]:
    """Return the options before the command that choose a configuration."""
    given = ctx.find_root().params
    named = [("--config", given.get("config")), ("--profile", given.get("profile"))]
    words = [word for option, value in named if value for word in (option, str(value))]
    words += ["--safe"] if given.get("safe") else []
    without = given.get("without") or ()
    return [*words, *(word for name in without for word in ("--without", str(name)))]
