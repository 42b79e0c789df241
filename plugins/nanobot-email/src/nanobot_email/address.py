"""Mail addresses, and the chats that are named after them."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import Self

# Neither quoted names nor other scripts: both allow addresses that look like another one. A '|'
# separates the id of a sender from names, and a ':' an address from its thread.
_ADDRESS = re.compile(
    r"[a-z0-9!#$%&'*+/=?^_`{}~-]+(\.[a-z0-9!#$%&'*+/=?^_`{}~-]+)*"
    r"@([a-z0-9]([a-z0-9-]*[a-z0-9])?\.)*[a-z0-9]([a-z0-9-]*[a-z0-9])?",
    re.ASCII,
)
_ADDRESS_CHARS = 254
_THREAD = re.compile(r"[0-9a-f]{12}", re.ASCII)
UNVERIFIED = "unverified:"
"""Begins the id of a sender who is not proven, so that it is never the id of a proven one."""


def parse_address(text: str) -> str | None:
    """Return an address in lower case, or ``None`` if `text` is not a plain one."""
    address = text.strip().lower()
    is_address = len(address) <= _ADDRESS_CHARS and _ADDRESS.fullmatch(address)
    return address if is_address else None


def domain_of(address: str) -> str:
    """Return the part after the ``@``."""
    return address.rpartition("@")[2]


@dataclass(frozen=True, slots=True)
class ChatRef:
    """A conversation, written as ``<address>:<thread>``, or ``<address>`` to begin one.

    Attributes:
        address: the other person.
        thread: id of the conversation with them, or ``None``.
    """

    address: str
    thread: str | None = None

    @classmethod
    def parse(cls, chat_id: str) -> Self | None:
        """Return the conversation that `chat_id` names, or ``None`` if it is invalid."""
        before, colon, thread = chat_id.partition(":")
        address = parse_address(before)
        if address is None or (colon and _THREAD.fullmatch(thread) is None):
            return None
        return cls(address, thread or None)

    def __str__(self) -> str:
        return self.address if self.thread is None else f"{self.address}:{self.thread}"


def thread_named(message_id: str) -> str:
    """Return the id of the conversation that begins with a mail."""
    return hashlib.sha256(message_id.encode()).hexdigest()[:12]
