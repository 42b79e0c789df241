"""One turn: load and repair the history, store the message, run the agent, store the reply."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import takewhile
from typing import TYPE_CHECKING

from nanobot_core.agent.request import RequestParts, quoted, with_attachments
from nanobot_core.agent.run import AgentRunResult, AgentRunSpec, ModelChoice
from nanobot_core.agent.shortening import input_budget, room_of
from nanobot_core.agent.tool_runner import SPOKE
from nanobot_core.contracts.tool import no_chat
from nanobot_core.errors import SessionError, ToolError
from nanobot_core.events import (
    AssignmentFinished,
    MessageSent,
    NoticeGiven,
    StructuredOutcome,
    TurnInfo,
    TurnOutcome,
    TurnStarted,
)
from nanobot_core.hooks.caller import Hooks
from nanobot_core.ids import new_id
from nanobot_core.messages import (
    PASSAGES,
    RUNTIME,
    InboundMessage,
    JsonObject,
    JsonValue,
    Message,
    OutboundMessage,
    ToolCall,
)
from nanobot_core.sessions.history import (
    STEERED,
    Resumption,
    align,
    open_calls,
    resume,
    storable,
    unknown_outcome,
)
from nanobot_core.sessions.session import Session, Sessions
from nanobot_core.tools.registry import ToolRegistry
from nanobot_core.turns.assigned import as_report, report_form
from nanobot_core.turns.commands import Commands
from nanobot_core.turns.failure import error_of, outcome_of
from nanobot_core.turns.locks import SessionLocks
from nanobot_core.turns.memory import SessionMemory, memory_of
from nanobot_core.turns.reach import TurnTools
from nanobot_core.turns.recorder import STORED_RESULT_CHARS, TurnRecorder, keep_compaction
from nanobot_core.turns.request import TurnPorts, TurnRequest
from nanobot_core.turns.setup import TurnSetup
from nanobot_core.turns.speech import Transcribe, with_speech

if TYPE_CHECKING:
    from nanobot_core.agent.tokens import TokenEstimator
    from nanobot_core.assignment import Assignment
    from nanobot_core.clock import Clock
    from nanobot_core.contracts.plugin import ContextBlock
    from nanobot_core.plugins.host import PluginHost
    from nanobot_core.plugins.table import Generation

UNKNOWN_COMMAND = "This command is no longer available."
DEFAULT_OVERHEAD = 4_000
"""Estimated tokens of system prompt and tools until a turn has measured them."""
RUN_HOOKS_DRAIN_S = 5.0
"""Seconds that hooks of a single turn have to process its last events."""


@dataclass(frozen=True, slots=True)
class _Turn:
    """A turn and its parts."""

    request: TurnRequest
    info: TurnInfo
    choice: ModelChoice
    hooks: Hooks
    tools: TurnTools
    session: Session
    start: Resumption
    recorder: TurnRecorder
    sent: list[OutboundMessage] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class TurnPipeline:
    """Runs turns; those of one session one after another, others concurrently.

    Attributes:
        setup: what turns take from the configuration.
        host: plugins with their hooks and tools.
        sessions: durable histories.
        locks: order the turns of a session.
        commands: slash commands.
        clock: source of time.
        redact: removes secrets from a text.
        ports: what the gateway provides.
        memory: recall across sessions.
        transcribe: turns a recording into text, or ``None``.
    """

    setup: TurnSetup
    host: PluginHost
    sessions: Sessions
    locks: SessionLocks
    commands: Commands
    clock: Clock
    redact: Callable[[str], str]
    memory: SessionMemory
    ports: TurnPorts = field(default_factory=TurnPorts)
    transcribe: Transcribe | None = None
    _overhead: int = field(default=DEFAULT_OVERHEAD, init=False)

    def reconfigure(self, setup: TurnSetup) -> None:
        """Use `setup` from the next turn on."""
        self.setup = setup

    async def process(self, request: TurnRequest) -> TurnOutcome:
        """Answer one message. Failures become an outcome with a sentence for the user.

        A control command is answered at once; another message waits for the turns of its session.

        Cancellation:
            The agent is stopped, its work so far is stored in valid form, hooks get a cancelled
            outcome, and the cancellation is passed on. No `TurnOutcome` follows.
        """
        turn = self.turn_of(request)
        if request.refusal:
            return TurnOutcome(turn=turn, reply=None, stop_reason="failed", error=request.refusal)
        if request.message.is_control:
            return await self._answer_command(request, turn)
        async with self.locks.hold(turn.session_key), self.host.snapshot() as generation:
            outcome = await self._take_turn(request, turn, generation)
        await request.on_event(outcome)
        return outcome

    def turn_of(self, request: TurnRequest) -> TurnInfo:
        """Return the turn of a request."""
        message, scope = request.message, self.setup.settings.memory.scope
        source = message.assignment.source if message.assignment else request.source
        return TurnInfo(
            id=new_id(),
            session_key=message.session_key,
            channel=message.channel,
            chat_id=message.chat_id,
            sender_id=message.sender_id,
            source=source,
            message_id=message.dedupe_key if message.assignment is None else None,
            is_owner=request.is_owner,
            memory=memory_of(message, source, scope, is_owner=request.is_owner),
            is_group=message.is_group,
            assignment=message.assignment,
            tools=request.tools,
            folder=request.folder,
        )

    async def report_end(self, assignment: Assignment, outcome: TurnOutcome) -> None:
        """Report the end of work to the plugins."""
        async with self.host.snapshot() as generation:
            if generation.hooks.after_assignment:
                event = AssignmentFinished(assignment=assignment, outcome=outcome)
                await generation.hooks.after_assignment(event)

    async def note(self, message: InboundMessage, text: str) -> None:
        """Add what work has sent to a chat to the session of that chat, for later questions."""
        given = message.assignment
        if given is None or given.requester.session_key == message.session_key:
            return
        key = given.requester.session_key
        async with self.locks.hold(key):
            session = await self.sessions.open(key)
            if session.state.checkpoint is not None:
                return  # between a call and its result, where an interrupted turn continues
            if any(known.inbound_id == message.id for known in session.messages):
                return
            lead = f"(You wrote this without being asked: {given.label}.)"
            now = self.clock.now()
            await self.sessions.append(
                session,
                Message(role="user", content=lead, timestamp=now, inbound_id=message.id),
                Message(role="assistant", content=text, timestamp=now),
            )

    async def _take_turn(
        self, request: TurnRequest, turn: TurnInfo, generation: Generation
    ) -> TurnOutcome:
        started, hooks = time.perf_counter(), self.hooks_for(request, generation)
        outcome = TurnOutcome(turn=turn, reply=None, stop_reason="cancelled")
        try:
            work = self._answer(request, turn, hooks, generation)
            outcome = await outcome_of(turn, hooks, work)
        finally:
            outcome = replace(outcome, duration_s=time.perf_counter() - started)
            if hooks.after_turn:
                hooks.after_turn(outcome)
        if request.hooks:
            await hooks.queues.drain(RUN_HOOKS_DRAIN_S)
        return outcome

    async def _answer_command(self, request: TurnRequest, turn: TurnInfo) -> TurnOutcome:
        async def answered() -> TurnOutcome:
            session = await self.sessions.open(turn.session_key)
            text = request.message.content
            reply = await self.commands.answer(text, turn, session, is_owner=request.is_owner)
            # The plugin of the command may have been disabled after the message arrived.
            return TurnOutcome(turn=turn, reply=UNKNOWN_COMMAND if reply is None else reply)

        async with self.host.snapshot() as generation:
            return await outcome_of(turn, generation.hooks, answered())

    async def delete_session(self, key: str) -> bool:
        """Delete a session for good; False if it does not exist.

        Raises:
            SessionError: a turn of it is under way, or the store cannot delete it.
        """
        if self.locks.is_held(key):
            raise SessionError(key, "a turn is under way; stop it with /stop and try again")
        async with self.locks.hold(key):
            self.locks.discard(key)
            return await self.sessions.delete(key)

    def hooks_for(self, request: TurnRequest, generation: Generation) -> Hooks:
        """Return the call points of a turn, its own hooks included."""
        hooks = generation.hooks
        for extra in request.hooks:
            hooks = hooks.extended(extra.implementations(self.clock))
        return hooks

    async def _answer(
        self, request: TurnRequest, turn: TurnInfo, hooks: Hooks, generation: Generation
    ) -> TurnOutcome:
        session = await self.sessions.open(turn.session_key, wait_for_room=request.is_queued)
        tools = TurnTools(generation, self.setup.settings.tools, turn, hooks)
        choice = await self._choice(request, session)
        start = self._resumed(request, session, generation.tools)
        if is_resumed := start is not None:
            if start.is_done:
                reply = start.answer.text if start.answer else None
                return TurnOutcome(turn=turn, reply=reply, has_spoken=_has_spoken(start.progress))
        else:
            await self._recover(request, turn, hooks, session, tools, choice)
            text = request.message.content
            if turn.assignment is None:
                reply = await self.commands.answer(text, turn, session, is_owner=request.is_owner)
                if reply is not None:
                    return TurnOutcome(turn=turn, reply=reply)
            self.setup.models.warm_up(choice.name)
            await self.memory.make_room(session, turn, *self._room(choice))
            message = await self._stored_form(request.message, turn)
            start = Resumption(message=message, before=align(session.messages))
        recorder = TurnRecorder(self.sessions, session, turn, request.on_event, self.redact)
        work = _Turn(request, turn, choice, hooks, tools, session, start, recorder)
        try:
            if is_resumed:
                await self._report_unknown(request, start.interrupted)
                await recorder.go_on(request.message.id, start.interrupted)
            else:
                await recorder.begin(start.message, is_queued=request.is_queued)
            if hooks.before_turn:
                await hooks.before_turn(TurnStarted(turn=turn, message=start.message))
            result = self._with_passages(await self._run(work), session.key)
            if _may_withhold(turn):
                result = as_report(result)
            await recorder.end(result.messages[-1])
        except BaseException as error:
            is_cancelled = isinstance(error, asyncio.CancelledError)
            if not (is_cancelled and request.is_retried()):
                await recorder.break_off(stopped=is_cancelled)
            raise
        since = (*start.progress, *result.messages)
        archive = partial(self.memory.archive, session, turn)
        compaction, before = result.compaction, start.before
        await keep_compaction(self.sessions, session, compaction, before, since, archive)
        self.memory.consolidate_later(session, turn, *self._room(choice))
        return _outcome(work, result, since)

    def _with_passages(self, result: AgentRunResult, session_key: str) -> AgentRunResult:
        """Return a result whose answer names the passages that plugins added to its request."""
        if not (passages := list[JsonValue](self.setup.requests.report.passages(session_key))):
            return result
        *others, answer = result.messages
        extra = {**answer.extra, PASSAGES: passages}
        return replace(result, messages=(*others, replace(answer, extra=extra)))

    async def _stored_form(
        self, message: InboundMessage, turn: TurnInfo, *, is_steered: bool = False
    ) -> Message:
        """Return a user's message as the history keeps it."""
        text = self.redact(await with_speech(message, self.transcribe))
        is_quoted = message.is_forwarded or (message.is_group and not turn.is_owner)
        extra: JsonObject = {STEERED: True}
        if not is_steered:
            workspace = (await self.setup.reach.guard_for(turn)).workspace
            lines = self.setup.requests.runtime_lines(turn, workspace, is_quoted=is_quoted)
            extra = {RUNTIME: lines}
        return Message(
            role="user",
            content=with_attachments(quoted(text) if is_quoted else text, message.media),
            timestamp=message.timestamp or self.clock.now(),
            inbound_id=message.id or None,
            extra=extra,
        )

    def _resumed(
        self, request: TurnRequest, session: Session, tools: ToolRegistry
    ) -> Resumption | None:
        """Return how to continue a turn that a previous process began, or ``None``."""
        if not request.is_queued:  # only the message queue retries a message
            return None
        may_repeat = partial(self._may_repeat, session.key, tools)
        return resume(session.stored, request.message.id, may_repeat)

    def _may_repeat(self, session_key: str, tools: ToolRegistry, call: ToolCall) -> bool:
        """Whether a call can run again: it does no harm, or was still waiting for the owner."""
        entry = tools.get(call.name)
        is_idempotent = entry is not None and entry.declared.idempotent
        return is_idempotent or self.ports.awaits_approval(session_key, call.id)

    async def _choice(self, request: TurnRequest, session: Session) -> ModelChoice:
        """Return the model of the turn: the request's, the session's, or the configured one."""
        given = request.message.assignment
        name = request.model or (given and given.model) or _text(session.state.metadata, "model")
        return await self.setup.models.choice(name)

    async def run_spec(
        self, turn: TurnInfo, hooks: Hooks, tools: TurnTools, choice: ModelChoice
    ) -> AgentRunSpec:
        """Return a run of the agent for a turn, without messages."""
        files = await self.setup.reach.guard_for(turn)
        spec = self.setup.run_spec(turn, hooks, await tools.offered(), files, choice)
        most = turn.assignment.max_iterations if turn.assignment else None
        return replace(
            spec,
            redact=self.redact,
            newer_tools=tools.newer,
            max_iterations=min(most or spec.max_iterations, spec.max_iterations),
        )

    async def _run(self, work: _Turn) -> AgentRunResult:
        metadata, start, choice = work.session.state.metadata, work.start, work.choice
        spec = await self.run_spec(work.info, work.hooks, work.tools, choice)
        messages = await self.setup.requests.build(
            RequestParts(
                turn=work.info,
                message=start.message,
                history=start.before,
                progress=start.progress,
                media=work.request.message.media,
                documents=choice.documents,
                model=choice.name or "",
                tools=tuple(spec.tools),
                withheld=work.tools.withheld,
                summary=_text(metadata, "summary") or "",
                memory=await self._memory_of(work),
                format_hint=self.ports.format_hint(work.info.channel),
                workspace=spec.files.workspace,
                budget_tokens=input_budget(choice.context_window_tokens, choice.max_tokens),
            ),
            work.hooks,
        )
        estimator = self.setup.runner.estimator
        tools = estimator.count_tools(spec.tools.get_definitions())
        self._overhead = estimator.count_all(messages[:1]) + tools
        return await self.setup.runner.run(
            replace(
                spec,
                messages=messages,
                output=report_form() if _may_withhold(work.info) else work.request.output,
                pending=start.repeat,
                more=partial(self._said_meanwhile, work),
                send=partial(self._send, work) if _may_send(work.info) else no_chat,
                on_event=work.recorder.watch,
                record=work.recorder.record,
            )
        )

    async def _memory_of(self, work: _Turn) -> Sequence[ContextBlock]:
        """Return the passages of memory, unless the turn has instructions of its own."""
        if (given := work.info.assignment) and given.instructions is not None:
            return ()
        return await self.memory.passages(work.info, work.request.message.content)

    async def _said_meanwhile(self, work: _Turn) -> Sequence[Message]:
        """Return the messages that arrived for the session, as the turn stores them."""
        # After a crash the turn already has some, and receives them again to acknowledge them.
        known = {message.inbound_id for message in work.session.messages}
        arrived = [message for message in await work.request.more() if message.id not in known]
        return [await self._stored_form(message, work.info, is_steered=True) for message in arrived]

    async def _send(self, work: _Turn, message: OutboundMessage) -> None:
        """Send the message of a tool; one to a terminal or a program goes to its event sink."""
        own = (message.channel, message.chat_id) == (work.info.channel, work.info.chat_id)
        if own and not work.request.is_queued and work.info.assignment is None:
            await work.request.on_event(MessageSent(message=message))
        else:
            await self.ports.send(message)
        work.sent.append(message)

    async def _recover(
        self,
        request: TurnRequest,
        turn: TurnInfo,
        hooks: Hooks,
        session: Session,
        tools: TurnTools,
        choice: ModelChoice,
    ) -> None:
        """Give calls that a crash interrupted a result, so that the history is valid.

        In a terminal, where the same person asks again, harmless ones run again.
        """
        if session.state.checkpoint is None:
            return
        calls = open_calls(session.stored)
        spec = await self.run_spec(turn, hooks, tools, choice)
        again = [
            call
            for call in calls
            if request.source == "cli" and self._may_repeat(session.key, spec.tools, call)
        ]
        results = [unknown_outcome(call) for call in calls if call not in again]
        await self._report_unknown(request, results)
        if again:
            run = replace(spec, on_event=request.on_event)
            results += await self.setup.runner.run_calls(run, again)
        await self.sessions.append(
            session,
            *(storable(result, STORED_RESULT_CHARS) for result in results),
            checkpoint=None,
            wait_for_room=request.is_queued,
        )

    async def _report_unknown(self, request: TurnRequest, results: Sequence[Message]) -> None:
        """Report calls that may have taken effect; before they are stored, hence only once."""
        if not results:
            return
        message = request.message
        names = ", ".join(dict.fromkeys(result.name or "" for result in results))
        text = f"The last turn was interrupted; these calls may have taken effect: {names}"
        if not request.is_queued:
            await request.on_event(NoticeGiven(text=text))
            return
        notice = OutboundMessage(
            channel=message.channel,
            chat_id=message.chat_id,
            content=text,
            kind="notice",
            idempotency_key=f"{message.session_key}/{results[0].tool_call_id}/unknown",
        )
        try:
            await self.ports.send(notice)
        except ToolError as error:
            from loguru import logger

            logger.bind(session=message.session_key).warning("{}; not sent: {}", text, error)

    def _room(self, choice: ModelChoice) -> tuple[TokenEstimator, int]:
        """Return what counts tokens, and how many a history may have until a run shortens it."""
        return self.setup.runner.estimator, max(room_of(choice) - self._overhead, 0)


def _may_withhold(turn: TurnInfo) -> bool:
    """Whether the model decides if its answer is sent."""
    return turn.assignment is not None and turn.assignment.delivery == "when_notable"


def _may_send(turn: TurnInfo) -> bool:
    """Whether tools may send messages: not in work whose answer may not be sent either."""
    return turn.assignment is None or turn.assignment.delivery == "always"


def _outcome(work: _Turn, result: AgentRunResult, since: Sequence[Message]) -> TurnOutcome:
    make: Callable[..., TurnOutcome] = TurnOutcome
    if result.output is not None:
        make = partial(StructuredOutcome, output=result.output)
    return make(
        turn=work.info,
        reply=result.content,
        has_spoken=_has_spoken(since),
        outbound=tuple(work.sent),
        usage=result.usage,
        iterations=result.iterations,
        tools_used=result.tools_used,
        stop_reason=result.stop_reason,
        error=error_of(result, work.request.output),
        model=result.model,
        findings=result.findings,
    )


def _has_spoken(messages: Sequence[Message]) -> bool:
    """Return whether a tool has written to the chat since a person did, who may steer the turn."""
    since = takewhile(lambda message: message.role != "user", reversed(messages))
    return any(message.extra.get(SPOKE) is True for message in since)


def _text(metadata: Mapping[str, object], key: str) -> str | None:
    value = metadata.get(key)
    return value if isinstance(value, str) and value else None
