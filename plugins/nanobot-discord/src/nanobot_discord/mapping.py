"""Maps Discord's messages and interactions to inbound messages."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime

from nanobot_core import InboundMessage, JsonObject, shorten
from nanobot_core.chat import Attachment, Received
from nanobot_discord import wire

_QUOTE_CHARS = 500
_EPOCH_MS = 1_420_070_400_000
"""Discord counts from the beginning of 2015."""
_ORDINARY = frozenset({0, 19})
"""Messages and replies. The other types are notices, such as of a new member or thread."""
_COMMAND, _PRESS = 2, 3
_USER = re.compile(r"<@!?([0-9]{1,20})>")
_EMOJI = re.compile(r"<a?:(\w{1,64}):[0-9]{1,20}>")
_BUTTON_NUMBER = re.compile(r"\A[0-9]{1,2}:")


@dataclass(frozen=True, slots=True)
class Place:
    """Where a message was written.

    Attributes:
        channel_id: of the channel, thread or direct chat.
        parent_id: the channel of a thread.
        guild_id: the server, or ``None`` in a direct chat.
    """

    channel_id: str
    parent_id: str | None = None
    guild_id: str | None = None

    @property
    def chat_id(self) -> str:
        """The chat; a thread contains its channel, so that the channel's settings apply."""
        return f"{self.parent_id}:{self.channel_id}" if self.parent_id else self.channel_id

    def is_in(self, channels: frozenset[str]) -> bool:
        """Whether it is one of `channels` or a thread of one."""
        return self.channel_id in channels or self.parent_id in channels


@dataclass(slots=True)
class Reader:
    """Reads what people write to one bot.

    Attributes:
        user_id: the bot's own user.
        allow_channels: the only channels to read; empty means all.
        allow_bots: bots and webhooks whose messages count.
        roles: roles that belong to the bot; mentioning one addresses it.
    """

    user_id: str
    allow_channels: frozenset[str] = frozenset()
    allow_bots: frozenset[str] = frozenset()
    roles: set[str] = field(default_factory=set)

    def read_message(
        self, message: wire.Message, place: Place, *, is_edit: bool = False
    ) -> Received | None:
        """Return the content of a message, or ``None`` if it has none for the agent.

        Args:
            is_edit: it was read before, and its author has changed it.
        """
        author = message.author
        if author is None or not self._is_read(message, author, place):
            return None
        parts = list(message.parts())
        is_forwarded = len(parts) > 1
        said = "\n".join(line for part in parts for line in self._said(part, message) if line)
        files = tuple(file for part in parts for file in _files(part))
        if not (said or files):
            return None
        # A new command is recognised only without context.
        is_command = said.startswith("/") and not is_edit and not is_forwarded
        lines = [] if is_command else list(self._context(message))
        if is_edit:
            lines.append("[edited]")
        inbound = InboundMessage(
            channel="discord",
            sender_id=author.id,
            chat_id=place.chat_id,
            content="\n".join(line for line in (*lines, said) if line),
            sender_names=() if message.webhook_id is not None else author.unique_names,
            timestamp=(_edited_at(message) if is_edit else None) or created_at(message.id),
            metadata=_facts(place, author)
            | {"message_id": message.id}
            | ({"edited": True} if is_edit else {}),
            dedupe_key=f"{message.id}:{message.edited_timestamp}" if is_edit else message.id,
            is_group=place.guild_id is not None,
            is_addressed=self._is_addressed(message),
            is_forwarded=is_forwarded,
        )
        return Received(message=inbound, files=files)

    def read_interaction(self, interaction: wire.Interaction, place: Place) -> Received | None:
        """Return a slash command or a pressed button as a message; ``None`` for other kinds."""
        author = interaction.author
        if author is None or (self.allow_channels and not place.is_in(self.allow_channels)):
            return None
        data = interaction.data
        if interaction.type == _COMMAND:
            words = (option.value for option in data.options)
            content = " ".join((f"/{data.name}", *words)).strip()
        elif interaction.type == _PRESS:
            content = _BUTTON_NUMBER.sub("", data.custom_id)
        else:
            return None
        inbound = InboundMessage(
            channel="discord",
            sender_id=author.id,
            chat_id=place.chat_id,
            content=content,
            sender_names=author.unique_names,
            timestamp=created_at(interaction.id),
            metadata=_facts(place, author) | {"button": interaction.type == _PRESS},
            dedupe_key=f"interaction:{interaction.id}",
            is_group=place.guild_id is not None,
            is_addressed=True,
        )
        return Received(message=inbound)

    def _is_read(self, message: wire.Message, author: wire.User, place: Place) -> bool:
        if message.type not in _ORDINARY or author.id == self.user_id:
            return False
        if self.allow_channels and not place.is_in(self.allow_channels):
            return False
        is_machine = author.bot or message.webhook_id is not None
        return not is_machine or author.id in self.allow_bots

    def _is_addressed(self, message: wire.Message) -> bool:
        answered = message.referenced_message
        if answered is not None and answered.author and answered.author.id == self.user_id:
            return True
        if any(user.id == self.user_id for user in message.mentions):
            return True
        return not self.roles.isdisjoint(message.mention_roles)

    def _said(self, part: wire.Snapshot, message: wire.Message) -> Iterator[str]:
        """Yield what a part says, without mentions of the bot, which address it."""
        names = {user.id: user.username or user.id for user in message.mentions}

        def named(found: re.Match[str]) -> str:
            return "" if found[1] == self.user_id else f"@{names.get(found[1], found[1])}"

        text = _USER.sub(named, part.content)
        for role in self.roles:
            text = text.replace(f"<@&{role}>", "")
        yield _EMOJI.sub(r":\1:", text).strip()
        yield from (f"[sticker: {sticker.name}]" for sticker in part.sticker_items)
        if part.poll is not None:
            options = "; ".join(answer.poll_media.text for answer in part.poll.answers)
            yield f"[poll: {part.poll.question.text} ({options})]"

    def _context(self, message: wire.Message) -> Iterator[str]:
        """Yield lines about what a message refers to."""
        answered = message.referenced_message
        if answered is not None:
            text = "\n".join(line for line in self._said(answered, answered) if line)
            text = text or next((f"[{file.filename}]" for file in answered.attachments), "")
            name = answered.author.shown_name if answered.author else "a message"
            if text:
                yield f"[in reply to {name}]\n> {shorten(text, _QUOTE_CHARS)}"
        if message.message_snapshots:
            yield "[forwarded from an unknown sender]"


def created_at(snowflake: str) -> datetime | None:
    """Return the time that an id contains."""
    try:
        return datetime.fromtimestamp(((int(snowflake) >> 22) + _EPOCH_MS) / 1_000, UTC)
    except (OverflowError, ValueError, OSError):
        return None


def oldest_id(instant: datetime) -> str:
    """Return the smallest id of messages that are not older than `instant`."""
    return str(max(int(instant.timestamp() * 1_000) - _EPOCH_MS, 0) << 22)


def _edited_at(message: wire.Message) -> datetime | None:
    try:
        found = datetime.fromisoformat(message.edited_timestamp)
    except ValueError:
        return None
    return found if found.tzinfo is not None else None


def _files(part: wire.Snapshot) -> Iterator[Attachment]:
    for file in part.attachments:
        yield Attachment(ref=file.url, name=file.filename or "attachment", size=file.size)


def _facts(place: Place, author: wire.User) -> JsonObject:
    facts: JsonObject = {
        "is_group": place.guild_id is not None,
        "user_id": author.id,
        "username": author.username,
        "first_name": author.global_name or author.username,
    }
    if place.guild_id is not None:
        facts["guild_id"] = place.guild_id
    if place.parent_id is not None:
        facts["thread"] = place.channel_id
    return facts
