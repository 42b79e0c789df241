"""OwnerNotices: messages to the owner about problems."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from loguru import logger

from nanobot_core.channels.access import is_owner
from nanobot_core.disk import replace_file
from nanobot_core.errors import BusError
from nanobot_core.messages import InboundMessage, OutboundMessage
from nanobot_core.tasks import finish_in_thread

if TYPE_CHECKING:
    from nanobot_core.channels.outbox import Outbox


class OwnerNotices:
    """Writes to the private chat in which the owner last wrote.

    Args:
        file: stores that chat.
        outbox: sends the notices.
        owners: returns the configured owners.
    """

    def __init__(self, file: Path, outbox: Outbox, owners: Callable[[], Sequence[str]]) -> None:
        self._file = file
        self._outbox = outbox
        self._owners = owners
        self._chat: tuple[str, str] | None = _read(file)
        self._changed = asyncio.Event()

    @property
    def is_configured(self) -> bool:
        """Whether the configuration names an owner."""
        return bool(self._owners())

    def is_owner(self, message: InboundMessage) -> bool:
        """Whether the owner sent `message`; if so, its private chat is remembered.

        That of assigned work is not: the owner did not write there now.
        """
        if not is_owner(message, self._owners()):
            return False
        chat = (message.channel, message.chat_id)
        if not message.is_group and message.assignment is None and chat != self._chat:
            self._chat = chat
            self._changed.set()
        return True

    @property
    def chat(self) -> tuple[str, str] | None:
        """Channel and chat in which the owner last wrote in private, if any."""
        return self._chat

    async def notify(self, text: str, key: str) -> None:
        """Log a notice, and send it once for each `key` if the chat is known."""
        logger.warning("{}", text)
        if self._chat is None:
            return
        channel, chat_id = self._chat
        notice = OutboundMessage(
            channel=channel, chat_id=chat_id, content=text, kind="notice", idempotency_key=key
        )
        try:
            await self._outbox.publish(notice)
        except BusError as error:
            logger.error("cannot notify the owner: {}", error)

    async def keep(self) -> None:
        """Store the chat whenever it changes; runs until cancelled."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            try:
                await finish_in_thread(lambda: replace_file(self._file, json.dumps(self._chat)))
            except OSError as error:
                logger.warning("cannot store the owner's chat: {}", error)


def _read(file: Path) -> tuple[str, str] | None:
    try:
        channel, chat_id = json.loads(file.read_text("utf-8"))
    except (OSError, ValueError, TypeError, RecursionError):
        return None
    return str(channel), str(chat_id)
