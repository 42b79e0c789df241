"""Entry point: hooks that record, limit and report the cost of model calls."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING

from nanobot_core import CliGroup, SettingsSection, SlashCommand, on
from nanobot_usage.log import TurnLog

if TYPE_CHECKING:
    from nanobot_core import (
        ChatRequest,
        ContentReady,
        LLMResponse,
        ModelCallRequested,
        ModelRequested,
        Panel,
        PluginContext,
        TurnInfo,
        TurnOutcome,
        UsageRecorded,
    )
    from nanobot_usage.books import Books


class UsagePlugin(TurnLog):
    """Implementations of hooks; one instance belongs to one application."""

    def __init__(self) -> None:
        self._open_books: Books | None = None

    @on.contribute_settings
    def contribute_settings(self) -> Iterable[SettingsSection]:
        """Declare the settings section."""
        return (
            SettingsSection("usage", "nanobot_usage.settings:UsageSettings"),
            SettingsSection("budgets", "nanobot_core:BudgetsSettings"),
        )

    @on.contribute_commands
    def contribute_commands(self, ctx: PluginContext) -> Iterable[SlashCommand]:
        """Contribute ``/usage``."""
        return (
            SlashCommand(
                name="usage",
                summary="show tokens and cost of today and of this session",
                handler="nanobot_usage.report:answer_usage",
            ),
        )

    @on.contribute_cli
    def contribute_cli(self) -> Iterable[CliGroup]:
        """Contribute ``nanobot usage``."""
        return (
            CliGroup(
                name="usage",
                summary="Show tokens and cost by model, session or day.",
                app="nanobot_usage.commands:usage",
            ),
        )

    @on.contribute_panels
    def contribute_panels(self, ctx: PluginContext) -> Iterable[Panel]:
        """Contribute the page with tokens and cost."""
        from nanobot_usage.panel import usage_panel

        return (usage_panel(ctx),)

    @on.start
    async def start(self, ctx: PluginContext) -> None:
        """Open the record."""
        from nanobot_usage.books import Books

        self._log_context = ctx
        self._open_books = await asyncio.to_thread(ctx.shared, Books)
        ctx.on_dispose(self._open_books.aclose)

    @on.choose_model
    def choose_model(self, event: ModelRequested) -> Awaitable[str | None] | None:
        """Name the economy model when a budget runs short."""
        books = self._books
        if not (books.settings.economy_model and books.has_budget):
            return None
        return books.economy_model(event.turn)

    @on.wrap_model_call(tryfirst=True)
    def wrap_model_call(
        self,
        event: ModelCallRequested,
        call_next: Callable[[ChatRequest], Awaitable[LLMResponse]],
    ) -> Awaitable[LLMResponse] | None:
        """End the turn instead of making a call beyond a budget."""
        return self._count(event, call_next) if self._books.counts(event.turn) else None

    async def _count(
        self,
        event: ModelCallRequested,
        call_next: Callable[[ChatRequest], Awaitable[LLMResponse]],
    ) -> LLMResponse:
        self._books.open_turn(event.turn)
        await self._books.demand(event.turn)
        response = await call_next(event.request)
        self._books.count_ahead(event.turn, event.request.model, response.usage)
        return response

    @on.on_usage
    def on_usage(self, event: UsageRecorded) -> None:
        """Record a call."""
        self._books.record(event)

    @on.finalize_content(trylast=True)
    def finalize_content(self, event: ContentReady) -> Awaitable[str | None] | None:
        """Put warnings and, where it is wanted, tokens and cost below the answer."""
        has_notes = self._books.counts_turns and _is_read(event.turn)
        return self._with_notes(event) if has_notes else None

    async def _with_notes(self, event: ContentReady) -> str | None:
        from nanobot_usage.report import render_spent

        lines = [f"*{warning}*" for warning in await self._books.warnings(event.turn)]
        spent = self._books.spent_in_turn(event.turn)
        if self._books.settings.footer and spent.tokens:
            lines.append(f"*{render_spent(spent)}*")
        return "\n\n".join([event.content, *lines]) if lines else None

    @on.after_turn
    def after_turn(self, event: TurnOutcome) -> None:
        """Log how the turn ended, and forget it."""
        self._log_turn_end(event)
        self._books.close_turn(event.turn)

    @property
    def _books(self) -> Books:
        if self._open_books is None:
            msg = "the usage plugin was used before its start hook was called"
            raise RuntimeError(msg)
        return self._open_books


def _is_read(turn: TurnInfo) -> bool:
    """Whether a person reads the answer; what other work could report is left to a later turn."""
    return turn.assignment is None or turn.assignment.delivery == "always"
