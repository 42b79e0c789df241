"""What a session reports to the editor: the events of a turn, and the history."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import TypeAlias

from acp import schema

from nanobot_acp.calls import (
    Before,
    kind_of,
    locations_of,
    read_before,
    text_content,
)
from nanobot_core import (
    Message,
    MessageSent,
    NoticeGiven,
    OutboundMessage,
    ProgressMade,
    RunEvent,
    StreamRestarted,
    TextStreamed,
    ToolCall,
    ToolCallFinished,
    ToolCallStarted,
    TurnOutcome,
)

Update: TypeAlias = (
    schema.UserMessageChunk
    | schema.AgentMessageChunk
    | schema.AgentThoughtChunk
    | schema.ToolCallStart
    | schema.ToolCallProgress
    | schema.AvailableCommandsUpdate
    | schema.ConfigOptionUpdate
)
Report: TypeAlias = Callable[[Update], Awaitable[None]]
"""Sends an update of one session to the editor."""


def message_chunk(text: str) -> schema.AgentMessageChunk:
    """Return a piece of an answer."""
    return schema.AgentMessageChunk(session_update="agent_message_chunk", content=_text(text))


def thought_chunk(text: str) -> schema.AgentThoughtChunk:
    """Return a piece of thinking."""
    return schema.AgentThoughtChunk(session_update="agent_thought_chunk", content=_text(text))


class TurnView:
    """Reports the events of one turn.

    Args:
        report: sends updates.
        folder: working folder of the turn.
    """

    def __init__(self, report: Report, folder: str) -> None:
        self._report = report
        self._folder = folder
        self._before: dict[str, Before] = {}
        self._written = ""
        """Text since the last tool call or restart."""
        self._is_apart = False
        """What comes next is not the continuation of what was written."""

    async def show(self, event: RunEvent) -> None:
        """Report an event."""
        match event:
            case TextStreamed():
                if event.reasoning:
                    await self._report(thought_chunk(event.reasoning))
                await self._write(event.text)
            case StreamRestarted():
                self._break()
            case ProgressMade():
                # Words that came with tool calls were streamed before, as a rule.
                if event.text.strip() not in self._written:
                    await self._report(thought_chunk(f"{event.text}\n\n"))
            case NoticeGiven():
                await self._report(thought_chunk(f"{event.text}\n\n"))
            case MessageSent():
                self._break()
                await self._write(_sent(event.message))
                self._break()
            case ToolCallStarted():
                await self._start(event.call, event.hint)
            case ToolCallFinished():
                await self._finish(event)
            case TurnOutcome():
                await self._end(event)

    async def _write(self, text: str) -> None:
        if not text:
            return
        lead = "\n\n" if self._is_apart else ""
        self._is_apart = False
        self._written += text
        await self._report(message_chunk(lead + text))

    def _break(self) -> None:
        self._is_apart = self._is_apart or bool(self._written)
        self._written = ""

    async def _start(self, call: ToolCall, hint: str) -> None:
        self._written, self._is_apart = "", False  # editors show a call apart
        self._before[call.id] = await asyncio.to_thread(read_before, call, self._folder)
        await self._report(call_start(call, self._folder, hint, "in_progress"))

    async def _finish(self, event: ToolCallFinished) -> None:
        before = self._before.pop(event.call.id, Before())
        content = [] if event.result.is_error else await asyncio.to_thread(before.changes)
        await self._report(
            schema.ToolCallProgress(
                session_update="tool_call_update",
                tool_call_id=event.call.id,
                status="failed" if event.result.is_error else "completed",
                content=[*content, text_content(event.result.text)],
            )
        )

    async def _end(self, outcome: TurnOutcome) -> None:
        """Write the rest of an answer, of which all, a part or nothing was streamed."""
        reply = "" if outcome.error else outcome.reply or ""
        if not reply.startswith(self._written.rstrip()):
            self._break()
        await self._write(reply[len(self._written) :])


def call_start(
    call: ToolCall, folder: str, title: str, status: schema.ToolCallStatus
) -> schema.ToolCallStart:
    """Return a call that the editor does not know yet."""
    return schema.ToolCallStart(
        session_update="tool_call",
        tool_call_id=call.id,
        title=title or call.name,
        kind=kind_of(call.name),
        status=status,
        locations=locations_of(call, folder),
        raw_input=call.arguments,
    )


def replayed(messages: Sequence[Message], folder: str) -> Iterator[Update]:
    """Yield the updates that show stored messages."""
    for message in messages:
        match message.role:
            case "user":
                yield schema.UserMessageChunk(
                    session_update="user_message_chunk", content=_text(message.text)
                )
            case "assistant":
                if message.reasoning:
                    yield thought_chunk(message.reasoning)
                if message.text:
                    yield message_chunk(message.text)
                for call in message.tool_calls:
                    yield call_start(call, folder, call.name, "pending")
            case "tool" if message.tool_call_id:
                yield schema.ToolCallProgress(
                    session_update="tool_call_update",
                    tool_call_id=message.tool_call_id,
                    status="failed" if message.is_error else "completed",
                    content=[text_content(message.text)],
                )
            case _:
                pass  # instructions


def _sent(message: OutboundMessage) -> str:
    files = [f"[{path.rpartition('/')[2]}]({path})" for path in message.media]
    return "\n\n".join(part for part in (message.content, *files) if part)


def _text(text: str) -> schema.TextContentBlock:
    return schema.TextContentBlock(type="text", text=text)
