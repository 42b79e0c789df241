"""ChatPlatform: an open connection to a chat platform, which a channel plugin implements."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING

from nanobot_core.chat.pieces import Piece, SendLimits
from nanobot_core.record import dataclass

if TYPE_CHECKING:
    from nanobot_core.chat.intake import Intake
    from nanobot_core.contracts.login import LoginPrompt
    from nanobot_core.messages import InboundMessage


@dataclass(frozen=True, slots=True, kw_only=True)
class Attachment:
    """A file of a received message, which is not fetched yet.

    Attributes:
        ref: what `ChatPlatform.fetch` needs to find it, such as an id or an address; different for
            each file of a message.
        name: file name with an extension, as the sender gives it; it is made safe when it is saved.
        size: bytes as the platform reports them, or ``None`` if unknown.
    """

    ref: str
    name: str
    size: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Received:
    """A message from the platform.

    Attributes:
        message: the message without its files.
        files: fetched after the message is admitted.
        album: id of the album that contains it, if the platform sends each file of an album as a
            message of its own; its messages are joined.
        said: the text that this part adds to its album; `message.content` is the whole of the
            first part.
        settled: called when the message is stored or refused, with whether it was admitted; for
            instance to confirm a pressed button. A `CallFailed` of it is ignored.
    """

    message: InboundMessage
    files: tuple[Attachment, ...] = ()
    album: str | None = None
    said: str = ""
    settled: Callable[[bool], Awaitable[None]] | None = None


class ChatPlatform(ABC):
    """An open connection to a chat platform.

    A `ChatChannel` makes one for each start of the channel, and uses it for everything. Every
    method raises `CallFailed` if the platform does not accept the call, refuses the credentials
    or cannot be reached; no other exception of a library leaves this class. Every call has a time
    limit. Ids of chats and messages are texts; the platform's own ids, never names.

    Attributes:
        limits: what one call of `send` takes.
        completes_drafts: a draft needs a last `edit` even if its text does not change, for instance
            because the platform shows that it is being written.
    """

    limits: SendLimits
    completes_drafts: bool = False

    @abstractmethod
    async def sign_in(self) -> str:
        """Check the credentials with one call, and return who the agent is on this platform.

        Called before `receive`, and by ``nanobot channels login``.
        """

    async def link(self, prompt: LoginPrompt) -> str:
        """Let a person link an account, after `sign_in`; only needed if the platform requires it.

        Returns:
            What to add to the name of the account, for the owner.
        """
        return ""

    @abstractmethod
    async def receive(self, intake: Intake) -> None:
        """Pass everything that arrives to `intake` until cancelled.

        Call `Intake.alive` whenever the platform has sent anything. A lost connection that the
        platform can resume is resumed here; for all others raise `CallFailed`, and the gateway
        makes a new connection after a pause.
        """

    @abstractmethod
    async def send(self, chat_id: str, piece: Piece, *, reply_to: str | None, key: str) -> str:
        """Send one piece, and return the id of its (first) message.

        Args:
            chat_id: as in `InboundMessage.chat_id`; what a tool names may be anything.
            piece: within `limits`.
            reply_to: `InboundMessage.dedupe_key` of the message that it answers, or ``None``.
            key: the same when the same piece is sent again after an unknown outcome, for platforms
                that send equal keys once; empty for what is never repeated.
        """

    async def edit(self, chat_id: str, message_id: str, piece: Piece) -> None:
        """Replace the text of a message; only needed with an `edit_interval_s`."""
        raise NotImplementedError

    async def delete(self, chat_id: str, message_id: str) -> None:
        """Remove a message, or do nothing if it is gone; only needed with an `edit_interval_s`."""
        raise NotImplementedError

    async def show_typing(self, chat_id: str) -> None:
        """Show a typing indicator; only needed with a `typing_interval_s`."""
        raise NotImplementedError

    def fetch(self, file: Attachment) -> AsyncIterator[bytes]:
        """Yield the content of a file of a received message.

        Credentials are sent to the platform's own hosts only.
        """
        raise NotImplementedError

    async def aclose(self) -> None:  # noqa: B027 - most SDKs need it, some platforms do not
        """Close the connection. Can be called again."""
