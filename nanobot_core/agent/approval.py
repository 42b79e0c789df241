"""Approval of tool calls by policies of plugins, the tool, the owner's rules and the owner."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

from nanobot_core.agent.always import AllowedCall, AlwaysAllowed
from nanobot_core.agent.results import result_of
from nanobot_core.contracts.plugin import Allow, Ask, Deny, Ticket
from nanobot_core.contracts.tool import Review, Tool, ToolContext
from nanobot_core.errors import ToolError
from nanobot_core.events import ApprovalRequested, ApprovalResolved, ToolCallProposed, TurnInfo
from nanobot_core.hooks.caller import Hooks
from nanobot_core.messages import JsonObject, JsonValue, ToolCall
from nanobot_core.record import dataclass
from nanobot_core.tasks import run_bounded
from nanobot_core.tools.registry import RegisteredTool, ToolRegistry

if TYPE_CHECKING:
    from nanobot_core.config.models import ApprovalRule

NO_ONE = "there is no one to ask here"
NO_ANSWER = "no answer in time"
NOT_ANSWERED = frozenset({NO_ONE, NO_ANSWER})
REVIEW_LIMIT_S = 5.0
"""Seconds that a tool has to judge one of its calls."""


@dataclass(frozen=True, slots=True)
class ApprovalPolicy:
    """The owner's decisions that do not depend on the call.

    Attributes:
        rules: the first that matches applies.
        timeout_s: seconds after which a missing answer means no.
        always: calls that are permanently allowed; ``None`` if there is no place to keep them.
    """

    rules: Sequence[ApprovalRule] = ()
    timeout_s: float = 300.0
    always: AlwaysAllowed | None = None


@dataclass(frozen=True, slots=True)
class Proposal:
    """A call to decide on; its arguments are cast and valid."""

    call: ToolCall
    entry: RegisteredTool
    tool: Tool
    context: ToolContext


@dataclass(frozen=True, slots=True)
class Approved:
    """The call may run.

    Attributes:
        call: the call, with the arguments to run with.
        paths: what it may reach besides the paths that need no approval.
    """

    call: ToolCall
    paths: tuple[Path, ...] = ()


class Approver:
    """Decides on the calls of one turn."""

    def __init__(self, turn: TurnInfo, hooks: Hooks, policy: ApprovalPolicy) -> None:
        self._turn = turn
        self._hooks = hooks
        self._policy = policy

    async def decide(self, proposal: Proposal, tools: ToolRegistry) -> Approved | str:
        """Return the call to run, or a sentence for the model that says why it cannot run.

        The strictest answer applies: a policy or the tool refuses, a rule refuses, one of them
        wants the owner to be asked. If a rule allows the call, the owner is not asked.

        Args:
            proposal: the call.
            tools: the tools of the turn, for arguments that a policy has changed.
        """
        name = proposal.call.name
        decision: Allow | Ask | Deny = Allow()
        if self._hooks.authorize_tool_call:
            verdict = await self._hooks.authorize_tool_call(
                ToolCallProposed(
                    turn=self._turn,
                    call=proposal.call,
                    origin=proposal.entry.origin,
                    read_only=proposal.tool.read_only,
                )
            )
            decision = verdict.decision
            if verdict.call.arguments is not proposal.call.arguments:
                prepared = tools.prepare_call(name, verdict.call.arguments)
                if prepared.error is not None:
                    return prepared.error
                call = replace(proposal.call, arguments=prepared.params)
                proposal = replace(proposal, call=call)
        if isinstance(decision, Deny):
            return f"{name} was denied: {decision.reason}"
        review = await self._review(proposal)
        if isinstance(review.decision, Deny):
            return f"{name} was denied: {review.decision.reason}"
        asks = [each for each in (decision, review.decision) if isinstance(each, Ask)]
        return await self._ruled(proposal, review, asks)

    async def _ruled(
        self, proposal: Proposal, review: Review, asks: Sequence[Ask]
    ) -> Approved | str:
        """Return the call if the owner's rules, or the owner, allow it."""
        call = proposal.call
        approved = Approved(call, tuple(path for ask in asks for path in ask.paths))
        ruling = self._ruling(proposal, review)
        if ruling == "deny":
            return f"{call.name} was denied by the owner's rules"
        if ruling != "ask" and (ruling == "allow" or not asks):
            return approved
        subject = next((ask.subject for ask in asks if ask.subject), "") or json.dumps(
            call.arguments, sort_keys=True, ensure_ascii=False
        )
        allowed = AllowedCall(f"{proposal.entry.plugin}/{proposal.entry.own_name}", subject)
        always = self._policy.always if asks and self._turn.is_owner and ruling is None else None
        if always is not None and await always.has(allowed):
            return approved
        question = " ".join(ask.question for ask in asks) or f"Run {call.name}?"
        ticket = await self._ask(call, question, may_always=always is not None)
        if not ticket.allowed:
            why = f" ({ticket.by})" if ticket.by in NOT_ANSWERED else ""
            return f"{call.name} was not approved by the owner{why}"
        if ticket.always and always is not None:
            await self._keep(always, allowed)
        return approved

    async def _review(self, proposal: Proposal) -> Review:
        """Return the tool's judgement of the call; if it fails, the call is refused."""
        if type(proposal.tool).review is Tool.review:
            return Review()
        call = proposal.call
        try:
            return await run_bounded(
                self._hooks.runtime.spawn,
                result_of(lambda: proposal.tool.review(proposal.context, dict(call.arguments))),
                limit_s=REVIEW_LIMIT_S,
                name=f"review:{call.name}",
            )
        except ToolError as error:
            return Review(decision=Deny(str(error)))
        except TimeoutError:
            reason = f"its tool did not judge it within {REVIEW_LIMIT_S:g} s"
            return Review(decision=Deny(reason))

    def _ruling(self, proposal: Proposal, review: Review) -> str | None:
        """Return the action of the first rule that matches."""
        sender = self._turn.sender_id
        for rule in self._policy.rules:
            if (
                _names_tool(rule, proposal.entry)
                and rule.channel in {None, self._turn.channel}
                and rule.sender in {None, sender, sender.partition("|")[0]}
                and not (rule.action == "allow" and rule.sender is None and self._is_guest)
                and all(
                    _matches(rule, glob, _values(argument, proposal.call.arguments, review))
                    for argument, glob in rule.arguments.items()
                )
            ):
                return rule.action
        return None

    @property
    def _is_guest(self) -> bool:
        return self._turn.source != "plugin" and not self._turn.is_owner

    async def _ask(self, call: ToolCall, question: str, *, may_always: bool) -> Ticket:
        """Ask the owner; the answer is no if no one can be asked or answers in time."""
        request = ApprovalRequested(
            turn=self._turn,
            id=uuid4().hex[:8],
            call=call,
            question=question,
            may_always=may_always,
        )
        ticket = None
        by = NO_ONE
        if self._hooks.choose_approval:
            try:
                ticket = await run_bounded(
                    self._hooks.runtime.spawn,
                    self._hooks.choose_approval(request),
                    limit_s=self._policy.timeout_s,
                    name=f"approval:{request.id}",
                )
            except TimeoutError:
                by = NO_ANSWER
        ticket = ticket or Ticket(False, by)
        if self._hooks.after_approval:
            self._hooks.after_approval(
                ApprovalResolved(
                    turn=self._turn,
                    id=request.id,
                    call=call,
                    allowed=ticket.allowed,
                    by=ticket.by,
                )
            )
        return ticket

    async def _keep(self, always: AlwaysAllowed, allowed: AllowedCall) -> None:
        try:
            await always.add(allowed)
        except OSError as error:
            from loguru import logger

            logger.warning(
                "cannot keep the permission, so the same call needs approval again: {}", error
            )


def _names_tool(rule: ApprovalRule, entry: RegisteredTool) -> bool:
    """Whether a rule applies to a tool.

    A rule that denies or asks also matches the name in the plugin's code, so that another plugin
    cannot remove a tool from the rule by taking its short name. A rule that allows matches only
    the name that the model uses.
    """
    full = f"{entry.plugin}/{entry.own_name}"
    names = {entry.definition.name, full}
    if rule.action != "allow":
        names.add(entry.own_name)
    return any(fnmatchcase(name, rule.tool) for name in names)


def _values(argument: str, arguments: JsonObject, review: Review) -> Sequence[str] | None:
    if argument in review.values:
        return review.values[argument]
    return (_text(arguments[argument]),) if argument in arguments else ()


def _matches(rule: ApprovalRule, glob: str, values: Sequence[str] | None) -> bool:
    """Whether `values` match; of several, ``allow`` needs all."""
    if values is None:
        return rule.action != "allow"
    found = [fnmatchcase(value, glob) for value in values]
    return bool(found) and (all(found) if rule.action == "allow" else any(found))


def _text(value: JsonValue) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
