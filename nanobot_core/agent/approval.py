"""Whether a tool call may run: the plugins' policies, the owner's rules, the owner's word."""

from __future__ import annotations

import re
from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING
from uuid import uuid4

from nanobot_core.agent.bounded import run_bounded
from nanobot_core.contracts.plugin import Allow, Ask, Deny
from nanobot_core.events import ApprovalRequested, ApprovalResolved, ToolCallProposed, TurnInfo
from nanobot_core.hooks.caller import Hooks
from nanobot_core.messages import JsonObject, ToolCall

if TYPE_CHECKING:
    from nanobot_core.config.models import ApprovalRule


class Approver:
    """Decides on the calls of one turn.

    Args:
        turn: the turn.
        hooks: call points.
        rules: the owner's rules; the first that matches counts.
        timeout_s: seconds until no answer means no.
    """

    def __init__(
        self, turn: TurnInfo, hooks: Hooks, rules: Sequence[ApprovalRule], timeout_s: float
    ) -> None:
        self._turn = turn
        self._hooks = hooks
        self._rules = rules
        self._timeout_s = timeout_s

    async def decide(self, call: ToolCall, origin: str, *, read_only: bool) -> JsonObject | str:
        """Return the arguments to run with, or a sentence for the model why it may not run."""
        decision: Allow | Ask | Deny = Allow()
        arguments = call.arguments
        if self._hooks.authorize_tool_call:
            verdict = await self._hooks.authorize_tool_call(
                ToolCallProposed(turn=self._turn, call=call, origin=origin, read_only=read_only)
            )
            decision, arguments = verdict.decision, verdict.call.arguments
        if isinstance(decision, Deny):
            return f"{call.name} was denied: {decision.reason}"
        ruling = self._ruling(call.name, arguments)
        if ruling == "deny":
            return f"{call.name} was denied by the owner's rules"
        if ruling == "ask" or (isinstance(decision, Ask) and ruling != "allow"):
            question = decision.question if isinstance(decision, Ask) else f"Run {call.name}?"
            frozen = ToolCall(call.id, call.name, arguments)
            if not await self._owner_allows(frozen, question):
                return f"{call.name} was not approved by the owner"
        return arguments

    def _ruling(self, tool: str, arguments: JsonObject) -> str | None:
        sender = self._turn.sender_id
        for rule in self._rules:
            if (
                fnmatchcase(tool, rule.tool)
                and rule.channel in {None, self._turn.channel}
                and rule.sender in {None, sender, sender.partition("|")[0]}
                and _matches(rule.argument, arguments)
            ):
                return rule.action
        return None

    async def _owner_allows(self, call: ToolCall, question: str) -> bool:
        """Ask; nobody to ask, no answer in time and a failure mean no."""
        request = ApprovalRequested(
            turn=self._turn, id=uuid4().hex[:8], call=call, question=question
        )
        ticket = None
        by = "nobody to ask"
        if self._hooks.present_approval:
            try:
                ticket = await run_bounded(
                    self._hooks.runtime.spawn,
                    self._hooks.present_approval(request),
                    limit_s=self._timeout_s,
                    name=f"approval:{request.id}",
                )
            except TimeoutError:
                by = "no answer in time"
        allowed = ticket is not None and ticket.allowed
        if self._hooks.approval_resolved:
            self._hooks.approval_resolved(
                ApprovalResolved(
                    turn=self._turn,
                    id=request.id,
                    call=call,
                    allowed=allowed,
                    by=ticket.by if ticket else by,
                )
            )
        return allowed


def _matches(pattern: str | None, arguments: JsonObject) -> bool:
    if pattern is None:
        return True
    return any(re.search(pattern, str(value)) for value in arguments.values())
