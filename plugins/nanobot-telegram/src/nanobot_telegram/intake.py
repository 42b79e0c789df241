"""Stores the messages of updates: in order within each chat, concurrently across chats."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import ValidationError

from nanobot_core import BusError, InboundMessage, MediaTooLarge
from nanobot_telegram import wire
from nanobot_telegram.call import CallFailed, Cause
from nanobot_telegram.mapping import Attachment, ChatRef, Received, join_album, read_update

if TYPE_CHECKING:
    from nanobot_core import Complete, Inbox, PluginContext
    from nanobot_telegram.client import Client

_ALBUM_PAUSE_S = 1.5
"""How long the next part of an album may take. Telegram does not report the number of parts, which
arrive within a fraction of a second."""
_ALBUM_PARTS = 10
_FETCH_ATTEMPTS = 3
_FETCH_PAUSE_S = 2.0
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
    """Publishes updates, with one task for each chat, so that a download delays only its chat.

    Args:
        client: fetches files and confirms pressed buttons.
        group: owner of the tasks.
    """

    def __init__(
        self,
        ctx: PluginContext,
        client: Client,
        inbox: Inbox,
        bot: wire.User,
        group: asyncio.TaskGroup,
    ) -> None:
        self._ctx = ctx
        self._log = ctx.logger
        self._client = client
        self._inbox = inbox
        self._bot = bot
        self._group = group
        self._lanes: dict[str, _Lane] = {}
        self._stored_count = 0

    def put(self, update: object, done: Callable[[], None]) -> None:
        """Accept an update, and store it in the background.

        If it cannot be stored, it is retried, and its chat waits for it.

        Args:
            done: called once, when Telegram may forget the update; not called if the work is
                cancelled before.
        """
        received = self._read(update)
        if received is None:
            done()
            return
        chat_id = received.message.chat_id
        lane = self._lanes.get(chat_id)
        if lane is None:
            lane = self._lanes[chat_id] = _Lane()
            self._group.create_task(self._work(chat_id, lane), name=f"telegram chat {chat_id}")
        lane.queue.append(_Waiting(received, done))
        lane.arrived.set()

    def _read(self, update: object) -> Received | None:
        try:
            return read_update(wire.Update.model_validate(update), self._bot)
        except ValidationError as error:
            places = ", ".join(".".join(map(str, e["loc"])) for e in error.errors()[:3])
            self._log.warning("a malformed update from Telegram is dropped: {}", places)
        except Exception:  # noqa: BLE001 - isolation point: one update must not affect others
            self._log.exception("an update from Telegram that cannot be read is dropped")
        return None

    async def _work(self, chat_id: str, lane: _Lane) -> None:
        try:
            while lane.queue:
                parts = [lane.queue.popleft()]
                album = parts[0].received.album
                if album is not None:
                    await self._collect(album, parts, lane)
                whole = join_album([part.received for part in parts])
                is_admitted = await self._publish(whole)
                for part in parts:
                    part.done()
                if whole.callback_id is not None:
                    await self._answer_press(whole, whole.callback_id, is_admitted=is_admitted)
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
        """Store a message and return whether it was admitted. Then Telegram may forget it."""
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
            if file.file_id in saved or file.file_id in lines:
                continue
            try:
                content = await self._fetch(file)
                saved[file.file_id] = await self._ctx.media.save(file.name, _in_one_piece(content))
            except MediaTooLarge as error:
                lines[file.file_id] = f"[{error}]"
            except CallFailed as error:
                self._log.warning("a file cannot be fetched: {}", error)
                lines[file.file_id] = f"[{file.name} could not be fetched: {error}]"
        return replace(
            message,
            content="\n".join(line for line in (message.content, *lines.values()) if line),
            media=(*message.media, *map(str, saved.values())),
        )

    async def _fetch(self, file: Attachment) -> bytes:
        limit = self._ctx.media.max_bytes
        if (file.size or 0) > limit:
            raise MediaTooLarge(file.name, limit)
        for attempt in range(1, _FETCH_ATTEMPTS):
            try:
                return await self._client.fetch_file(file.file_id, file.name, limit)
            except CallFailed as error:
                if error.cause not in {Cause.UNREACHABLE, Cause.BUSY}:
                    raise
                pause_s = error.retry_after_s
            await self._ctx.clock.sleep(_FETCH_PAUSE_S * attempt if pause_s is None else pause_s)
        return await self._client.fetch_file(file.file_id, file.name, limit)

    async def _answer_press(self, press: Received, callback_id: str, *, is_admitted: bool) -> None:
        with suppress(CallFailed):
            await self._client.answer_press(callback_id)
        place = ChatRef.parse(press.message.chat_id)
        # In a group, a person who is not admitted must not use up buttons. Buttons with commands
        # remain, because they may be meant for the owner.
        stays = press.message.is_group and press.message.content.startswith("/")
        if is_admitted and not stays and place is not None and press.pressed_in is not None:
            with suppress(CallFailed):
                await self._client.writer.remove_buttons(place, press.pressed_in)


async def _in_one_piece(content: bytes) -> AsyncIterator[bytes]:
    yield content


def _discard(paths: list[Path]) -> None:
    for path in paths:
        with suppress(OSError):
            path.unlink()
            # The media store uses a folder for each file.
            path.parent.rmdir()
