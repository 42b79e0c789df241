"""Replies: which message is answered, and with which number, so that QQ shows each piece once."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING

from nanobot_core.chat import Recent, Records

if TYPE_CHECKING:
    from nanobot_core import JsonObject, JsonValue, PluginContext

CALLS = 5
"""Messages that QQ takes in answer to one message."""
_KEPT = 10
"""Messages of a chat that can be answered: people may write faster than the agent answers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """A message of a chat that can be answered.

    Attributes:
        message: its id.
        at: when it was written.
        calls: answers that QQ has taken, or may have taken.
        number: the last number that was used.
        is_over: QQ takes no more answers.
    """

    message: str
    at: datetime | None = None
    calls: int = 0
    number: int = 0
    is_over: bool = False

    @property
    def left(self) -> int:
        """How many answers QQ still takes."""
        return 0 if self.is_over else CALLS - self.calls


@dataclass(frozen=True, slots=True)
class Slot:
    """The message that a piece answers, and the number of the piece.

    Attributes:
        is_repeated: the piece may have been sent with this number before.
    """

    message: str
    number: int
    is_repeated: bool = False


class Replies:
    """The windows of each chat, and the slot of each piece; on disk before a piece is sent.

    Args:
        windows: chat to its windows.
        slots: key of a piece to its slot.
    """

    def __init__(self, windows: Records, slots: Records) -> None:
        self._records = windows
        self._slots = slots
        self._recent: Recent[str, tuple[Window, ...]] = Recent()
        self._claiming = asyncio.Lock()

    async def note(self, chat_id: str, message: str, at: datetime | None) -> None:
        """Answer `message` from now on, unless it is known, or older than another one."""
        async with self._claiming:
            known = await self._windows(chat_id)
            is_older = any(window.at and at and at < window.at for window in known)
            if not (is_older or any(window.message == message for window in known)):
                self._recent.put(chat_id, (*known, Window(message=message, at=at))[-_KEPT:])

    async def keep(self, chat_id: str) -> None:
        """Store the windows of a chat on disk."""
        windows = self._recent.get(chat_id)
        if windows is not None:
            with suppress(OSError):
                await self._records.put(chat_id, [_to_json(window) for window in windows])

    async def left(self, chat_id: str) -> int | None:
        """Return how many answers QQ still takes, or ``None`` if nothing is known of the chat."""
        windows = await self._windows(chat_id)
        return sum(window.left for window in windows) if windows else None

    async def claim(self, chat_id: str, key: str, reply_to: str | None) -> Slot | None:
        """Return the slot of a piece: the same one for the same key, until it is dropped.

        The newest message that takes another answer is answered.

        Args:
            key: of the piece; empty if it is never repeated.
            reply_to: id of a message to answer, if nothing is known of the chat.

        Returns:
            ``None`` if there is no message that can be answered.
        """
        async with self._claiming:
            stored = _slot_from(await self._slots.get(key)) if key else None
            if stored is not None:
                return stored
            windows = await self._windows(chat_id)
            if not windows and reply_to:
                windows = (Window(message=reply_to),)
            chosen = next((window for window in reversed(windows) if window.left > 0), None)
            if chosen is None:
                return None
            used = replace(chosen, calls=chosen.calls + 1, number=chosen.number + 1)
            await self._put(chat_id, [used if one is chosen else one for one in windows])
            if key:
                with suppress(OSError):  # this process still knows it
                    await self._slots.put(key, [used.message, used.number])
            return Slot(used.message, used.number)

    async def drop(self, chat_id: str, key: str, slot: Slot, *, is_over: bool = False) -> None:
        """Forget a slot that QQ has refused, so that the piece gets a new number.

        Whether a refused call uses up its number is not documented, so it is not used again. The
        call itself does not count.

        Args:
            is_over: QQ takes no more answers to the message of the slot, nor to older ones.
        """
        async with self._claiming:
            windows = list(await self._windows(chat_id))
            ids = [window.message for window in windows]
            if slot.message in ids:
                place = ids.index(slot.message)
                calls = max(0, windows[place].calls - 1)
                windows[place] = replace(windows[place], calls=calls)
                if is_over:
                    ended = [replace(window, is_over=True) for window in windows[: place + 1]]
                    windows[: place + 1] = ended
                await self._put(chat_id, windows)
            with suppress(OSError):
                await self._slots.drop([key])

    async def _put(self, chat_id: str, windows: Sequence[Window]) -> None:
        self._recent.put(chat_id, tuple(windows))
        await self.keep(chat_id)

    async def _windows(self, chat_id: str) -> tuple[Window, ...]:
        """Return the windows of a chat, the newest one last."""
        found = self._recent.get(chat_id)
        if found is not None:
            return found
        stored = await self._records.get(chat_id)
        read = map(_window_from, stored) if isinstance(stored, list) else ()
        return tuple(window for window in read if window is not None)


def build_replies(ctx: PluginContext) -> Replies:
    """Return the replies of the plugin's channel, for ``ctx.shared``."""
    folder = ctx.data_dir
    return Replies(Records(folder / "reply-windows.json"), Records(folder / "reply-numbers.json"))


def _to_json(window: Window) -> JsonObject:
    return {
        "message": window.message,
        "at": None if window.at is None else window.at.isoformat(),
        "calls": window.calls,
        "number": window.number,
        "is_over": window.is_over,
    }


def _window_from(stored: JsonValue) -> Window | None:
    if not isinstance(stored, dict):
        return None
    message, calls, number = stored.get("message"), stored.get("calls"), stored.get("number")
    if not (isinstance(message, str) and isinstance(calls, int) and isinstance(number, int)):
        return None
    at = None
    with suppress(ValueError):
        at = datetime.fromisoformat(str(stored.get("at")))
    is_over = stored.get("is_over") is True
    return Window(message=message, at=at, calls=calls, number=number, is_over=is_over)


def _slot_from(stored: JsonValue) -> Slot | None:
    match stored:
        case [str(message), int(number)]:
            return Slot(message, number, is_repeated=True)
    return None
