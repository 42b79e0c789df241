"""``nanobot usage``."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import asdict
from enum import StrEnum
from typing import Annotated, TypeAlias

import typer

from nanobot_core import PluginContext
from nanobot_usage.report import read_lines
from nanobot_usage.store import Line

OpenContext: TypeAlias = Callable[[], AbstractAsyncContextManager[PluginContext]]
_COLUMNS = ("calls", "tokens", "cached", "usd", "unpriced")


class By(StrEnum):
    """Groups of the sums."""

    model = "model"
    session = "session"
    day = "day"
    source = "source"
    plugin = "plugin"


def usage(
    ctx: typer.Context,
    days: Annotated[int, typer.Option(min=1, max=3_650, help="Days, today included.")] = 1,
    by: Annotated[By, typer.Option(help="What to group by.")] = By.model,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show tokens and cost: of today, or of the last days. Days are those of UTC.

    Example: nanobot usage --days 7 --by day
    """
    lines = asyncio.run(_read(ctx.obj, by, days))
    if as_json:
        rows = [{by.value: line.key, **_numbers(line)} for line in lines]
        typer.echo(json.dumps(rows, indent=2, ensure_ascii=False))
        return
    if not lines:
        typer.echo("No model call was recorded in that time.", err=True)
        return
    typer.echo("\t".join((by.value, *_COLUMNS)))
    for line in lines:
        spent = line.spent
        cells = (line.calls, spent.tokens, line.cached_tokens, f"{spent.usd:.4f}")
        typer.echo("\t".join(map(str, (line.key, *cells, line.unpriced_calls))))


async def _read(open_context: OpenContext, by: By, days: int) -> list[Line]:
    async with open_context() as plugin:
        return await asyncio.to_thread(read_lines, plugin, by.value, days)


def _numbers(line: Line) -> dict[str, int | float]:
    numbers = asdict(line)
    del numbers["key"], numbers["nano_usd"]
    return {**numbers, "usd": line.spent.usd}
