"""Stores received messages: in order within each chat, concurrently across chats."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from pydantic import ValidationError

from nanobot_core.chat.failure import CallFailed, Cause
from nanobot_core.errors import BusError
from nanobot_core.media import MediaTooLarge

if TYPE_CHECKING:
    from nanobot_core.chat.platform import Attachment, ChatPlatform, Received
    from nanobot_core.contracts.channel import Complete, Inbox
    from nanobot_core.contracts.context import PluginContext
    from nanobot_core.messages import InboundMessage

ParsedT = TypeVar("ParsedT")
_ALBUM_PAUSE_S = 1.5
"""How long the next part of an album may take. Platforms do not report the number of parts, which
arrive within a fraction of a second."""
_ALBUM_PARTS = 10
_FETCH_ATTEMPTS = 3
_FETCH_PAUSE_S = 2.0
_FETCH_LIMIT_S = 180.0
_STORE_PAUSE_S = 1.0
_LONGEST_STORE_PAUSE_S = 30.0
_OWN_FAILURES = 10
"""After this many failures, while other messages were stored, the message counts as the cause."""


@dataclass(slots=True)
class _Waiting:
    received: Received
    done: Callable[[], None]


@dataclass(slots=True)
class _Lane:
    """The waiting messages of one chat."""

    queue: deque[_Waiting] = field(default_factory=deque)
    arrived: asyncio.Event = field(default_factory=asyncio.Event)


class Intake:
    """Publishes messages, with one task for each chat, so that a download delays only its chat.

    Args:
        platform: fetches files.
        group: owner of the tasks.
    """

    def __init__(
        self,
        ctx: PluginContext,
        platform: ChatPlatform,
        inbox: Inbox,
        group: asyncio.TaskGroup,
    ) -> None:
        self._ctx = ctx
        self._log = ctx.logger
        self._platform = platform
        self._inbox = inbox
        self._group = group
        self._lanes: dict[str, _Lane] = {}
        self._taking: set[asyncio.Future[None]] = set()
        self._stored_count = 0
        self._is_closed = False

    def alive(self) -> None:
        """Report that the platform has just sent something."""
        self._inbox.alive()

    def parsed(self, read: Callable[[], ParsedT | None]) -> ParsedT | None:
        """Return what `read` returns; an event that it cannot read is reported and dropped."""
        try:
            return read()
        except ValidationError as error:
            places = ", ".join(".".join(map(str, e["loc"])) for e in error.errors()[:3])
            self._log.warning("a malformed event of the platform is dropped: {}", places)
        except Exception:  # noqa: BLE001 - isolation point: one event must not affect others
            self._log.exception("an event of the platform that cannot be read is dropped")
        return None

    def put(self, received: Received, done: Callable[[], None]) -> None:
        """Accept a message, and store it in the background.

        If it cannot be stored, it is retried, and its chat waits for it. The messages that wait
        here are not bounded: acknowledge with `done` and let the platform hold the rest.

        Args:
            done: called once, when the platform may forget the message: it is stored, refused or
                was stored before; not called if the work is cancelled before.
        """
        if self._is_closed:
            return
        chat_id = received.message.chat_id
        lane = self._lanes.get(chat_id)
        if lane is None:
            lane = self._lanes[chat_id] = _Lane()
            name = f"{received.message.channel} chat {chat_id}"
            self._group.create_task(self._work(chat_id, lane), name=name)
        lane.queue.append(_Waiting(received, done))
        lane.arrived.set()

    async def take(self, received: Received) -> bool:
        """Store a message, and return whether the platform may forget it.

        It is False only if the channel stops before the message is stored.
        """
        if self._is_closed:
            return False
        stored: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._taking.add(stored)
        try:
            self.put(received, lambda: None if stored.done() else stored.set_result(None))
            await asyncio.wait({stored})
            return not stored.cancelled()
        finally:
            self._taking.discard(stored)

    def close(self) -> None:
        """End the calls of `take` that still wait, and accept no more messages."""
        self._is_closed = True
        for stored in self._taking:
            stored.cancel()

    async def _work(self, chat_id: str, lane: _Lane) -> None:
        try:
            while lane.queue:
                parts = [lane.queue.popleft()]
                album = parts[0].received.album
                if album is not None:
                    await self._collect(album, parts, lane)
                whole = _joined([part.received for part in parts])
                is_admitted = await self._publish(whole)
                for part in parts:
                    part.done()
                await self._settle(whole, is_admitted=is_admitted)
        finally:
            del self._lanes[chat_id]

    async def _collect(self, album: str, parts: list[_Waiting], lane: _Lane) -> None:
        while len(parts) < _ALBUM_PARTS:
            if lane.queue:
                if lane.queue[0].received.album != album:
                    return
                parts.append(lane.queue.popleft())
                continue
            lane.arrived.clear()
            try:
                async with asyncio.timeout(_ALBUM_PAUSE_S):
                    await lane.arrived.wait()
            except TimeoutError:
                return

    async def _publish(self, received: Received) -> bool:
        """Store a message and return whether it was admitted. Then the platform may forget it."""
        saved: dict[str, Path] = {}
        lines: dict[str, str] = {}

        async def complete(message: InboundMessage) -> InboundMessage:
            return await self._with_files(message, received.files, saved, lines)

        is_admitted = False
        try:
            is_admitted = await self._stored(received, complete if received.files else None)
        except Exception:  # noqa: BLE001 - isolation point: one message must not affect others
            self._log.exception("a message cannot be stored and is dropped")
        finally:
            if not is_admitted and saved:
                await asyncio.to_thread(_discard, list(saved.values()))
        return is_admitted

    async def _stored(self, received: Received, complete: Complete | None) -> bool:
        failures, pause_s = 0, _STORE_PAUSE_S
        while True:
            others = self._stored_count
            try:
                is_admitted = await self._inbox.publish(received.message, complete)
            except (BusError, OSError) as error:
                self._log.warning("a message is not stored yet, nanobot tries again: {}", error)
                last = error
            else:
                self._stored_count += 1
                return is_admitted
            await self._ctx.clock.sleep(pause_s)
            pause_s = min(pause_s * 2, _LONGEST_STORE_PAUSE_S)
            failures += self._stored_count > others
            if failures >= _OWN_FAILURES:
                self._log.error("a message cannot be stored and is dropped: {}", last)
                return False

    async def _with_files(
        self,
        message: InboundMessage,
        files: tuple[Attachment, ...],
        saved: dict[str, Path],
        lines: dict[str, str],
    ) -> InboundMessage:
        """Add the files; `saved` and `lines` contain the results of earlier attempts."""
        for file in files:
            if file.ref in saved or file.ref in lines:
                continue
            try:
                saved[file.ref] = await self._fetch(file)
            except MediaTooLarge as error:
                lines[file.ref] = f"[{error}]"
            except CallFailed as error:
                self._log.warning("a file cannot be fetched: {}", error)
                lines[file.ref] = f"[{file.name} could not be fetched: {error}]"
        return replace(
            message,
            content="\n".join(line for line in (message.content, *lines.values()) if line),
            media=(*message.media, *map(str, saved.values())),
        )

    async def _fetch(self, file: Attachment) -> Path:
        """Save a file and return its path; retry after temporary failures."""
        media = self._ctx.media
        if (file.size or 0) > media.max_bytes:
            raise MediaTooLarge(file.name, media.max_bytes)
        for attempt in range(1, _FETCH_ATTEMPTS):
            try:
                return await self._save(file)
            except CallFailed as error:
                if error.cause not in {Cause.UNREACHABLE, Cause.BUSY}:
                    raise
                pause_s = error.retry_after_s
            except TimeoutError:
                pause_s = None
            await self._ctx.clock.sleep(_FETCH_PAUSE_S * attempt if pause_s is None else pause_s)
        try:
            return await self._save(file)
        except TimeoutError as error:
            reason = f"it took longer than {_FETCH_LIMIT_S:g} seconds"
            raise CallFailed(Cause.UNREACHABLE, reason) from error

    async def _save(self, file: Attachment) -> Path:
        content = self._platform.fetch(file)
        try:
            async with asyncio.timeout(_FETCH_LIMIT_S):
                return await self._ctx.media.save(file.name, content)
        finally:
            if isinstance(content, AsyncGenerator):
                await content.aclose()  # its connection is not needed any more

    async def _settle(self, received: Received, *, is_admitted: bool) -> None:
        if received.settled is not None:
            with suppress(CallFailed):
                await received.settled(is_admitted)


def _joined(parts: list[Received]) -> Received:
    """Return the parts of an album as one message."""
    first = parts[0]
    if len(parts) == 1:
        return first
    texts = (first.message.content, *(part.said for part in parts[1:]))
    message = replace(
        first.message,
        content="\n".join(text for text in texts if text),
        is_addressed=any(part.message.is_addressed for part in parts),
        is_forwarded=any(part.message.is_forwarded for part in parts),
    )
    files = tuple(file for part in parts for file in part.files)
    return replace(first, message=message, files=files)


def _discard(paths: list[Path]) -> None:
    for path in paths:
        with suppress(OSError):
            path.unlink()
            # The media store uses a folder for each file.
            path.parent.rmdir()
