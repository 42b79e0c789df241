"""What a long connection carries: events in parts, acknowledgements and pings."""

from __future__ import annotations

import base64
import json
import time
from dataclasses import replace

from nanobot_core import JsonObject, JsonValue
from nanobot_core.chat import Recent
from nanobot_feishu.card import packed
from nanobot_feishu.frame import Frame

CONTROL, DATA = 0, 1
_MOST_PARTS = 100
_OPEN_EVENTS = 100
"""Events of which parts are missing; the oldest is dropped, and Feishu sends it again."""


class Parts:
    """Joins the parts of events, in any order."""

    def __init__(self) -> None:
        self._open: Recent[str, dict[int, bytes]] = Recent(_OPEN_EVENTS)

    def join(self, frame: Frame) -> bytes | None:
        """Return the payload of an event with its last part; ``None`` if others are missing."""
        payload = frame.payload or b""
        count, number = frame.header("sum"), frame.header("seq")
        if not (count.isdecimal() and number.isdecimal()) or int(count) <= 1:
            return payload
        if int(count) > _MOST_PARTS or int(number) >= int(count):
            return None
        key = frame.header("message_id")
        parts = self._open.get(key) or {}
        parts[int(number)] = payload
        if len(parts) < int(count):
            self._open.put(key, parts)
            return None
        self._open.drop(key)
        return b"".join(parts[index] for index in sorted(parts))


def acknowledgement(frame: Frame, began_s: float, data: JsonObject | None = None) -> Frame:
    """Return the frame that confirms `frame`.

    Args:
        began_s: `time.monotonic` when the frame arrived.
        data: the answer to a pressed button.
    """
    answer: JsonObject = {"code": 200}
    if data is not None:
        answer["data"] = base64.b64encode(packed(data).encode()).decode()
    took_ms = max(0, round((time.monotonic() - began_s) * 1000))
    headers = (*frame.headers, ("biz_rt", str(took_ms)))
    return replace(frame, headers=headers, payload=packed(answer).encode())


def ping(service: int) -> Frame:
    """Return a ping."""
    return Frame(service=service, method=CONTROL, headers=(("type", "ping"),))


def parse(payload: bytes) -> JsonValue:
    """Return the JSON of a payload, or ``None``."""
    try:
        value: JsonValue = json.loads(payload)
    except (ValueError, RecursionError):
        return None
    return value
