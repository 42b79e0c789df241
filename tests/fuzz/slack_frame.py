"""Frames of Slack's socket: read with their own sender, or dropped."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

from pydantic import ValidationError

from nanobot_core.bus.entry import decode_inbound, encode_inbound
from nanobot_core.channels.access import fault_of
from nanobot_core.chat import Received
from nanobot_slack import wire
from nanobot_slack.mapping import Account, Reader, Rules

TOKENS: Final = (
    b'{"type":"events_api","envelope_id":"e","payload":{"event":{', b'"channel":"D1A"',
    b'"user":"U7"', b'"bot_id":"B2"', b'"ts":"1790000000.000100"', b'"thread_ts":"', b'"text":"',
    b'"subtype":"message_changed"', b'"message":{', b'"edited":{"user":"U7","ts":"1.1"}',
    b'"files":[{"id":"F1"', b'"attachments":[{"is_share":true', b"<@UBOT>", b"<!here|", b"&lt;",
    b"\\ud800", b"null", b"[[[[[[[[", b"1e999", b"9" * 30, b"\xff",
)  # fmt: skip
_READER: Final = Reader(
    Account(team="T1", user="UBOT", bot="BBOT"),
    Rules(edited_messages=True, allow_bots=("B2", "BBOT"), commands=("stop",)),
)
_TS: Final = "1790000000.000100"


def fuzz_one(data: bytes) -> None:
    """Read a frame as each kind of payload that has an author."""
    try:
        payload: dict[str, Any] = wire.read_frame(data.decode("utf-8", "replace")).payload
    except (ValueError, RecursionError):
        return
    try:
        received = _READER.event(payload)
    except ValidationError:
        pass
    else:
        event = payload.get("event")
        source = event if isinstance(event, dict) else {}
        if received is not None and received.message.metadata.get("edited"):
            source = source["message"]
        _check({source.get("user"), source.get("bot_id")}, received)
    try:
        press = wire.Press.model_validate(payload)
        _check({press.user.id}, _READER.press(press))
    except ValidationError:
        pass
    try:
        command = wire.Command.model_validate(payload)
        _check({command.user_id}, _READER.command(command))
    except ValidationError:
        pass


def seeds() -> Iterator[bytes]:
    """Yield a message with everything, an edit, a pressed button and a command."""
    message = {"type": "message", "user": "U7", "ts": _TS, "text": "<@UBOT> hi <https://a|b> &amp;"}
    file = {"id": "F1", "name": "a.png", "size": 3, "url_private": "https://files.slack.com/a"}
    shared = {"is_share": True, "author_name": "Bert", "text": "/stop"}
    more = {"files": [file], "attachments": [shared], "subtype": "file_share", "thread_ts": "1.1"}
    yield _frame("events_api", {"event": message | more | {"channel": "C1A"}})
    changed = {"type": "message", "subtype": "message_changed", "channel": "D1A", "ts": _TS}
    new = message | {"edited": {"user": "U7", "ts": "1.1"}}
    yield _frame("events_api", {"event": changed | {"message": new, "previous_message": message}})
    place = {"channel_id": "C1A", "message_ts": _TS, "thread_ts": _TS}
    pressed = {"type": "block_actions", "user": {"id": "U7"}, "container": place}
    yield _frame("interactive", pressed | {"actions": [{"value": "/approve", "action_ts": _TS}]})
    used = {"command": "/nanobot", "text": "stop", "user_id": "U7", "channel_id": "D1A"}
    yield _frame("slash_commands", used | {"trigger_id": "1.2.a"})


def _frame(kind: str, payload: object) -> bytes:
    return json.dumps({"type": kind, "envelope_id": "e", "payload": payload}).encode()


def _check(authors: set[object], received: Received | None) -> None:
    if received is None:
        return
    message = received.message
    assert message.sender_id in authors
    assert message.sender_id not in {"UBOT", "BBOT", ""}
    assert fault_of(message) == ""
    assert decode_inbound(encode_inbound(message)) == message
