"""Channel: how people send and receive messages."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias

from nanobot_core.messages import InboundMessage, OutboundMessage
from nanobot_core.record import dataclass

if TYPE_CHECKING:
    from nanobot_core.contracts.login import LoginPrompt

Complete: TypeAlias = Callable[[InboundMessage], Awaitable[InboundMessage]]
"""Returns the message with the parts that are expensive to get, such as its files on disk."""


class Inbox(Protocol):
    """Takes the messages that a channel receives. Each channel has one of its own."""

    async def publish(self, message: InboundMessage, complete: Complete | None = None) -> bool:
        """Admit and store a message.

        Who may write is decided here: access lists, pairing, policies of plugins.

        Args:
            message: as received; `id` and `timestamp` are filled in if they are empty.
            complete: called after the message is admitted and before it is stored, so that nothing
                is downloaded for strangers. Its exceptions are passed on.

        Returns:
            True if it is stored, False if it is refused or was stored before. In both cases
            acknowledge it to the platform.

        Raises:
            BusError: it is not stored. Do not acknowledge it, so that the platform offers it again.
        """

    def alive(self) -> None:
        """Report that the platform has just answered; see `ChannelCapabilities.silence_limit_s`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelCapabilities:
    """What a platform can do.

    Attributes:
        max_message_chars: longest text of one message, in the platform's own units.
        markdown: dialect that `Channel.send` translates to, for the format hint to the model.
        edit_interval_s: least seconds between two `Channel.show_draft` of one chat; ``None`` if an
            answer cannot be shown while it is written.
        typing_interval_s: seconds after which `Channel.show_typing` must be repeated; ``None`` if
            the platform has no typing indicator.
        silence_limit_s: most seconds between two `Inbox.alive` of a working connection; a longer
            silence restarts the channel. ``None`` if silence means nothing.
        threads: chats have topics.
        buttons: messages can carry buttons.
        media: kinds of files that can be sent.
    """

    max_message_chars: int = 4_000
    markdown: str = "none"
    edit_interval_s: float | None = None
    typing_interval_s: float | None = None
    silence_limit_s: float | None = None
    threads: bool = False
    buttons: bool = False
    media: tuple[Literal["image", "audio", "video", "file"], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """An answer as far as it has been written.

    Attributes:
        id: the same for all drafts of an answer, and `OutboundMessage.draft_id` of the whole one.
        chat_id: chat that it is written for.
        content: all of it so far, in Markdown; it may end anywhere.
        reply_to: platform id of the message that it answers, or ``None``.
    """

    id: str
    chat_id: str
    content: str
    reply_to: str | None = None


class Channel(ABC):
    """One connection to a platform. A new one is created for each start of the channel.

    Attributes:
        name: name of the channel.
        capabilities: what the platform can do.
        account: who the agent is on the platform, once it is known; for ``channels status``.
    """

    name: str
    capabilities: ChannelCapabilities = ChannelCapabilities()
    account: str = ""

    @abstractmethod
    async def start(self, inbox: Inbox) -> None:
        """Receive messages until cancelled or `stop` is called.

        A message is acknowledged to the platform only after `Inbox.publish` has returned.

        Raises:
            ChannelError: the connection is lost; the supervisor starts a new one.
        """

    @abstractmethod
    async def stop(self) -> None:
        """End `start` and close the connection. Calling it twice is harmless."""

    @abstractmethod
    async def send(self, message: OutboundMessage) -> None:
        """Deliver one message, split where the platform needs it.

        A message with a `draft_id` replaces the draft, if it was shown.

        Raises:
            DeliveryError: it was not delivered; the error says whether to try again.
        """

    async def show_draft(self, draft: Draft) -> None:
        """Show an answer as far as it has come; only called with an `edit_interval_s`.

        Drafts may be left out; an exception is logged and affects the draft, not the answer.

        Cancellation:
            Comes at any moment, also while the draft is on its way; `send` with its id may follow
            at once.
        """

    async def drop_draft(self, chat_id: str, draft_id: str) -> None:
        """Remove a draft that no answer will replace; errors as `show_draft`."""

    async def show_typing(self, chat_id: str) -> None:
        """Show that an answer is being made; only called with a `typing_interval_s`."""

    async def login(self, prompt: LoginPrompt | None = None) -> str:
        """Sign in, or check the credentials, without receiving; `stop` is called afterwards.

        Args:
            prompt: the person who can scan a code or open a page, if the platform requires that.

        Returns:
            Who the agent is on this platform, for the owner.

        Raises:
            ChannelError: the platform does not accept the credentials, or is out of reach.
        """
        return f"{self.name} needs no login"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelSpec:
    """A channel as a plugin contributes it.

    Attributes:
        name: channel name; its settings are in ``channels.<name>``, and the model that the plugin
            names for them in ``contribute_settings`` derives from `ChannelSettings`.
        factory: ``package.module:name`` of a callable ``(ctx)`` that returns a `Channel`.
        summary: one line for ``nanobot channels status``.
        secrets: settings keys that hold secrets.
        owner_id: a sender id with which only the owner writes, because the plugin has checked who
            it is; empty if ``owner`` in the configuration says who the owner is. With it, the
            channel also runs without a section.
    """

    name: str
    factory: str
    summary: str = ""
    secrets: tuple[str, ...] = ()
    owner_id: str = ""
