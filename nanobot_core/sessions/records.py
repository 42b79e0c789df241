"""Lines of a session file: encoding, decoding, and salvaging damaged ones.

A line is a message in the OpenAI key names or a metadata line (``"_type": "metadata"``).
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import asdict, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, TypeAlias

from nanobot_core.contracts.store import Checkpoint, SessionState
from nanobot_core.messages import Message, message_from_json, message_to_json
from nanobot_core.record import dataclass
from nanobot_core.text import MAX_JSON_DEPTH, is_deeper, parse_json_object

if TYPE_CHECKING:
    from nanobot_core.messages import JsonObject, JsonValue

_PAIR_START = re.compile(r'\s*[{,]\s*"([^"\\]*)"\s*:\s*')
_STRING_BODY = re.compile(r'"((?:[^"\\]++|\\.)*+)"?', re.DOTALL)
_ESCAPE = re.compile(r'\\(["\\/bfnrt]|u[0-9a-fA-F]{4}|)')
_LENIENT = json.JSONDecoder(
    strict=False,
    parse_constant=lambda _: None,
    parse_float=lambda digits: number if math.isfinite(number := float(digits)) else None,
)
_JOINT_TRIES = 64
ORIGINAL_PROGRESS = frozenset({"runtime_checkpoint", "pending_user_turn"})
"""Names in a session's metadata by which nanobot-ai marks an interrupted turn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """A metadata line: a state, and the counts that let a reader begin at the end of the file.

    Attributes:
        key: session key; empty if the line has none.
        state: state of the session as of this line.
        message_count: messages before this line; ``None`` if its writer did not count them.
        superseded_bytes: length of all earlier metadata lines together.
        is_bare: ``metadata`` is null in the line, which means that of the metadata line before it.
    """

    key: str
    state: SessionState
    message_count: int | None = None
    superseded_bytes: int = 0
    is_bare: bool = False


Record: TypeAlias = Header | Message


def encode_record(record: Record) -> bytes:
    """Return the line of `record`, line feed included.

    Raises:
        ValueError: it contains a number that JSON lacks, such as NaN.
    """
    content = message_to_json(record) if isinstance(record, Message) else _header_to_json(record)
    text = json.dumps(content, ensure_ascii=False, allow_nan=False)
    # A lone surrogate would make the file, and later the request, unreadable.
    return text.encode("utf-8", "replace") + b"\n"


def decode_line(line: bytes, default_time: datetime) -> Record | None:
    """Return the record in `line`, or ``None`` if it is damaged.

    Args:
        line: with or without its line feed.
        default_time: replaces times that a metadata line lacks; aware.
    """
    try:
        record = parse_json_object(line.decode("utf-8"))
    except UnicodeDecodeError:
        return None
    return None if record is None else _record(record, default_time)


def salvage(line: bytes, default_time: datetime) -> list[Record]:
    """Return the records that are certain in a damaged line, in linear time.

    An incomplete line yields its complete fields and the beginning of the text in which it ends.
    If an incomplete line and a complete one were joined, both are read. A role is never guessed.
    """
    text = line.decode("utf-8", "replace")
    whole = _whole_object_at_end(text)
    head = _parse_prefix(text[: len(text) - len(whole)])
    records: list[Record] = []
    beginning = _record(head, default_time)
    if isinstance(beginning, Message) and beginning.text.strip():
        records.append(beginning)
    joined = _record(parse_json_object(whole) or {}, default_time)
    if joined is not None:
        records.append(joined)
    return records


def original_progress(metadata: JsonObject, default_time: datetime) -> list[Message]:
    """Return the messages of an interrupted turn that nanobot-ai keeps in a session's metadata.

    It stores the model's reply and the results so far there, and adds them to the session when the
    turn has ended. Calls without a result are left to `nanobot_core.sessions.history.align`.
    """
    checkpoint = metadata.get("runtime_checkpoint")
    fields = checkpoint if isinstance(checkpoint, dict) else {}
    results = fields.get("completed_tool_results")
    found = [fields.get("assistant_message"), *(results if isinstance(results, list) else [])]
    records = (_record(item, default_time) for item in found if isinstance(item, dict))
    return [record for record in records if isinstance(record, Message)]


def _header_to_json(header: Header) -> JsonObject:
    state = header.state
    return {
        "_type": "metadata",
        "key": header.key,
        "created_at": state.created_at.isoformat(),
        "updated_at": state.updated_at.isoformat(),
        "metadata": None if header.is_bare else state.metadata,
        "last_consolidated": state.last_consolidated,
        "runtime_checkpoint": asdict(state.checkpoint) if state.checkpoint else None,
        "message_count": header.message_count,
        "superseded_bytes": header.superseded_bytes,
    }


def _record(record: JsonObject, default_time: datetime) -> Record | None:
    if record.get("_type") == "metadata":
        return _header(record, default_time)
    try:
        message = message_from_json(record)
    except ValueError:
        return None
    if message.timestamp is not None and message.timestamp.tzinfo is None:
        message = replace(message, timestamp=_aware(message.timestamp))
    return message


def _header(record: JsonObject, default_time: datetime) -> Header:
    key, count, metadata = (record.get(name) for name in ("key", "message_count", "metadata"))
    created_at = _instant(record.get("created_at"), default_time)
    return Header(
        key=key if isinstance(key, str) else "",
        state=SessionState(
            created_at=created_at,
            updated_at=_instant(record.get("updated_at"), created_at),
            last_consolidated=_count(record.get("last_consolidated")),
            checkpoint=_checkpoint(record.get("runtime_checkpoint")),
            metadata=metadata if isinstance(metadata, dict) else {},
        ),
        message_count=None if count is None else _count(count),
        superseded_bytes=_count(record.get("superseded_bytes")),
        is_bare="metadata" in record and metadata is None,
    )


def _checkpoint(value: JsonValue) -> Checkpoint | None:
    if not isinstance(value, dict) or not isinstance(turn_id := value.get("turn_id"), str):
        return None
    inbound_id, running = value.get("inbound_id"), value.get("running")
    calls = running if isinstance(running, list) else []
    return Checkpoint(
        turn_id=turn_id,
        inbound_id=inbound_id if isinstance(inbound_id, str) else None,
        iteration=_count(value.get("iteration")),
        running=tuple(call for call in calls if isinstance(call, str)),
    )


def _count(value: JsonValue) -> int:
    return value if type(value) is int and value > 0 else 0


def _instant(value: JsonValue, default_time: datetime) -> datetime:
    try:
        instant = datetime.fromisoformat(value) if isinstance(value, str) else default_time
    except ValueError:
        return default_time
    return instant if instant.tzinfo else _aware(instant)


def _aware(local: datetime) -> datetime:
    """nanobot-ai writes local times without their zone."""
    try:
        return local.astimezone()
    except (OverflowError, ValueError, OSError):
        return local.replace(tzinfo=UTC)


def _whole_object_at_end(text: str) -> str:
    """Return the object that ends `text` and began in its middle, or an empty string.

    An object inside another one is followed by the rest of that one, so it is not mistaken for it.
    """
    position = len(text)
    for _ in range(_JOINT_TRIES):
        position = text.rfind('{"', 0, position)
        if position <= 0:
            break
        if parse_json_object(text[position:]) is not None:
            return text[position:]
    return ""


def _parse_prefix(text: str) -> JsonObject:
    """Return the leading pairs of the object in `text`; an incomplete string counts.

    A repeated name belongs to another line that was joined to this one.
    """
    pairs: JsonObject = {}
    position = 0
    while (match := _PAIR_START.match(text, position)) and match[1] not in pairs:
        try:
            value, position = _LENIENT.raw_decode(text, match.end())
            pairs[match[1]] = None if is_deeper(value, MAX_JSON_DEPTH) else value
        except (ValueError, RecursionError):
            string = _STRING_BODY.match(text, match.end())
            if string is None:
                break
            pairs[match[1]], position = _unescape(string[1]), string.end()
    return pairs


def _unescape(body: str) -> str:
    """Return the text of a JSON string; a backslash that begins no escape is kept."""
    repaired = _ESCAPE.sub(lambda match: match[0] if match[1] else r"\\", body)
    text: str = _LENIENT.decode(f'"{repaired}"')
    return text.encode("utf-8", "replace").decode("utf-8")
