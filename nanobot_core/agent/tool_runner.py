"""Tool calls of one response: prepare, authorise, run in time, shorten and record each of them."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Sequence
from dataclasses import replace

from nanobot_core.agent.approval import Approver, Proposal
from nanobot_core.agent.results import call_hint, normalise_output, result_of
from nanobot_core.agent.run import AgentRunSpec
from nanobot_core.clock import Clock
from nanobot_core.contracts.tool import Tool, ToolContext, ToolResult
from nanobot_core.errors import HookError, PluginError, ToolError, ToolTimeout
from nanobot_core.events import (
    ProgressMade,
    ToolBatchStarted,
    ToolCallFinished,
    ToolCallStarted,
    ToolOutcome,
    ToolResultReady,
)
from nanobot_core.messages import (
    CHANGED_BY,
    Content,
    ImageBlock,
    JsonValue,
    Message,
    OutboundMessage,
    TextBlock,
    ToolCall,
    content_text,
)
from nanobot_core.record import dataclass
from nanobot_core.tasks import StillRunning, run_bounded
from nanobot_core.tools.registry import RegisteredTool, with_hint

SPOKE = "spoke"
"""Mark in `Message.extra` of the result of a call that has sent a message to the turn's chat."""


@dataclass(frozen=True, slots=True)
class _Ready:
    """A call whose tool is loaded and whose arguments are valid, or the error for the model."""

    call: ToolCall
    entry: RegisteredTool | None
    tool: Tool | None
    error: str | None


class ToolRunner:
    """Runs the tool calls of one agent run.

    Attributes:
        spec: the run; replaced when the tools change.
    """

    def __init__(self, spec: AgentRunSpec, clock: Clock, approver: Approver) -> None:
        self.spec: AgentRunSpec = spec
        self._clock = clock
        self._approver = approver
        self._repeats: dict[str, tuple[int, int]] = {}
        self._spoke: set[str] = set()
        self.is_stuck: bool = False
        """A call was refused as a repetition as many times as it had run."""

    async def run_batch(self, calls: Sequence[ToolCall], iteration: int) -> list[Message]:
        """Run `calls` and return their results in the same order.

        Neighbours that are safe together run concurrently, everything else alone. Each
        result is recorded as soon as it is known.

        Args:
            calls: calls of one response, ids unique.
            iteration: number of the model call that asked for them.
        """
        hooks = self.spec.hooks
        if hooks.before_execute_tools:
            await hooks.before_execute_tools(
                ToolBatchStarted(turn=self.spec.turn, iteration=iteration, calls=tuple(calls))
            )
        ready = [await self._prepare(call) for call in calls]
        results: list[Message] = []
        for group in _groups(ready):
            results.extend(await self._run_side_by_side(group))
        return results

    async def _run_side_by_side(self, group: Sequence[_Ready]) -> list[Message]:
        if len(group) == 1:
            return [await self._run_one(group[0])]
        slots = asyncio.Semaphore(self.spec.max_parallel)

        async def in_slot(item: _Ready) -> Message:
            async with slots:
                return await self._run_one(item)

        try:
            async with asyncio.TaskGroup() as tasks:
                running = [tasks.create_task(in_slot(item)) for item in group]
        except ExceptionGroup as errors:
            # Tools raise nothing: this is the first failure to record or report a result.
            raise errors.exceptions[0] from errors
        return [task.result() for task in running]

    async def _prepare(self, call: ToolCall) -> _Ready:
        if call.unparsed is not None:
            shown = call.unparsed[:200]
            error = f"Error: the arguments of {call.name} are not a JSON object: {shown}"
            return _Ready(call, None, None, with_hint(error))
        entry = self.spec.tools.get(call.name)
        try:
            # Loaded before the arguments are checked, because the first check imports modules too.
            tool = await entry.tool() if entry else None
        except PluginError as error:
            return _Ready(call, entry, None, with_hint(f"Error: {error}"))
        prepared = self.spec.tools.prepare_call(call.name, call.arguments)
        return _Ready(replace(call, arguments=prepared.params), prepared.tool, tool, prepared.error)

    async def _run_one(self, ready: _Ready) -> Message:
        call, spec = ready.call, self.spec
        started = time.perf_counter()
        await spec.on_event(ToolCallStarted(call=call, hint=call_hint(call.name, call.arguments)))
        result = await self._result_of(ready)
        outcome, changed_by = await self._outcome(ready, result)
        message = self._message(call, result, outcome, changed_by)
        await spec.record([message], ())
        if result.media:
            await self._send_media(call, result.media)
        elapsed_s = time.perf_counter() - started
        event = ToolCallFinished(turn=spec.turn, call=call, result=outcome, duration_s=elapsed_s)
        if spec.hooks.after_execute_tool:
            spec.hooks.after_execute_tool(event)
        await spec.on_event(event)
        return message

    async def _send_media(self, call: ToolCall, media: tuple[str, ...]) -> None:
        """Send a tool's files to the user; without a chat they stay on disk."""
        turn = self.spec.turn
        message = OutboundMessage(
            channel=turn.channel,
            chat_id=turn.chat_id,
            content="",
            media=media,
            idempotency_key=f"{turn.session_key}/{call.id}/media",
        )
        try:
            await self.spec.send(message)
        except ToolError as error:
            from loguru import logger

            logger.bind(session=turn.session_key, turn=turn.id).warning(
                "cannot send the files of a tool: {}", error
            )

    async def _result_of(self, ready: _Ready) -> ToolResult:
        key = _signature(ready.call)
        if self._repeated_too_often(key):
            text = (
                f"Error: {ready.call.name} was called {self.spec.max_repeats} times with the "
                "same arguments and the same result; it was not run again"
            )
            return ToolResult(with_hint(text), is_error=True)
        result = await self._allowed_result(ready)
        self._remember(key, hash(result.content))
        return result

    async def _allowed_result(self, ready: _Ready) -> ToolResult:
        """Return the result of the call, or why it must not or cannot run."""
        if ready.error is not None or ready.entry is None or ready.tool is None:
            return ToolResult(ready.error or "", is_error=True)
        context = self._context(ready.call)
        verdict = await self._approver.decide(
            Proposal(ready.call, ready.entry, ready.tool, context), self.spec.tools
        )
        if isinstance(verdict, str):
            return ToolResult(with_hint(f"Error: {verdict.removeprefix('Error: ')}"), is_error=True)
        if verdict.paths:
            context = replace(context, files=context.files.granting(verdict.paths))
        return await self._execute(ready.tool, verdict.call, context, ready.entry.plugin)

    async def _execute(
        self, tool: Tool, call: ToolCall, context: ToolContext, plugin: str
    ) -> ToolResult:
        limit_s = tool.timeout_s or self.spec.tool_timeout_s

        async def run() -> ToolResult:
            return normalise_output(call.name, await tool.execute(context, dict(call.arguments)))

        try:
            return await run_bounded(
                self.spec.hooks.runtime.spawn,
                result_of(run),
                limit_s=limit_s,
                name=f"tool:{call.name}",
            )
        except ToolError as error:
            if error.__cause__ is not None:
                from loguru import logger

                # The model gets a sentence; the author of the tool needs the line.
                bound = logger.bind(
                    plugin=plugin, session=context.session_key, turn=context.turn_id
                )
                bound.opt(exception=error.__cause__).debug("tool '{}' failed", call.name)
            return _failed(call, str(error))
        except StillRunning:
            reason = (
                f"it did not finish within {limit_s:g} seconds and cannot be stopped; "
                "it may still take effect"
            )
            return _failed(call, reason)
        except TimeoutError:
            return _failed(call, str(ToolTimeout(call.name, limit_s)))

    async def _outcome(
        self, ready: _Ready, result: ToolResult
    ) -> tuple[ToolOutcome, list[JsonValue]]:
        """Return the result as hooks left it, shortened if it is too long, and who changed it."""
        changed_by: list[JsonValue] = []
        origin = ready.entry.origin if ready.entry else None
        outcome = ToolOutcome(
            text=self.spec.redact(content_text(result.content)),
            is_error=result.is_error,
            origin=origin,
        )
        hooks = self.spec.hooks
        if hooks.rewrite_tool_result:
            event = ToolResultReady(turn=self.spec.turn, call=ready.call, result=outcome)
            try:
                outcome, changed_by = await hooks.rewrite_tool_result.traced(event)
            except HookError as error:
                outcome = ToolOutcome(text=f"Error: result withheld: {error}", is_error=True)
            outcome = replace(outcome, origin=origin)
        own = ready.tool.max_result_chars if ready.tool else None
        max_chars = min(own or self.spec.max_tool_result_chars, self.spec.max_tool_result_chars)
        if len(outcome.text) <= max_chars:
            return outcome, changed_by
        try:
            text = await asyncio.to_thread(
                self.spec.results.bounded,
                outcome.text,
                max_chars,
                self.spec.turn.session_key,
                ready.call.id,
            )
        except OSError as error:
            kept = outcome.text[:max_chars]
            text = f"{kept}\n[shortened; the whole text could not be stored: {error.strerror}]"
        return replace(outcome, text=text), changed_by

    def _message(
        self,
        call: ToolCall,
        result: ToolResult,
        outcome: ToolOutcome,
        changed_by: list[JsonValue],
    ) -> Message:
        return Message(
            role="tool",
            content=_with_images(result, outcome),
            tool_call_id=call.id,
            name=call.name,
            origin=outcome.origin,
            is_error=outcome.is_error,
            timestamp=self._clock.now(),
            extra={
                **({SPOKE: True} if call.id in self._spoke else {}),
                **({CHANGED_BY: changed_by} if changed_by else {}),
            },
        )

    def _context(self, call: ToolCall) -> ToolContext:
        turn = self.spec.turn

        async def progress(text: str) -> None:
            await self.spec.on_event(ProgressMade(text=text))

        async def send(message: OutboundMessage) -> None:
            await self.spec.send(message)
            if message.content and (message.channel, message.chat_id) == (
                turn.channel,
                turn.chat_id,
            ):
                self._spoke.add(call.id)

        return ToolContext(
            session_key=turn.session_key,
            turn_id=turn.id,
            call_id=call.id,
            channel=turn.channel,
            chat_id=turn.chat_id,
            sender_id=turn.sender_id,
            is_owner=turn.is_owner,
            message_id=turn.message_id,
            requester=turn.requester,
            assignment=turn.assignment,
            memory=turn.memory,
            workspace=self.spec.files.workspace,
            files=self.spec.files,
            clock=self._clock,
            progress=progress,
            send=send,
        )

    def _repeated_too_often(self, key: str) -> bool:
        """Return whether a call would be one repetition too many, and count it if so."""
        result, count = self._repeats.get(key, (0, 0))
        if count < self.spec.max_repeats:
            return False
        self._repeats[key] = (result, count + 1)
        self.is_stuck = self.is_stuck or count + 1 >= 2 * self.spec.max_repeats
        return True

    def _remember(self, key: str, result: int) -> None:
        former, count = self._repeats.get(key, (0, 0))
        self._repeats[key] = (result, count + 1 if result == former else 1)


def _groups(ready: Sequence[_Ready]) -> list[list[_Ready]]:
    """Split calls into runs of neighbours that may run concurrently; order is kept."""
    groups: list[list[_Ready]] = []
    joinable = False
    for item in ready:
        safe = item.tool is not None and item.tool.concurrency_safe
        if safe and joinable:
            groups[-1].append(item)
        else:
            groups.append([item])
        joinable = safe
    return groups


def _failed(call: ToolCall, reason: str) -> ToolResult:
    return ToolResult(with_hint(f"Error: {call.name} failed: {reason}"), is_error=True)


def _signature(call: ToolCall) -> str:
    arguments = json.dumps(call.arguments, sort_keys=True, default=str)
    return f"{call.name} {arguments} {call.unparsed or ''}"


def _with_images(result: ToolResult, outcome: ToolOutcome) -> Content:
    """Return the outcome's text, with the result's images unless a hook withheld it."""
    if isinstance(result.content, str) or outcome.is_error:
        return outcome.text
    images = [block for block in result.content if isinstance(block, ImageBlock)]
    return (TextBlock(outcome.text), *images) if images else outcome.text
