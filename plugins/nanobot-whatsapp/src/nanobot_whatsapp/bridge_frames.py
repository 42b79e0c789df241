"""Frames of the bridge, and their conversion to messages of nanobot, with pure functions."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Annotated

from pydantic import AfterValidator, Field, StringConstraints

from nanobot_core import InboundMessage, JsonObject
from nanobot_core.chat import Attachment, Received
from nanobot_whatsapp.mapping import CHANNEL, instant, spellings
from nanobot_whatsapp.wire import Wire

_PHONE_HOST = "s.whatsapp.net"
_PHONE_HOSTS = frozenset({"", _PHONE_HOST, "c.us"})
_HIDDEN_HOSTS = frozenset({"lid", "lid.whatsapp.net"})
_GROUP_HOST = "g.us"
_VOICE = "[Voice Message]"
_PLACEHOLDERS = frozenset({_VOICE, "[Image]", "[Video]", "[Document]"})
"""What the bridge writes instead of the text of a file."""
_MENTION = re.compile(r"@[0-9]{5,20}\s*")


@dataclass(frozen=True, slots=True)
class Jid:
    """An address of WhatsApp, such as ``49123@s.whatsapp.net``.

    Attributes:
        user: phone number, hidden id or id of a group.
        host: kind of address, or an empty string.
    """

    user: str
    host: str = ""

    @property
    def phone(self) -> str:
        """The phone number; empty if it is another kind of address."""
        return self.user if self.host in _PHONE_HOSTS and self.user.isdecimal() else ""

    @property
    def hidden(self) -> str:
        """The id that hides a phone number, as ``123@lid``; empty if it is another kind."""
        return f"{self.user}@lid" if self.host in _HIDDEN_HOSTS else ""

    @property
    def is_group(self) -> bool:
        """Whether it is a group."""
        return self.host == _GROUP_HOST

    @property
    def is_chat(self) -> bool:
        """Whether people write there to the agent; false for the status of people and channels."""
        return bool(self.phone or self.hidden or self.is_group)

    def __str__(self) -> str:
        return f"{self.user}@{self.host or _PHONE_HOST}"


_JID = re.compile(r"([0-9A-Za-z._-]{1,64})(?::[0-9]{1,6})?(?:@([a-z.]{1,40}))?")


def parse_jid(text: str) -> Jid | None:
    """Return an address without the number of the device, or ``None`` if it is none."""
    found = _JID.fullmatch(text)
    return Jid(found[1], found[2] or "") if found else None


def _check_jid(text: str) -> str:
    if text and parse_jid(text) is None:
        msg = "not an address of WhatsApp"
        raise ValueError(msg)
    return text


_JidText = Annotated[str, AfterValidator(_check_jid)]


class Frame(Wire):
    """Any frame; `type` determines its other fields."""

    type: str = ""
    status: str = ""
    qr: str = ""
    error: str = ""


class MessageFrame(Wire):
    """A message.

    Attributes:
        sender: the chat.
        pn: phone number of the person, or empty.
        participant: who wrote in a group, or empty.
        media: paths of files that the bridge has saved.
    """

    id: Annotated[str, StringConstraints(pattern=r"^[!-~]{1,200}$")]
    sender: _JidText
    pn: _JidText = ""
    participant: _JidText = ""
    content: str = ""
    timestamp: int = 0
    is_group: bool = Field(default=False, alias="isGroup")
    is_forwarded: bool = Field(default=False, alias="isForwarded")
    was_mentioned: bool = Field(default=False, alias="wasMentioned")
    is_reply: bool = Field(default=False, alias="isReplyToBot")
    is_own: bool = Field(default=False, alias="fromMe")
    media: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Identity:
    """Who wrote a message.

    Attributes:
        phone: phone number; empty if unknown.
        hidden: id that hides the number, as ``123@lid``; empty if unknown.
        place: the chat, which is the sender if nothing else is known.
    """

    phone: str
    hidden: str
    place: str

    def sender_id(self, phone: str = "") -> str:
        """Return the id of the sender, given the phone number, if earlier messages showed it."""
        return self.phone or phone or self.hidden or self.place


def identity_of(frame: MessageFrame) -> Identity:
    """Return what a frame shows of its author; the fields differ between versions of the bridge."""
    texts = [frame.pn, frame.participant, "" if frame.is_group else frame.sender]
    known = [jid for jid in map(parse_jid, texts) if jid is not None and not jid.is_group]
    phone = next((jid.phone for jid in known if jid.phone), "")
    hidden = next((jid.hidden for jid in known if jid.hidden), "")
    return Identity(phone, hidden, str(parse_jid(frame.sender)))


def read_frame(frame: MessageFrame, sender_id: str) -> Received | None:
    """Return the content of a frame, or ``None`` if it has none for the agent."""
    chat = parse_jid(frame.sender)
    if chat is None or not chat.is_chat or frame.is_own:
        return None
    files = tuple(_attachments(frame))
    said = _said(frame, has_files=bool(files))
    if not said and not files:
        return None
    is_group = frame.is_group or chat.is_group
    forwarded = "[forwarded from an unknown sender]" if frame.is_forwarded else ""
    facts: JsonObject = {"message_id": frame.id, "is_group": is_group}
    inbound = InboundMessage(
        channel=CHANNEL,
        sender_id=sender_id,
        chat_id=str(chat),
        content="\n".join(part for part in (forwarded, said) if part),
        sender_names=spellings(sender_id),
        timestamp=instant(frame.timestamp),
        metadata=facts,
        dedupe_key=f"{chat}:{frame.id}",
        is_group=is_group,
        is_addressed=not is_group or frame.was_mentioned or frame.is_reply,
        is_forwarded=frame.is_forwarded,
    )
    return Received(message=inbound, said=said, files=files)


def _said(frame: MessageFrame, *, has_files: bool) -> str:
    text = frame.content.strip()
    if has_files and text in _PLACEHOLDERS:
        return ""
    # The mention would hide a command.
    return _MENTION.sub("", text, count=1) if frame.was_mentioned and text[:1] == "@" else text


def _attachments(frame: MessageFrame) -> Iterator[Attachment]:
    for number, path in enumerate(frame.media):
        name = PurePosixPath(path.replace("\\", "/")).name or f"file-{number}"
        # A file without a name of its own must still be recognised as a recording.
        if frame.content == _VOICE and "." not in name:
            name += ".ogg"
        yield Attachment(ref=path, name=name)
