"""One log line for each step of the agent's work; it never contains what people and models say."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nanobot_core import on

if TYPE_CHECKING:
    from loguru import Logger

    from nanobot_core import (
        ApprovalResolved,
        ErrorRaised,
        IterationFinished,
        IterationStarted,
        PluginContext,
        ToolCallFinished,
        TurnInfo,
        TurnOutcome,
        TurnStarted,
    )


class TurnLog:
    """Turns, model calls, tools and approvals."""

    _log_context: PluginContext

    @property
    def _log(self) -> Logger:
        return self._log_context.logger

    def _log_of(self, turn: TurnInfo) -> Logger:
        return self._log.bind(turn=turn.id, session=turn.session_key, channel=turn.channel)

    @on.before_turn
    def before_turn(self, event: TurnStarted) -> None:
        """Log where a turn comes from."""
        self._log_of(event.turn).debug("turn started by {}", event.turn.source)

    @on.on_error
    def on_error(self, event: ErrorRaised) -> None:
        """Log a failure; the core logs the details."""
        bound = self._log_of(event.turn) if event.turn else self._log
        bound.bind(error_id=event.id).info("{} failed: {}", event.place, event.error_type)

    @on.before_iteration
    def before_iteration(self, event: IterationStarted) -> None:
        """Log which model is about to be called."""
        bound = self._log_of(event.turn).bind(iteration=event.iteration)
        bound.debug("calling {} with {} messages", event.model, event.messages)

    @on.after_iteration
    def after_iteration(self, event: IterationFinished) -> None:
        """Log tokens and time of a model call."""
        bound = self._log_of(event.turn).bind(
            iteration=event.iteration,
            provider=event.provider,
            duration_s=event.duration_s,
            first_token_s=event.first_token_s,
            tokens=event.usage.total_tokens,
        )
        bound.debug(
            "{} answered in {:.2f} s: {} calls, {}",
            event.model,
            event.duration_s,
            len(event.tool_calls),
            event.finish_reason,
        )

    def _log_turn_end(self, event: TurnOutcome) -> None:
        bound = self._log_of(event.turn).bind(
            duration_s=event.duration_s,
            iterations=event.iterations,
            tokens=event.usage.total_tokens,
            cost_usd=event.usage.known_usd,
            stop_reason=event.stop_reason,
        )
        bound.info("turn {} after {:.2f} s", event.stop_reason, event.duration_s)

    @on.after_execute_tool
    def after_execute_tool(self, event: ToolCallFinished) -> None:
        """Log the time of a tool."""
        word = "failed" if event.result.is_error else "ended"
        bound = self._log_of(event.turn).bind(
            call=event.call.id, origin=event.result.origin, duration_s=event.duration_s
        )
        bound.debug("tool {} {} after {:.2f} s", event.call.name, word, event.duration_s)

    @on.after_approval
    def after_approval(self, event: ApprovalResolved) -> None:
        """Log who decided on a call."""
        word = "allowed" if event.allowed else "refused"
        bound = self._log_of(event.turn).bind(approval=event.id)
        bound.info("{} {} by {}", event.call.name, word, event.by)
