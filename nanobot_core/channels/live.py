"""LiveView: what a chat sees of a turn while it runs. Nothing of it is kept."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Coroutine
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from nanobot_core.contracts.channel import Draft
from nanobot_core.errors import NanobotError
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
    from nanobot_core.clock import Clock
    from nanobot_core.contracts.channel import Channel
    from nanobot_core.events import RunEvent
    from nanobot_core.messages import InboundMessage
    from nanobot_core.tasks import Spawn

SEND_LIMIT_S = 10.0
CLOSE_LIMIT_S = 5.0
MAX_WAITING = 50
"""Lines of progress that wait for a slow platform; older ones are left out."""


class LiveView:
    """Shows one turn to the chat that it belongs to.

    Args:
        channel: the running channel.
        message: the message that is answered.
        spawn: starts tasks that the application owns.
        clock: source of time.
        shown: kinds of messages that this channel wants besides the reply.
        streams: whether the answer is shown while it is written.
    """

    def __init__(
        self,
        channel: Channel,
        message: InboundMessage,
        *,
        spawn: Spawn,
        clock: Clock,
        shown: frozenset[OutboundKind],
        streams: bool,
    ) -> None:
        self._channel = channel
        self._message = message
        self._spawn = spawn
        self._clock = clock
        self._shown = shown
        self._interval_s = channel.capabilities.edit_interval_s if streams else None
        self._lines: deque[OutboundMessage] = deque(maxlen=MAX_WAITING)
        self._text: list[str] = []
        self._drafted = ""
        self._news = asyncio.Event()
        self._showing: asyncio.Task[None] | None = None

    @property
    def draft_id(self) -> str | None:
        """Id of the draft that the chat has seen, or ``None``."""
        return self._message.id if self._drafted else None

    async def on_event(self, event: RunEvent) -> None:
        """Take note of an event, and begin to show what there is; returns at once."""
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
                self._showing = self._spawn(self._show(), name=f"view:{self._message.id}")

    async def stop(self) -> None:
        """Show nothing more of what happens; what is being sent has `CONNECTION_END_S` to end."""
        if self._showing is not None:
            self._showing.cancel()
            await asyncio.wait({self._showing}, timeout=CONNECTION_END_S)

    async def close(self) -> None:
        """Show the lines that still wait, within a limit. Called after `stop`."""
        if not self._lines:
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_LIMIT_S):
                await self._show_lines()
        self._lines.clear()

    async def discard(self) -> None:
        """Take a draft away that no reply will take the place of."""
        if self._drafted:
            await self._bounded(self._channel.drop_draft(self._message.chat_id, self._message.id))
            self._drafted = ""

    async def _show(self) -> None:
        while True:
            await self._news.wait()
            self._news.clear()
            await self._show_lines()
            if self._interval_s is not None and any(part.strip() for part in self._text):
                await self._show_draft()
                await self._clock.sleep(self._interval_s)

    def _put(self, kind: OutboundKind, text: str) -> None:
        if kind in self._shown and text.strip():
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
        # Before it is known to have arrived: a draft that may be there must be replaced.
        self._drafted = text
        await self._bounded(
            self._channel.show_draft(
                Draft(
                    id=self._message.id,
                    chat_id=self._message.chat_id,
                    content=text,
                    reply_to=self._message.dedupe_key,
                )
            )
        )

    async def _bounded(self, work: Coroutine[Any, Any, None]) -> None:
        """Wait for what a channel shows; what fails costs the sight of it and no more."""
        name = f"showing:{self._message.id}"
        with suppress(TimeoutError):
            await run_bounded(self._spawn, self._contained(work), limit_s=SEND_LIMIT_S, name=name)

    async def _contained(self, work: Coroutine[Any, Any, None]) -> None:
        from loguru import logger

        name = self._message.channel
        try:
            await work
        except NanobotError as error:
            logger.debug("{}: not shown: {}", name, error)
        except (Exception, SystemExit, KeyboardInterrupt) as error:  # noqa: BLE001 - isolation point: a channel's code
            logger.warning("{}: not shown: {}: {}", name, type(error).__name__, error)
