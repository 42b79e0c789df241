"""Totals: what a gateway has done since its start, counted from the events of its turns."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from nanobot_core.contracts.service import GatewayTotals
from nanobot_core.hooks import specs as on

if TYPE_CHECKING:
    from nanobot_core.events import ToolCallFinished, TurnOutcome, UsageRecorded


class Totals:
    """A plugin of the gateway that counts turns, tool calls and model calls.

    Attributes:
        so_far: the counts.
    """

    def __init__(self) -> None:
        self.so_far: GatewayTotals = GatewayTotals()

    @on.after_turn
    def after_turn(self, event: TurnOutcome) -> None:
        """Count a turn."""
        now = self.so_far
        self.so_far = replace(
            now,
            turns=now.turns + 1,
            failed_turns=now.failed_turns + (event.error is not None),
            turns_s=now.turns_s + event.duration_s,
            slowest_turn_s=max(now.slowest_turn_s, event.duration_s),
        )

    @on.after_execute_tool
    def after_execute_tool(self, event: ToolCallFinished) -> None:
        """Count a tool call."""
        now = self.so_far
        failed = now.failed_tool_calls + event.result.is_error
        self.so_far = replace(now, tool_calls=now.tool_calls + 1, failed_tool_calls=failed)

    @on.on_usage
    def on_usage(self, event: UsageRecorded) -> None:
        """Count a model call."""
        now = self.so_far
        self.so_far = replace(now, model_calls=now.model_calls + 1, usage=now.usage + event.usage)
