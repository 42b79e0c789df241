"""Frames of Discord's event stream: read with their own sender, or dropped."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Final

from pydantic import ValidationError

from nanobot_core.bus.entry import decode_inbound, encode_inbound
from nanobot_core.channels.access import fault_of
from nanobot_core.chat import Received
from nanobot_discord import wire
from nanobot_discord.events import read_frame
from nanobot_discord.mapping import Place, Reader

TOKENS: Final = (
    b'{"op":0,"t":"MESSAGE_CREATE","s":1,"d":{', b'"id":"1"', b'"channel_id":"2"', b'"author":{',
    b'"content":"', b'"referenced_message":', b'"message_snapshots":[{"message":', b'"mentions":[',
    b'"edited_timestamp":"', b"2026-11-23T12:00:00+00:00", b'"attachments":[{"url":"', b"<@900>",
    b"<a:x:1>", b"\\ud800", b"null", b"[[[[[[[[", b"1e999", b"9" * 30, b"\xff", b'"bot":true',
)  # fmt: skip
_READER: Final = Reader("900", roles={"901"})
_PLACE: Final = Place("2", parent_id="3", guild_id="4")
_AUTHOR: Final = {"id": "7", "username": "anna", "global_name": "Anna"}


def fuzz_one(data: bytes) -> None:
    """Read a frame as each kind of event that has an author."""
    try:
        frame = read_frame(data)
    except (ValueError, RecursionError):
        return
    for model in (wire.Ready, wire.Guild, wire.Channel, wire.Message, wire.Interaction):
        try:
            event = model.model_validate(frame.d)
        except ValidationError:
            continue
        if isinstance(event, wire.Message):
            _check(event.author, _READER.read_message(event, _PLACE))
            _check(event.author, _READER.read_message(event, _PLACE, is_edit=True))
        elif isinstance(event, wire.Interaction):
            _check(event.author, _READER.read_interaction(event, _PLACE))


def seeds() -> Iterator[bytes]:
    """Yield a message with everything, a reply, a command and a pressed button."""
    message = {"id": "1", "channel_id": "2", "guild_id": "4", "author": _AUTHOR}
    mention = {"content": "<@900> hi <:ok:1>", "mentions": [{"id": "900", "username": "nano"}]}
    file = {"url": "https://cdn.discordapp.com/a", "filename": "a.png", "size": 3}
    snapshot = {"message": {"content": "/stop", "attachments": [file]}}
    yield _frame("MESSAGE_CREATE", message | mention | {"attachments": [file]})
    yield _frame("MESSAGE_CREATE", message | {"content": "x", "referenced_message": message})
    yield _frame("MESSAGE_UPDATE", message | {"message_snapshots": [snapshot]})
    used = {"id": "1", "application_id": "9", "token": "t", "channel_id": "2", "user": _AUTHOR}
    yield _frame("INTERACTION_CREATE", used | {"type": 2, "data": {"name": "new"}})
    yield _frame("INTERACTION_CREATE", used | {"type": 3, "data": {"custom_id": "0:yes"}})


def _frame(name: str, data: object) -> bytes:
    return json.dumps({"op": 0, "t": name, "s": 1, "d": data}).encode()


def _check(author: wire.User | None, received: Received | None) -> None:
    if received is None:
        return
    message = received.message
    assert author is not None
    assert message.sender_id == author.id
    assert message.chat_id == "3:2"
    assert fault_of(message) == ""
    assert decode_inbound(encode_inbound(message)) == message
