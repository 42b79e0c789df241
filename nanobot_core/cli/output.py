"""Text for people and for programs: answers on stdout, everything else on stderr."""

from __future__ import annotations

import asyncio
import json
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
"""Exit code after Ctrl-C, as shells have it: 128 and the number of the signal."""


@cache
def stdout() -> Console:
    """Return the console of answers; it has colours on a terminal only, and obeys ``NO_COLOR``."""
    from rich.console import Console

    return Console(highlight=False)


@cache
def stderr() -> Console:
    """Return the console of errors, progress and hints."""
    from rich.console import Console

    return Console(highlight=False, stderr=True)


def printable(text: str) -> str:
    """Return `text` without control characters, which could make a terminal do things."""
    return _CONTROLS.sub("", text)


def print_json(data: object) -> None:
    """Print `data` as indented JSON; dates, paths and the like as their text."""
    print(json.dumps(data, indent=2, ensure_ascii=False, default=str))


def print_facts(facts: Mapping[str, object], *, as_json: bool) -> None:
    """Print names and values: one below the other, empty ones left out, or as JSON."""
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
    """Print a table: aligned on a terminal, columns separated by tabs in a pipe."""
    texts = [[printable(str(cell)) for cell in row] for row in rows]
    if not sys.stdout.isatty():
        for row in ([column.lower() for column in columns], *texts):
            print("\t".join(cell.replace("\t", " ").replace("\n", " ") for cell in row))
        return
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 3, 0, 0))
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in texts:
        table.add_row(*map(Text, row))
    stdout().print(table)


def fail(message: str, code: int = 1) -> NoReturn:
    """Print `message` as an error and end the command.

    Args:
        message: one plain sentence: what is wrong and what to do.
        code: 1 for failed, 2 for wrong use.

    Raises:
        typer.Exit: always.
    """
    print_error(message)
    raise typer.Exit(code)


def print_error(message: str) -> None:
    """Print one plain sentence, or several lines, on stderr."""
    sys.stdout.flush()
    text = printable(message)
    if sys.stderr.isatty():
        from rich.text import Text

        stderr().print(Text.assemble(("Error: ", "bold red"), text), soft_wrap=True)
    else:
        print(f"Error: {text}", file=sys.stderr)


def describe_error(error: Exception) -> str:
    """Return what a person should read of an error that was raised on purpose."""
    if isinstance(error, ConfigInvalid) and len(error.problems) > 1:
        lines = "\n".join(f"  {problem}" for problem in error.problems)
        return f"the configuration has {len(error.problems)} problems:\n{lines}"
    return str(error)


def run_async(work: Coroutine[Any, Any, T]) -> T:
    """Run `work` to its end and return its result.

    Raises:
        typer.Exit: it was stopped by Ctrl-C; everything it had open is closed by then.
    """
    try:
        return asyncio.run(work)
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED_CODE) from None
