"""What a chat sees while its message is worked on. It is not stored."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from nanobot_core.contracts.channel import Draft
from nanobot_core.errors import FOREIGN_ERRORS, BusError, NanobotError
from nanobot_core.events import (
    NoticeGiven,
    ProgressMade,
    StreamRestarted,
    TextStreamed,
    ToolCallStarted,
)
from nanobot_core.messages import OutboundKind, OutboundMessage
from nanobot_core.tasks import CONNECTION_END_S, run_bounded

if TYPE_CHECKING:
    from nanobot_core.channels.ports import ChannelPorts
    from nanobot_core.contracts.channel import Channel
    from nanobot_core.events import RunEvent
    from nanobot_core.messages import InboundMessage

SEND_LIMIT_S = 10.0
CLOSE_LIMIT_S = 5.0
LOOK_AGAIN_S = 0.2
MAX_LINES = 50
"""Lines of progress that wait for a slow platform; older ones are left out."""
TYPING_LIMIT_S = 600.0
"""Seconds after which a typing sign is not credible any more."""
STILL_WAITING = "I have your message, but other messages come first. The answer will take a while."
APPROVAL_FIRST = (
    "I have your message. First, the tool call in this chat needs an answer: /approve or /deny, "
    "with the ID from my question. If you are not the owner, the owner has to answer it."
)


class LiveView:
    """Shows a turn in its chat.

    Args:
        channel: the running channel.
        message: the message of the turn.
        ports: what all channels share.
        shown: kinds of messages that this channel wants besides the reply.
        streams: whether the answer is shown while it is written.
    """

    def __init__(
        self,
        channel: Channel,
        message: InboundMessage,
        ports: ChannelPorts,
        *,
        shown: frozenset[OutboundKind],
        streams: bool,
    ) -> None:
        self._channel = channel
        self._message = message
        self._ports = ports
        self._shown = shown
        self._interval_s = channel.capabilities.edit_interval_s if streams else None
        self._lines: deque[OutboundMessage] = deque(maxlen=MAX_LINES)
        self._text: list[str] = []
        self._drafted = ""
        self._news = asyncio.Event()
        self._showing: asyncio.Task[None] | None = None

    @property
    def draft_id(self) -> str | None:
        """Id of the draft that the chat has seen, or ``None``."""
        return self._message.id if self._drafted else None

    async def on_event(self, event: RunEvent) -> None:
        """Note an event and start to show it; returns at once."""
        if isinstance(event, TextStreamed):
            self._text.append(event.text)
        elif isinstance(event, StreamRestarted):
            self._text.clear()
        elif isinstance(event, ProgressMade):
            # The words before tool calls were streamed as the beginning of an answer.
            self._text.clear()
            self._put("progress", event.text)
        elif isinstance(event, ToolCallStarted):
            self._text.clear()
            self._put("tool_hint", event.hint)
        elif isinstance(event, NoticeGiven):
            self._put("notice", event.text)
        if self._lines or self._interval_s is not None:
            self._news.set()
            if self._showing is None:
                self._showing = self._ports.spawn(self._show(), name=f"view:{self._message.id}")

    async def show_progress(self, text: str) -> None:
        """Show a line, within a limit; a failure is only logged."""
        self._put("progress", text)
        await self.close()

    async def stop(self) -> None:
        """Show no more events; what is being sent has `CONNECTION_END_S` to end."""
        if self._showing is not None:
            self._showing.cancel()
            await asyncio.wait({self._showing}, timeout=CONNECTION_END_S)

    async def close(self) -> None:
        """Show the remaining lines, within a limit. Called after `stop`."""
        if not self._lines:
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_LIMIT_S):
                await self._earlier_delivered()
                await self._show_lines()
        self._lines.clear()

    async def discard(self) -> None:
        """Remove a draft that no reply will replace."""
        if self._drafted:
            await self._bounded(self._channel.drop_draft(self._message.chat_id, self._message.id))
            self._drafted = ""

    async def _show(self) -> None:
        while True:
            await self._news.wait()
            self._news.clear()
            await self._earlier_delivered()
            await self._show_lines()
            if self._interval_s is not None and any(part.strip() for part in self._text):
                await self._show_draft()
                await self._ports.clock.sleep(self._interval_s)

    async def _earlier_delivered(self) -> None:
        """Wait for the replies to this chat that come before."""
        message = self._message
        with suppress(BusError):  # better in another order than not at all
            while await self._ports.bus.has_outbound(message.channel, message.chat_id):
                await self._ports.clock.sleep(LOOK_AGAIN_S)

    def _put(self, kind: OutboundKind, text: str) -> None:
        if kind in self._shown and text.strip():
            if (given := self._message.assignment) and given.title:
                text = f"{given.label}: {text}"
            self._lines.append(
                OutboundMessage(
                    channel=self._message.channel,
                    chat_id=self._message.chat_id,
                    content=text,
                    kind=kind,
                )
            )

    async def _show_lines(self) -> None:
        while self._lines:
            await self._bounded(self._channel.send(self._lines.popleft()))

    async def _show_draft(self) -> None:
        text = "".join(self._text)
        if text == self._drafted:
            return
        # Set before it has arrived: a draft that may be visible must be replaced.
        self._drafted = text
        await self._bounded(
            self._channel.show_draft(
                Draft(
                    id=self._message.id,
                    chat_id=self._message.chat_id,
                    content=text,
                    reply_to=self._message.dedupe_key if self._message.assignment is None else None,
                )
            )
        )

    async def _bounded(self, work: Coroutine[Any, Any, None]) -> None:
        """Wait until a channel has shown something; a failure is only logged."""
        name = f"showing:{self._message.id}"
        with suppress(TimeoutError):
            await run_bounded(
                self._ports.spawn, self._contained(work), limit_s=SEND_LIMIT_S, name=name
            )

    async def _contained(self, work: Coroutine[Any, Any, None]) -> None:
        from loguru import logger

        name = self._message.channel
        try:
            await work
        except NanobotError as error:
            logger.debug("{}: cannot show progress: {}", name, error)
        except FOREIGN_ERRORS as error:
            logger.warning("{}: cannot show progress: {}: {}", name, type(error).__name__, error)


class WaitIndicator:
    """Shows that a message is being worked on: a typing sign, and a note after a long wait.

    Args:
        channel: returns the running channel of a name, or ``None``.
        ports: what all channels share.
        patience_s: seconds until the note, for a message that has to wait.
    """

    def __init__(
        self,
        channel: Callable[[str], Channel | None],
        ports: ChannelPorts,
        *,
        patience_s: float,
    ) -> None:
        self._channel = channel
        self._ports = ports
        self._patience_s = patience_s
        self._tasks: dict[str, list[asyncio.Task[None]]] = {}

    def expect(self, message: InboundMessage) -> None:
        """Begin: the message is stored."""
        channel = self._channel(message.channel)
        if channel is None or message.id in self._tasks:
            return
        tasks = [self._ports.spawn(self._note(message), name=f"patience:{message.id}")]
        if channel.capabilities.typing_interval_s is not None:
            tasks.append(self._ports.spawn(self._type(message), name=f"typing:{message.id}"))
        self._tasks[message.id] = tasks

    def begun(self, message: InboundMessage) -> None:
        """Its turn has begun: send no note."""
        if tasks := self._tasks.get(message.id):
            tasks[0].cancel()

    def done(self, message: InboundMessage) -> None:
        """End: the reply is being sent, or there is no reply."""
        for task in self._tasks.pop(message.id, ()):
            task.cancel()

    async def _type(self, message: InboundMessage) -> None:
        started = self._ports.clock.monotonic_s()
        while self._ports.clock.monotonic_s() - started < TYPING_LIMIT_S:
            channel = self._channel(message.channel)
            interval_s = channel.capabilities.typing_interval_s if channel else None
            if channel is None or interval_s is None:
                return
            try:
                async with asyncio.timeout(interval_s):
                    await channel.show_typing(message.chat_id)
            except (NanobotError, TimeoutError):
                pass  # the next one may arrive
            except Exception as error:  # noqa: BLE001 - isolation point: a channel's code
                from loguru import logger

                reason = f"{type(error).__name__}: {error}"
                logger.warning("{}: cannot show the typing sign: {}", message.channel, reason)
                return
            await self._ports.clock.sleep(interval_s)

    async def _note(self, message: InboundMessage) -> None:
        await self._ports.clock.sleep(self._patience_s)
        asked = self._ports.open_question(message.session_key)
        note = OutboundMessage(
            channel=message.channel,
            chat_id=message.chat_id,
            content=APPROVAL_FIRST if asked else STILL_WAITING,
            kind="notice",
            idempotency_key=f"{message.id}:waiting",
        )
        try:
            await self._ports.outbox.publish(note)
        except BusError as error:
            from loguru import logger

            logger.warning("{}: cannot send a note about the wait: {}", message.channel, error)
