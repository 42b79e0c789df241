"""Where a message goes: a chat, or a topic in it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Self

_NUMBER = re.compile(r"-?[0-9]{1,19}", re.ASCII)


@dataclass(frozen=True, slots=True)
class ChatRef:
    """A chat or a topic; as a text, ``<chat>`` or ``<chat>:<thread>``.

    Attributes:
        chat: id of a chat, or the ``@name`` of a public one.
        thread: id of the topic, or ``None``.
    """

    chat: int | str
    thread: int | None = None

    @classmethod
    def parse(cls, chat_id: str) -> Self | None:
        """Return the place that `chat_id` names, or ``None`` where it names none."""
        chat, colon, thread = chat_id.partition(":")
        number = _number(chat)
        if number is None and not (chat.startswith("@") and len(chat) > 1):
            return None
        if not colon:
            return cls(chat if number is None else number)
        topic = _number(thread)
        return None if topic is None else cls(chat if number is None else number, topic)

    def __str__(self) -> str:
        return str(self.chat) if self.thread is None else f"{self.chat}:{self.thread}"


def _number(text: str) -> int | None:
    return int(text) if _NUMBER.fullmatch(text) else None
