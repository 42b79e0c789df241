"""One turn: history loaded and mended, message stored, agent run, reply stored."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, TypeVar
from uuid import uuid4

from nanobot_core.agent.loop import AgentRunner
from nanobot_core.agent.request import RequestBuilder, RequestParts, with_attachments
from nanobot_core.agent.run import AgentRunResult, AgentRunSpec, EventSink, ignore_event
from nanobot_core.agent.shortening import input_budget
from nanobot_core.errors import NanobotError, SessionError
from nanobot_core.events import (
    ErrorRaised,
    NoticeGiven,
    ToolsOffered,
    TurnFinished,
    TurnInfo,
    TurnOutcome,
    TurnSource,
    TurnStarted,
)
from nanobot_core.hooks.agent_hook import AgentHook
from nanobot_core.hooks.caller import Hooks
from nanobot_core.messages import InboundMessage, Message
from nanobot_core.sessions.history import align
from nanobot_core.sessions.order import KeyedLocks
from nanobot_core.sessions.recovery import resume
from nanobot_core.sessions.session import Session, Sessions
from nanobot_core.tools.registry import ToolRegistry
from nanobot_core.turns.commands import Commands
from nanobot_core.turns.recorder import TurnRecorder

if TYPE_CHECKING:
    from pathlib import Path

    from nanobot_core.clock import Clock
    from nanobot_core.config.models import Settings
    from nanobot_core.contracts.memory import MemoryBackend
    from nanobot_core.contracts.plugin import ContextBlock
    from nanobot_core.plugins.host import PluginHost

T = TypeVar("T")
UNKNOWN = "nobody knows whether these calls took effect"
RUN_HOOKS_DRAIN_S = 5.0
"""Seconds that hooks of a single turn have to hear its last events."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnRequest:
    """A message to answer.

    Attributes:
        message: the message.
        source: what started the turn.
        on_event: receives events as they happen, the outcome last.
        hooks: hooks of this turn alone.
        model: model instead of the configured one, or ``None``.
        is_owner: the sender may use the owner's commands.
    """

    message: InboundMessage
    source: TurnSource = "sdk"
    on_event: EventSink = ignore_event
    hooks: Sequence[AgentHook] = ()
    model: str | None = None
    is_owner: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class _Turn:
    """One turn at work."""

    request: TurnRequest
    info: TurnInfo
    hooks: Hooks
    session: Session
    message: Message
    history: Sequence[Message]
    recorder: TurnRecorder


@dataclass(slots=True)
class TurnPipeline:
    """Runs turns; those of one session one after another, others side by side.

    Attributes:
        settings: the configuration.
        workspace: the agent's folder, absolute.
        host: plugins with their hooks and tools.
        sessions: durable histories.
        runner: the agent.
        requests: builds requests.
        commands: slash commands.
        clock: source of time.
        memory: recall across sessions, or ``None``.
    """

    settings: Settings
    workspace: Path
    host: PluginHost
    sessions: Sessions
    runner: AgentRunner
    requests: RequestBuilder
    commands: Commands
    clock: Clock
    memory: MemoryBackend | None = None
    _order: KeyedLocks = field(default_factory=KeyedLocks)

    async def process(self, request: TurnRequest) -> TurnOutcome:
        """Answer one message. Failures become an outcome with a sentence for the user.

        Cancellation:
            The agent is stopped, what was said and done so far is stored in valid form, hooks are
            told of a cancelled turn, and the cancellation is passed on. No `TurnFinished` comes,
            because whoever cancels may no longer listen.
        """
        message = request.message
        turn = TurnInfo(
            id=uuid4().hex,
            session_key=message.session_key,
            channel=message.channel,
            chat_id=message.chat_id,
            sender_id=message.sender_id,
            source=request.source,
            message_id=message.dedupe_key,
        )
        started = time.perf_counter()
        async with self._order.hold(turn.session_key):
            hooks = self._hooks_for(request)
            try:
                outcome = await self._answer(request, turn, hooks)
            except asyncio.CancelledError:
                outcome = TurnOutcome(turn=turn, reply=None, stop_reason="cancelled")
                self._tell_end(outcome, hooks, started)
                raise
            except NanobotError as error:
                outcome = self._failed(turn, hooks, error)
            except Exception as error:  # noqa: BLE001 - isolation point: one turn never ends others
                outcome = self._failed(turn, hooks, error)
        outcome = self._tell_end(outcome, hooks, started)
        if request.hooks:
            await hooks.queues.drain(RUN_HOOKS_DRAIN_S)
        await request.on_event(TurnFinished(outcome=outcome))
        return outcome

    def _tell_end(self, outcome: TurnOutcome, hooks: Hooks, started: float) -> TurnOutcome:
        outcome = replace(outcome, duration_s=time.perf_counter() - started)
        if hooks.after_turn:
            hooks.after_turn(outcome)
        return outcome

    def _hooks_for(self, request: TurnRequest) -> Hooks:
        hooks = self.host.hooks
        for extra in request.hooks:
            hooks = hooks.extended(extra.implementations(self.clock))
        return hooks

    async def _answer(self, request: TurnRequest, turn: TurnInfo, hooks: Hooks) -> TurnOutcome:
        session = await self.sessions.open(turn.session_key)
        await self._recover(session, request.on_event)
        text = request.message.content
        reply = await self.commands.answer(text, turn, session, is_owner=request.is_owner)
        if reply is not None:
            return TurnOutcome(turn=turn, reply=reply)
        await self._consolidate(session)
        work = _Turn(
            request=request,
            info=turn,
            hooks=hooks,
            session=session,
            message=Message(
                role="user",
                content=with_attachments(text, request.message.media),
                timestamp=request.message.timestamp or self.clock.now(),
                inbound_id=request.message.id or None,
            ),
            history=align(session.messages),
            recorder=TurnRecorder(self.sessions, session, turn, request.on_event),
        )
        try:
            await work.recorder.begin(work.message)
            if hooks.before_turn:
                await hooks.before_turn(TurnStarted(turn=turn, message=work.message))
            result = await self._run(work)
            await work.recorder.end(result.messages[-1])
        except BaseException as error:
            await work.recorder.break_off(stopped=isinstance(error, asyncio.CancelledError))
            raise
        await self._keep_compaction(work, result)
        return _outcome(turn, result)

    async def _run(self, work: _Turn) -> AgentRunResult:
        defaults, tools = self.settings.agents.defaults, self.settings.tools
        metadata = work.session.state.metadata
        chosen = work.request.model or _text(metadata, "model") or defaults.model
        offered = await self._tools_for(work.info, work.hooks)
        messages = await self.requests.build(
            RequestParts(
                turn=work.info,
                message=work.message,
                history=work.history,
                media=work.request.message.media,
                model=chosen or "",
                summary=_text(metadata, "summary") or "",
                memory=await self._remembered(work.session.key),
            ),
            work.hooks,
        )
        return await self.runner.run(
            AgentRunSpec(
                turn=work.info,
                messages=messages,
                tools=offered,
                hooks=work.hooks,
                workspace=self.workspace,
                model=chosen,
                fallback_models=defaults.fallback_models,
                max_iterations=defaults.max_tool_iterations,
                max_tokens=defaults.max_tokens,
                context_window_tokens=defaults.context_window_tokens,
                temperature=defaults.temperature,
                reasoning_effort=defaults.reasoning_effort,
                stream=defaults.streaming,
                tool_timeout_s=tools.timeout_s,
                max_tool_result_chars=tools.max_tool_result_chars,
                max_parallel=tools.max_parallel,
                max_repeats=tools.max_repeats,
                on_event=work.recorder.watch,
                record=work.recorder.record,
            )
        )

    async def _tools_for(self, turn: TurnInfo, hooks: Hooks) -> ToolRegistry:
        """Return the tools of this turn: what the owner allows, less what hooks take away."""
        registry = await self.host.load_tools()
        rules = self.settings.tools
        names = [
            name
            for name in registry.names()
            if any(fnmatchcase(name, glob) for glob in rules.allow)
            and not any(fnmatchcase(name, glob) for glob in rules.deny)
        ]
        if len(names) != len(registry):
            registry = registry.narrowed(names)
        if not hooks.offer_tools:
            return registry
        offered = await hooks.offer_tools(ToolsOffered(turn=turn, tools=registry.get_definitions()))
        kept = {definition.name for definition in offered}
        return registry if len(kept) == len(registry) else registry.narrowed(kept)

    async def _recover(self, session: Session, on_event: EventSink) -> None:
        """Give calls that a crash interrupted their result, so that the history is whole."""
        if session.state.checkpoint is None:
            return
        found = resume(session.stored, lambda _call: False)
        results = found.interrupted if found else ()
        await self.sessions.append(session, *results, checkpoint=None)
        if results:
            names = ", ".join(dict.fromkeys(result.name or "" for result in results))
            await on_event(NoticeGiven(text=f"The last turn was interrupted; {UNKNOWN}: {names}"))

    async def _consolidate(self, session: Session) -> None:
        if self.memory is None:
            return
        defaults = self.settings.agents.defaults
        budget = input_budget(defaults.context_window_tokens, defaults.max_tokens)
        work = self.memory.consolidate(session.key, session.messages, budget)
        if taken := await self._spared(work, 0):
            await self.sessions.mark_consolidated(session, taken)

    async def _remembered(self, session_key: str) -> Sequence[ContextBlock]:
        return await self._spared(self.memory.context(session_key), ()) if self.memory else ()

    async def _spared(self, work: Awaitable[T], instead: T) -> T:
        """Return what memory gives; a memory that fails costs recall, never the answer."""
        try:
            return await work
        except Exception as error:  # noqa: BLE001 - isolation point
            from loguru import logger

            logger.warning("memory left out: {}: {}", type(error).__name__, error)
            return instead

    async def _keep_compaction(self, work: _Turn, result: AgentRunResult) -> None:
        """Keep a run's summary, so that the next turn need not summarise the same again.

        The run counted in its own request, which begins with a former summary, if there was one,
        and from which repair has left things out. What both sides have in common are the user's
        messages, so those that remain are counted from the end.
        """
        if result.compaction is None:
            return
        session, metadata = work.session, work.session.state.metadata
        gone = max(result.compaction.messages - bool(_text(metadata, "summary")), 0)
        remaining = 1 + sum(message.role == "user" for message in work.history[gone:])
        stored = session.messages
        places = [
            index
            for index, message in enumerate(stored)
            if message.role == "user" and align([message])
        ]
        try:
            await self.sessions.append(
                session, metadata={**metadata, "summary": result.compaction.summary}
            )
            if len(places) >= remaining:
                await self.sessions.mark_consolidated(session, places[-remaining])
        except SessionError as error:
            # The reply is stored; the next turn makes a summary of its own.
            from loguru import logger

            logger.bind(session=session.key).warning("summary not kept: {}", error)

    def _failed(self, turn: TurnInfo, hooks: Hooks, error: Exception) -> TurnOutcome:
        from loguru import logger

        error_id = uuid4().hex[:8]
        bound = logger.bind(session=turn.session_key, turn=turn.id)
        if isinstance(error, NanobotError):
            sentence = str(error)
            bound.opt(exception=error).debug("turn failed ({})", error_id)
            bound.error("turn failed ({}): {}", error_id, type(error).__name__)
        else:
            sentence = f"Something went wrong inside nanobot; the log has it under {error_id}"
            bound.opt(exception=error).error("turn failed ({})", error_id)
        if hooks.on_error:
            hooks.on_error(
                ErrorRaised(
                    id=error_id,
                    place="turn",
                    error_type=type(error).__name__,
                    message=str(error),
                    turn=turn,
                )
            )
        return TurnOutcome(
            turn=turn, reply=None, stop_reason="failed", error=sentence, error_id=error_id
        )


def _outcome(turn: TurnInfo, result: AgentRunResult) -> TurnOutcome:
    failed = result.stop_reason == "failed"
    return TurnOutcome(
        turn=turn,
        reply=result.content,
        usage=result.usage,
        iterations=result.iterations,
        tools_used=result.tools_used,
        stop_reason=result.stop_reason,
        error=result.content if failed else None,
        model=result.model,
    )


def _text(metadata: Mapping[str, object], key: str) -> str | None:
    value = metadata.get(key)
    return value if isinstance(value, str) and value else None
