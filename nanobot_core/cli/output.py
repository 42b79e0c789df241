"""Output for people and programs: answers on stdout, everything else on stderr."""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
from collections.abc import Coroutine, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import typer

from nanobot_core.errors import ConfigInvalid

if TYPE_CHECKING:
    from rich.console import Console

T = TypeVar("T")
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
INTERRUPTED_CODE = 130
"""Exit code after Ctrl-C, as in shells: 128 plus the number of the signal."""


@cache
def stdout() -> Console:
    """Return the console for answers, with colours on a terminal unless ``NO_COLOR`` is set."""
    from rich.console import Console
    from rich.theme import Theme

    # rich prints code on a black background, which is a black box on a light terminal.
    theme = Theme({"markdown.code": "cyan", "markdown.code_block": "cyan"})
    return Console(highlight=False, theme=theme)


@cache
def stderr() -> Console:
    """Return the console for errors, progress and hints."""
    from rich.console import Console

    return Console(highlight=False, stderr=True)


def printable(text: str) -> str:
    """Return `text` without control characters, which can control a terminal."""
    return _CONTROLS.sub("", text)


def write(text: str) -> None:
    """Write `text` to stdout at once.

    If the reader has closed the pipe, as ``head`` does, this and all later output is discarded.
    """
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def print_json(data: object) -> None:
    """Print `data` as indented JSON, with the text of dates, paths and other types."""
    print(json.dumps(data, indent=2, ensure_ascii=False, default=str))


def print_facts(facts: Mapping[str, object], *, as_json: bool) -> None:
    """Print names and values, one per line without empty ones, or as JSON."""
    if as_json:
        print_json(facts)
        return
    width = max(map(len, facts)) + 2
    for name, value in facts.items():
        if isinstance(value, Mapping):
            lines = [", ".join(f"{amount} {what}" for what, amount in value.items())]
        else:
            lines = [str(item) for item in value] if isinstance(value, list) else [str(value)]
        if text := "\n".join(line for line in lines if line).replace("\n", f"\n{'':{width}}"):
            print(printable(f"{name.replace('_', ' ').capitalize():{width}}{text}"))


def render_table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print a table, aligned on a terminal and separated by tabs in a pipe."""
    texts = [[printable(str(cell)) for cell in row] for row in rows]
    if not sys.stdout.isatty():
        for row in ([column.lower() for column in columns], *texts):
            print("\t".join(cell.replace("\t", " ").replace("\n", " ") for cell in row))
        return
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 3, 0, 0))
    for index, column in enumerate(columns):
        table.add_column(column, overflow="fold", no_wrap=index == 0)
    for row in texts:
        table.add_row(*map(Text, row))
    stdout().print(table)


def fail(message: str, code: int = 1) -> NoReturn:
    """Print `message` as an error and end the command.

    Args:
        message: what happened and what to do, in one sentence.
        code: 1 for a failure, 2 for invalid arguments.

    Raises:
        typer.Exit: always.
    """
    print_error(message)
    raise typer.Exit(code)


def print_error(message: str) -> None:
    """Print an error on stderr."""
    _print_labelled("Error: ", "bold red", message)


def warn(message: str) -> None:
    """Print a warning on stderr."""
    _print_labelled("Warning: ", "bold yellow", message)


def _print_labelled(label: str, style: str, message: str) -> None:
    write("")  # what was printed before appears first
    text = printable(message)
    if sys.stderr.isatty():
        from rich.text import Text

        stderr().print(Text.assemble((label, style), text), soft_wrap=True)
    else:
        print(f"{label}{text}", file=sys.stderr)


def describe_error(error: Exception) -> str:
    """Return the message of an expected error for a person."""
    if isinstance(error, ConfigInvalid) and len(error.problems) > 1:
        lines = "\n".join(f"  {problem}" for problem in error.problems)
        return f"the configuration has {len(error.problems)} problems:\n{lines}"
    return str(error)


def run_async(work: Coroutine[Any, Any, T]) -> T:
    """Run `work` and return its result.

    Raises:
        typer.Exit: Ctrl-C stopped it; its resources are closed.
    """
    try:
        return asyncio.run(work)
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED_CODE) from None
