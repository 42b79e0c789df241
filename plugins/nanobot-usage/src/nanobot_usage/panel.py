"""Panel ``usage``: tokens and cost by day, model and plugin, for the owner."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Sequence
from datetime import date, timedelta
from typing import TYPE_CHECKING

from nanobot_core import (
    BudgetsSettings,
    Panel,
    PanelBars,
    PanelError,
    PanelLink,
    PanelRow,
    PanelTable,
    PanelText,
    PanelView,
)
from nanobot_usage.books import Books
from nanobot_usage.report import read_lines, render_budget, render_spent
from nanobot_usage.spent import Spent
from nanobot_usage.store import Line, StoreTooNewError

if TYPE_CHECKING:
    from nanobot_core import PluginContext

PERIODS = (7, 30, 90)
"""Days that can be shown."""
DEFAULT_DAYS = 30
MAX_ROWS = 50
_HEADINGS = ("Calls", "Tokens sent", "from a cache", "Tokens received", "Cost in USD")


def usage_panel(ctx: PluginContext) -> Panel:
    """Return the panel. Its views are numbers of days."""

    async def show(view: str) -> PanelView:
        days = next((each for each in PERIODS if str(each) == (view or str(DEFAULT_DAYS))), None)
        if days is None:
            raise PanelError(f"usage can be shown for {', '.join(map(str, PERIODS))} days")
        try:
            await ctx.shared(Books).store_all()
            return await asyncio.to_thread(_build, ctx, days)
        except (sqlite3.Error, OSError, StoreTooNewError) as error:
            raise PanelError(f"the record of usage cannot be read: {error}") from error

    return Panel(
        id="usage",
        title="Usage",
        show=show,
        summary="Tokens and cost of model calls. Days are those of UTC.",
    )


def _build(ctx: PluginContext, days: int) -> PanelView:
    """Return the view. Blocks."""
    today = ctx.clock.now().date()
    shown = [today - timedelta(days=back) for back in reversed(range(days))]
    by_day = {line.key: line.spent for line in read_lines(ctx, "day", days)}
    spent = [by_day.get(day.isoformat(), Spent()) for day in shown]
    budget = render_budget(ctx.settings(BudgetsSettings).day)
    sums = PanelText(
        text=f"Today: {render_spent(spent[-1])}{budget}. "
        f"Last {days} days: {render_spent(sum(spent, Spent()))}."
    )
    others = tuple(
        PanelLink(label=f"Last {each} days", view=str(each)) for each in PERIODS if each != days
    )
    return PanelView(
        parts=(
            sums,
            *_bars(shown, spent),
            _table("By model", "Model", read_lines(ctx, "model", days)),
            _table("By plugin", "Plugin", read_lines(ctx, "plugin", days)),
            _table("By source", "Source", read_lines(ctx, "source", days)),
        ),
        links=others,
    )


def _bars(days: Sequence[date], spent: Sequence[Spent]) -> tuple[PanelBars, ...]:
    names = [day.isoformat() for day in days]
    pairs = list(zip(names, spent, strict=True))
    tokens = PanelBars(
        title="Tokens per day",
        bars=tuple((name, float(each.tokens), f"{each.tokens:,}") for name, each in pairs),
    )
    if not any(each.nano_usd for each in spent):
        return (tokens,)
    cost = PanelBars(
        title="Cost per day in USD",
        bars=tuple((name, each.usd, f"${each.usd:.4f}") for name, each in pairs),
    )
    return tokens, cost


def _table(title: str, heading: str, lines: Sequence[Line]) -> PanelTable:
    rows = [PanelRow(cells=_cells(line)) for line in lines[:MAX_ROWS]]
    more = f", the {MAX_ROWS} largest of {len(lines):,}" if len(lines) > MAX_ROWS else ""
    return PanelTable(
        title=f"{title}{more}",
        columns=(heading, *_HEADINGS),
        rows=tuple(rows),
        empty="No model call was recorded in that time.",
    )


def _cells(line: Line) -> tuple[str, ...]:
    missing, calls = line.unpriced_calls, line.calls
    unpriced = f" ({missing:,} of {calls:,} without a price)" if missing else ""
    return (
        line.key or "the agent",
        f"{line.calls:,}",
        f"{line.prompt_tokens:,}",
        f"{line.cached_tokens:,}",
        f"{line.completion_tokens:,}",
        f"{line.spent.usd:.4f}{unpriced}",
    )
