"""The parts of Discord's events that the channel reads (API version 10).

The models of the SDK raise on a missing field, which ends the connection. Here each event is
validated separately, so that a malformed one does not affect the others. Other fields are ignored.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, ClassVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

_JOINERS = "\u200c\u200d"
"""Invisible characters that are part of names in some scripts, and of some emoji."""


def _on_one_line(name: str) -> str:
    """Return the visible characters of a name, which users choose themselves."""
    flat = " ".join(name.split())
    return "".join(letter for letter in flat if letter.isprintable() or letter in _JOINERS)


Name = Annotated[str, AfterValidator(_on_one_line)]
Id = Annotated[str, Field(pattern=r"\A[0-9]{1,20}\z")]
"""A snowflake: digits that contain the time of creation."""


class _Wire(BaseModel):
    model_config = ConfigDict(
        frozen=True, extra="ignore", defer_build=True, coerce_numbers_to_str=True
    )

    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, data: object) -> object:
        """Discord writes null where a field has no value."""
        if isinstance(data, dict):
            return {key: value for key, value in data.items() if value is not None}
        return data


class Frame(_Wire):
    """What the event stream carries; ``d`` depends on the operation and the event."""

    op: int
    s: int | None = None
    t: str = ""
    d: Any = None


class User(_Wire):
    """A person or a bot."""

    id: Id
    username: Name = ""
    global_name: Name = ""
    bot: bool = False
    discriminator: Name = "0"

    @property
    def unique_names(self) -> tuple[str, ...]:
        """The user name, if no other account can have it.

        The names of bots, and of accounts with a discriminator, are unique only with that.
        """
        is_unique = not self.bot and self.discriminator in {"", "0"}
        return (self.username,) if self.username and is_unique else ()

    @property
    def shown_name(self) -> str:
        """The name that others see."""
        return self.global_name or self.username or self.id


class Member(_Wire):
    """A user in a server."""

    user: User | None = None
    nick: Name = ""


class Attachment(_Wire):
    """A file of a message."""

    url: str
    filename: Name = "attachment"
    size: int | None = None


class Sticker(_Wire):
    """A sticker of a message."""

    name: Name = ""


class _PollText(_Wire):
    text: str = ""


class _PollAnswer(_Wire):
    poll_media: _PollText = _PollText()


class Poll(_Wire):
    """A question with answers to choose from."""

    question: _PollText = _PollText()
    answers: tuple[_PollAnswer, ...] = ()


class Snapshot(_Wire):
    """A forwarded message, without its author."""

    content: str = ""
    attachments: tuple[Attachment, ...] = ()
    sticker_items: tuple[Sticker, ...] = ()
    poll: Poll | None = None


class _Snapshots(_Wire):
    message: Snapshot = Snapshot()


class Message(Snapshot):
    """A message; updates may lack every field but the ids.

    Attributes:
        type: 0 for an ordinary message, 19 for a reply; the others are notices of Discord.
    """

    id: Id
    channel_id: Id
    guild_id: Id | None = None
    author: User | None = None
    member: Member | None = None
    type: int = 0
    edited_timestamp: str = ""
    webhook_id: Id | None = None
    mentions: tuple[User, ...] = ()
    mention_roles: tuple[Id, ...] = ()
    referenced_message: Message | None = None
    message_snapshots: tuple[_Snapshots, ...] = ()

    def parts(self) -> Iterator[Snapshot]:
        """Yield what people see: the message, and the messages that it forwards."""
        yield self
        for snapshot in self.message_snapshots:
            yield snapshot.message


class Channel(_Wire):
    """A channel of a server, a thread or a direct chat."""

    THREADS: ClassVar[frozenset[int]] = frozenset({10, 11, 12})

    id: Id
    type: int = 0
    guild_id: Id | None = None
    parent_id: Id | None = None

    @property
    def thread_parent(self) -> str | None:
        """The channel that contains it, if it is a thread. Channels have a category as parent."""
        return self.parent_id if self.type in self.THREADS else None


class _RoleTags(_Wire):
    bot_id: Id | None = None


class _Role(_Wire):
    id: Id
    tags: _RoleTags = _RoleTags()


class Guild(_Wire):
    """A server, which Discord's API calls a guild; or a list of its threads."""

    id: Id = "0"
    guild_id: Id | None = None
    channels: tuple[Channel, ...] = ()
    threads: tuple[Channel, ...] = ()
    roles: tuple[_Role, ...] = ()


class _SessionStarts(_Wire):
    remaining: int = 1
    reset_after: float = 0.0


class Gateway(_Wire):
    """Where the event stream is, and how many sessions may begin until `reset_after` ms pass."""

    url: str
    session_start_limit: _SessionStarts = _SessionStarts()


class Application(_Wire):
    """The application of a bot."""

    id: Id


class Sent(_Wire):
    """A message of the bot that was sent."""

    id: Id


class Ready(_Wire):
    """The beginning of a session."""

    session_id: str
    resume_gateway_url: str


class Option(_Wire):
    """What a person gives to a slash command."""

    value: str = ""


class InteractionData(_Wire):
    """A command or a pressed button."""

    name: str = ""
    custom_id: str = ""
    options: tuple[Option, ...] = ()


class Interaction(_Wire):
    """A person uses a slash command (type 2) or presses a button (type 3)."""

    id: Id
    application_id: Id
    type: int
    token: str
    channel_id: Id
    guild_id: Id | None = None
    channel: Channel | None = None
    member: Member | None = None
    user: User | None = None
    data: InteractionData = InteractionData()

    @property
    def author(self) -> User | None:
        """Who did it: in a server a member, otherwise a user."""
        return self.user or (self.member.user if self.member is not None else None)
