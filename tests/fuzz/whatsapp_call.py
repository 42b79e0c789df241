"""Calls of WhatsApp and frames of its bridge: read with their own sender, or dropped."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Final

from pydantic import ValidationError

from nanobot_core.bus.entry import decode_inbound, encode_inbound
from nanobot_core.channels.access import fault_of
from nanobot_core.chat import Received
from nanobot_whatsapp import wire
from nanobot_whatsapp.bridge_frames import MessageFrame, identity_of, parse_jid, read_frame
from nanobot_whatsapp.envelope import Change, changes, parsed
from nanobot_whatsapp.mapping import Quoted, Sender, person_of, read_message

TOKENS: Final = (
    b'{"entry":[{"changes":[{"field":"messages","value":{', b'"messages":[', b'"contacts":[',
    b'"statuses":[', b'"from":"49151"', b'"user_id":"US.1"', b'"wa_id":"49152"', b'"id":"wamid.1"',
    b'"timestamp":"', b'"type":"interactive"', b'"text":{"body":"', b'"context":{"id":"', b"@lid",
    b'"sender":"', b'"participant":"', b"@g.us", b"\\ud800", b"null", b"[[[[[[[[", b"9" * 30,
)  # fmt: skip
_PHONE: Final = "4915100000001"


def fuzz_one(data: bytes) -> None:
    """Read a body as a call of the Cloud API, and as a frame of the bridge."""
    try:
        body = json.loads(data)
    except (ValueError, RecursionError):
        return
    for change in changes(body):
        _read_change(change)
    try:
        frame = MessageFrame.model_validate(body)
    except ValidationError:
        return
    author = identity_of(frame)
    if author.phone:
        texts = (frame.pn, frame.participant, frame.sender)
        assert author.phone in {jid.phone for jid in map(parse_jid, texts) if jid is not None}
    _check(author.sender_id(), read_frame(frame, author.sender_id()))


def _read_change(change: Change) -> None:
    contacts = list(parsed(wire.Person, change.contacts, _ignore))
    list(parsed(wire.Status, change.statuses, _ignore))
    for message in parsed(wire.Message, change.messages, _ignore):
        person = person_of(message, contacts)
        if person is None:
            continue
        sender_id = person.wa_id or person.user_id or ""
        own = {message.from_phone, message.from_user_id} - {None}
        assert own <= {person.wa_id, person.user_id}
        sender = Sender(id=sender_id, user_id=person.user_id, name=person.profile.name)
        _check(sender_id, read_message(message, sender, Quoted("", "words")))


def seeds() -> Iterator[bytes]:
    """Yield a call with everything, one of a hidden number, and frames of the bridge."""
    text = {"from": _PHONE, "id": "wamid.1", "timestamp": "1700000000", "text": {"body": "/stop"}}
    file = {"id": "1", "mime_type": "audio/ogg; codecs=opus", "caption": "see", "filename": "a.b"}
    reply = {"button_reply": {"id": "/approve 1", "title": "Allow"}}
    card = {"name": {"formatted_name": "Eve"}, "phones": [{"phone": "+1"}]}
    point = {"latitude": 1, "longitude": 2, "name": "Bar"}
    contact = {"wa_id": _PHONE, "user_id": "US.1", "profile": {"name": "Anna"}}
    yield _call(
        [contact],
        [
            {**text, "type": "text", "context": {"id": "wamid.0", "forwarded": True}},
            {**text, "type": "audio", "audio": file, "location": point, "contacts": [card]},
            {**text, "type": "interactive", "interactive": reply},
            {**text, "type": "reaction", "reaction": {"message_id": "wamid.0", "emoji": "x"}},
        ],
    )
    yield _call([{"user_id": "US.1"}], [{"id": "wamid.2", "type": "text", "text": {"body": "x"}}])
    frame = {"id": "1", "sender": f"{_PHONE}@s.whatsapp.net", "content": "hi", "timestamp": 1}
    group = {"sender": "120363@g.us", "isGroup": True, "participant": "77@lid", "pn": _PHONE}
    yield json.dumps(frame | {"media": ["/media/a.jpg"]}).encode()
    yield json.dumps(frame | group | {"wasMentioned": True}).encode()


def _call(contacts: list[object], messages: list[object]) -> bytes:
    status = {"id": "wamid.9", "status": "failed", "errors": [{"code": 131047, "title": "t"}]}
    value = {"contacts": contacts, "messages": messages, "statuses": [status]}
    return json.dumps({"entry": [{"changes": [{"field": "messages", "value": value}]}]}).encode()


def _ignore(*_: object) -> None:
    pass


def _check(sender_id: str, received: Received | None) -> None:
    if received is None:
        return
    message = received.message
    assert message.sender_id == sender_id
    assert fault_of(message) == ""
    assert decode_inbound(encode_inbound(message)) == message
