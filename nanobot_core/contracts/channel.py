"""Channel: a way in and out for people."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias

from nanobot_core.messages import InboundMessage, OutboundMessage

Publish: TypeAlias = Callable[[InboundMessage], Awaitable[bool]]
"""Hand a message to the inbox. True: it is stored, tell the platform; False: it was refused."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelCapabilities:
    """What a platform can do.

    Attributes:
        max_message_chars: longest text of one message, in the platform's own units.
        markdown: dialect that `Channel.send` translates to, for the format hint to the model.
        edit: sent messages can be changed, so that answers can stream.
        threads: chats have topics.
        buttons: messages can carry buttons.
        media: kinds of files that can be sent.
    """

    max_message_chars: int = 4_000
    markdown: str = "none"
    edit: bool = False
    threads: bool = False
    buttons: bool = False
    media: tuple[Literal["image", "audio", "video", "file"], ...] = ()


class Channel(ABC):
    """One connection to a platform. Created at gateway start, restarted by its supervisor."""

    name: str
    capabilities: ChannelCapabilities = ChannelCapabilities()

    @abstractmethod
    async def start(self, publish: Publish) -> None:
        """Receive messages until cancelled or `stop` is called.

        A message is acknowledged to the platform only after `publish` has returned True.

        Raises:
            ChannelError: the connection is lost; the supervisor starts it again.
        """

    @abstractmethod
    async def stop(self) -> None:
        """End `start` and close the connection. Calling it twice is harmless."""

    @abstractmethod
    async def send(self, message: OutboundMessage) -> None:
        """Deliver one message, split where the platform needs it.

        Raises:
            DeliveryError: it was not delivered; the error says whether to try again.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelSpec:
    """A channel as a plugin contributes it.

    Attributes:
        name: channel name; its settings stand under ``channels.<name>``.
        factory: ``package.module:name`` of a callable ``(ctx)`` that returns a `Channel`.
        summary: one line for ``nanobot channels status``.
        secrets: settings keys that hold secrets.
    """

    name: str
    factory: str
    summary: str = ""
    secrets: tuple[str, ...] = ()
