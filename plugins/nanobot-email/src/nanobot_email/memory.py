"""What outlives a connection: how far the mailbox is read, conversations, and sent mail."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from nanobot_core.chat import Records

if TYPE_CHECKING:
    from nanobot_core import PluginContext

_THREADS = 1_000
_SENT = 10_000


@dataclass(frozen=True, slots=True)
class Thread:
    """A conversation by mail.

    Attributes:
        subject: without the mark of an answer.
        references: Message-IDs, the oldest first.
    """

    subject: str
    references: tuple[str, ...]


class EmailMemory:
    """Durable state of the channel, in the plugin's data folder.

    Attributes:
        watermarks: mailbox to the highest UID up to which all mail is stored.
    """

    def __init__(self, ctx: PluginContext) -> None:
        folder = ctx.data_dir
        self.watermarks: Records = Records(folder / "watermarks.json")
        self._sent = Records(folder / "sent.json", _SENT)
        self._threads = Records(folder / "threads.json", _THREADS)

    async def thread(self, chat_id: str) -> Thread | None:
        """Return the conversation of a chat, or ``None`` if it is unknown."""
        found = await self._threads.get(chat_id)
        if not isinstance(found, dict):
            return None
        subject, references = found.get("subject"), found.get("references")
        if not isinstance(subject, str) or not isinstance(references, list):
            return None
        return Thread(subject, tuple(str(reference) for reference in references))

    async def keep_thread(self, chat_id: str, thread: Thread) -> None:
        """Store a conversation. On a full disk, this process still knows it."""
        references = [*thread.references]
        with suppress(OSError):
            await self._threads.put(
                chat_id, {"subject": thread.subject, "references": [*references]}
            )

    async def is_known(self, address: str) -> bool:
        """Return whether a person with this address has written."""
        return any(
            chat_id.partition(":")[0] == address for chat_id in await self._threads.entries()
        )

    async def count_sent(self, message_id: str, day: str, limit: int) -> bool:
        """Count a mail for a day; return False if there are `limit` others already.

        On a full disk, it is counted by this process only.
        """
        sent = await self._sent.entries()
        if sum(other == day for known, other in sent.items() if known != message_id) >= limit:
            return False
        with suppress(OSError):
            await self._sent.put(message_id, day)
        return True

    async def forget_sent(self, message_id: str) -> None:
        """Do not count a mail that was refused."""
        with suppress(OSError):
            await self._sent.drop([message_id])


def build_memory(ctx: PluginContext) -> EmailMemory:
    """Return the memory of the plugin's channel, for ``ctx.shared``."""
    return EmailMemory(ctx)


class Backlog:
    """The mail that is taken from the mailbox and not stored yet.

    Args:
        watermark: all mail up to this UID is done.
    """

    def __init__(self, watermark: int) -> None:
        self.taken: int = watermark
        """The highest UID that was taken."""
        self._open: dict[int, int] = {}
        self._changed = asyncio.Event()

    @property
    def watermark(self) -> int:
        """The highest UID up to which all mail is done."""
        return min(self._open) - 1 if self._open else self.taken

    @property
    def size(self) -> int:
        """Bytes of the mail that is not done."""
        return sum(self._open.values())

    def take(self, uid: int, size: int) -> None:
        """Add a mail; UIDs increase."""
        self.taken = max(self.taken, uid)
        self._open[uid] = size

    def finish(self, uid: int) -> None:
        """Note that a mail is stored, refused or left out."""
        self._open.pop(uid, None)
        self._changed.set()

    async def emptied(self) -> None:
        """Wait until all taken mail is done."""
        while self._open:
            await self.changed()

    async def changed(self) -> None:
        """Wait until another mail is done."""
        self._changed.clear()
        await self._changed.wait()
