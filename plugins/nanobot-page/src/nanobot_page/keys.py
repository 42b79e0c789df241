"""Keys of the sessions of the page: whose they are."""

from __future__ import annotations

import secrets
from typing import Final

from nanobot_page.settings import CHANNEL

_CHARS: Final = range(8, 65)


def make_key(guest: str = "") -> str:
    """Return the key of a new session of a guest; of the owner if `guest` is empty."""
    return f"{CHANNEL}:{_begin(guest)}{secrets.token_hex(6)}"


def is_of(key: str, guest: str = "") -> bool:
    """Whether a session of the page belongs to a guest; to the owner if `guest` is empty.

    The key of a guest's session contains the guest's name, so that this needs no table.
    """
    begin = f"{CHANNEL}:{_begin(guest)}"
    chat = key.removeprefix(begin)
    return key.startswith(begin) and chat.isascii() and chat.isalnum() and len(chat) in _CHARS


def guest_of(key: str) -> str:
    """Return the guest to whom a session of the page belongs; empty if it is no guest's."""
    name = key.removeprefix(f"{CHANNEL}:").partition(".")[0]
    return name if is_of(key, name) else ""


def _begin(guest: str) -> str:
    return f"{guest}." if guest else ""
