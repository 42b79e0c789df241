"""Sums of the record as text, and the answer to ``/usage``."""

from __future__ import annotations

import asyncio
from contextlib import closing
from datetime import timedelta
from typing import TYPE_CHECKING

from nanobot_core import BudgetsSettings
from nanobot_usage.books import Books
from nanobot_usage.spent import Spent
from nanobot_usage.store import Grouping, Line, UsageStore

if TYPE_CHECKING:
    from nanobot_core import Budget, CommandCall, PluginContext


def read_lines(ctx: PluginContext, by: Grouping, days: int) -> list[Line]:
    """Return sums of the last `days` days, today included; blocks."""
    first = ctx.clock.now().date() - timedelta(days=days - 1)
    with closing(UsageStore(ctx.data_dir)) as store:
        return store.lines(by, first.isoformat())


async def answer_usage(ctx: PluginContext, call: CommandCall) -> str:
    """Return today's and this session's sums, and how much of the budgets they use, in Markdown."""
    await ctx.shared(Books).store_all()
    today, session, models = await asyncio.to_thread(_read, ctx, call.turn.session_key)
    budgets = ctx.settings(BudgetsSettings)
    lines = [
        f"- Today: {render_spent(today)}{render_budget(budgets.day)}",
        f"- This session: {render_spent(session)}{render_budget(budgets.session)}",
        *(f"- {line.key} today: {render_spent(line.spent)}{_unpriced(line)}" for line in models),
    ]
    return "Usage:\n\n" + "\n".join(lines)


def render_spent(spent: Spent) -> str:
    """Return tokens and, where there is any, money."""
    money = f", ${spent.usd:.4f}" if spent.nano_usd else ""
    return f"{spent.tokens:,} tokens{money}"


def render_budget(budget: Budget) -> str:
    """Return a budget in parentheses; empty if none is set."""
    limits = [
        *([f"{budget.tokens:,} tokens"] if budget.tokens is not None else []),
        *([f"${budget.usd:g}"] if budget.usd is not None else []),
    ]
    return f" (budget {' and '.join(limits)})" if limits else ""


def _read(ctx: PluginContext, session: str) -> tuple[Spent, Spent, list[Line]]:
    day = ctx.clock.now().date().isoformat()
    with closing(UsageStore(ctx.data_dir)) as store:
        return store.total("day", day), store.total("session", session), store.lines("model", day)


def _unpriced(line: Line) -> str:
    return (
        f" ({line.unpriced_calls} of {line.calls} calls without a price)"
        if (line.unpriced_calls)
        else ""
    )
