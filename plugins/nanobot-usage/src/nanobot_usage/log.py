"""One log line for each step of the agent's work; what people and models say stays out of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nanobot_core import on

if TYPE_CHECKING:
    from loguru import Logger

    from nanobot_core import (
        AppDraining,
        AppReady,
        ApprovalResolved,
        CompactionFinished,
        CompactionStarted,
        ErrorRaised,
        IterationFinished,
        IterationStarted,
        PluginContext,
        StreamBatch,
        StreamEnded,
        ToolBatchStarted,
        ToolCallFinished,
        TurnInfo,
        TurnOutcome,
        TurnStarted,
    )


class _Log:
    """What both halves of the log share."""

    _log_context: PluginContext

    @property
    def _log(self) -> Logger:
        return self._log_context.logger

    def _log_of(self, turn: TurnInfo) -> Logger:
        return self._log.bind(turn=turn.id, session=turn.session_key, channel=turn.channel)


class TurnLog(_Log):
    """Turns and their model calls."""

    @on.before_turn
    def before_turn(self, event: TurnStarted) -> None:
        """Log where a turn comes from."""
        self._log_of(event.turn).debug("turn started by {}", event.turn.source)

    @on.on_error
    def on_error(self, event: ErrorRaised) -> None:
        """Log what failed; the core logs the details."""
        bound = self._log_of(event.turn) if event.turn else self._log
        bound.bind(error_id=event.id).info("{} failed: {}", event.place, event.error_type)

    @on.before_iteration
    def before_iteration(self, event: IterationStarted) -> None:
        """Log which model is about to be called."""
        bound = self._log_of(event.turn).bind(iteration=event.iteration)
        bound.debug("calling {} with {} messages", event.model, event.messages)

    @on.after_iteration
    def after_iteration(self, event: IterationFinished) -> None:
        """Log what a model call took."""
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

    @on.on_stream
    def on_stream(self, event: StreamBatch) -> None:
        """Log how much came."""
        bound = self._log_of(event.turn).bind(iteration=event.iteration)
        bound.trace("streamed {} characters", len(event.text) + len(event.reasoning))

    @on.on_stream_end
    def on_stream_end(self, event: StreamEnded) -> None:
        """Log that a stream is over."""
        bound = self._log_of(event.turn).bind(iteration=event.iteration)
        bound.debug("stream ended with {} tool calls", event.tool_calls)

    def _log_turn_end(self, event: TurnOutcome) -> None:
        bound = self._log_of(event.turn).bind(
            duration_s=event.duration_s,
            iterations=event.iterations,
            tokens=event.usage.total_tokens,
            cost_usd=event.usage.cost_usd,
            stop_reason=event.stop_reason,
        )
        bound.info("turn {} after {:.2f} s", event.stop_reason, event.duration_s)


class WorkLog(_Log):
    """The application, tools, approvals and compaction."""

    @on.app_ready
    def app_ready(self, event: AppReady) -> None:
        """Log what was started."""
        self._log.debug("nanobot {} is ready with {}", event.version, ", ".join(event.plugins))

    @on.app_draining
    def app_draining(self, event: AppDraining) -> None:
        """Log why work ends."""
        self._log.debug("draining: {}", event.reason)

    @on.before_execute_tools
    def before_execute_tools(self, event: ToolBatchStarted) -> None:
        """Log which tools are about to run."""
        bound = self._log_of(event.turn).bind(iteration=event.iteration)
        bound.debug("running {}", ", ".join(call.name for call in event.calls))

    @on.after_execute_tool
    def after_execute_tool(self, event: ToolCallFinished) -> None:
        """Log what a tool took."""
        word = "failed" if event.result.is_error else "ended"
        bound = self._log_of(event.turn).bind(
            call=event.call.id, origin=event.result.origin, duration_s=event.duration_s
        )
        bound.debug("tool {} {} after {:.2f} s", event.call.name, word, event.duration_s)

    @on.approval_resolved
    def approval_resolved(self, event: ApprovalResolved) -> None:
        """Log who decided on a call."""
        word = "allowed" if event.allowed else "refused"
        bound = self._log_of(event.turn).bind(approval=event.id)
        bound.info("{} {} by {}", event.call.name, word, event.by)

    @on.before_compaction
    def before_compaction(self, event: CompactionStarted) -> None:
        """Log how much is summarised."""
        self._log_of(event.turn).debug("summarising {} messages", len(event.messages))

    @on.after_compaction
    def after_compaction(self, event: CompactionFinished) -> None:
        """Log how long the summary is."""
        bound = self._log_of(event.turn)
        bound.info("{} messages became {} characters", event.messages, len(event.summary))
