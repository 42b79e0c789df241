"""Bot: a bot that is signed in, and what the parts of its channel share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nanobot_core import Clock
    from nanobot_discord.chats import Chats
    from nanobot_discord.client import Client
    from nanobot_discord.confirmations import Confirmations
    from nanobot_discord.connection import Connection
    from nanobot_discord.mapping import Reader
    from nanobot_discord.session import Session
    from nanobot_discord.settings import DiscordSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class Bot:
    """One bot.

    Attributes:
        connection: opens sockets.
        client: makes calls.
        session: how far its events are processed.
        chats: what is known of each chat.
        reader: reads messages.
        confirmations: shows people that something has arrived.
        report: logs a description of what is dropped.
    """

    settings: DiscordSettings
    clock: Clock
    connection: Connection
    client: Client
    session: Session
    chats: Chats
    reader: Reader
    confirmations: Confirmations
    report: Callable[[str], None]
