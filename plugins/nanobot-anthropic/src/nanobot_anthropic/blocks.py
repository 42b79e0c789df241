"""Content blocks: texts, images, documents, calls and results in the form of the service."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from hashlib import sha256

from nanobot_core import Content, ImageBlock, JsonObject, JsonValue, Message, ToolCall

EMPTY = "(empty)"
"""Replaces empty content, which the service refuses."""
NO_RESULT = "There is no result of this call."
"""Answers a call whose result the history does not have; the service requires one."""

_ID = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_NOT_IN_A_NAME = re.compile(r"[^a-zA-Z0-9_-]")
_NAME_CHARS = 64
_IMAGES = frozenset({"image/jpeg", "image/png", "image/gif", "image/webp"})
_DOCUMENT = "application/pdf"


def text_block(text: str) -> JsonObject:
    """Return a block with `text`, or with a mark if the service would refuse it as empty."""
    return {"type": "text", "text": text if text.strip() else EMPTY}


def content_blocks(content: Content) -> Iterator[JsonObject]:
    """Yield the blocks of `content`; empty passages are left out."""
    if isinstance(content, str):
        if content.strip():
            yield text_block(content)
        return
    for block in content:
        if isinstance(block, ImageBlock):
            yield _file_block(block)
        elif block.text.strip():
            yield text_block(block.text)


def result_block(message: Message, call_id: str) -> tuple[JsonObject, list[JsonObject]]:
    """Return the result in a tool message, and what must follow the results.

    The result of a failed call may contain only text.
    """
    blocks = list(content_blocks(message.content))
    followers: list[JsonObject] = []
    if message.is_error:
        followers = [block for block in blocks if block["type"] != "text"]
        blocks = [block for block in blocks if block["type"] == "text"]
    content: list[JsonValue] = [*blocks] or [text_block("")]
    result: JsonObject = {"type": "tool_result", "tool_use_id": call_id, "content": content}
    if message.is_error:
        result["is_error"] = True
    return result, followers


def missing_result(call_id: str) -> JsonObject:
    """Return a result for a call that has none."""
    return {
        "type": "tool_result",
        "tool_use_id": call_id,
        "content": [text_block(NO_RESULT)],
        "is_error": True,
    }


def call_block(call: ToolCall, call_id: str) -> JsonObject:
    """Return the block of a call under `call_id`."""
    return {
        "type": "tool_use",
        "id": call_id,
        "name": tool_name(call.name),
        "input": call.arguments,
    }


def tool_name(name: str) -> str:
    """Return `name` in the characters that the service accepts, the same each time."""
    return _NOT_IN_A_NAME.sub("_", name)[:_NAME_CHARS] or "unnamed"


class CallIds:
    """Ids of calls that the service accepts and that differ within one request."""

    def __init__(self) -> None:
        self._used: set[str] = set()

    def add(self, calls: Sequence[ToolCall]) -> list[str]:
        """Return an id for each of `calls`, its own if that is possible."""
        return [self._unused(call.id) for call in calls]

    def _unused(self, call_id: str) -> str:
        wanted = call_id
        repetitions = 0
        while not _ID.fullmatch(wanted) or wanted in self._used:
            # The same for the same history, because changed requests are not read from the cache.
            digest = sha256(f"{call_id}/{repetitions}".encode()).hexdigest()
            wanted = f"call_{digest[:24]}"
            repetitions += 1
        self._used.add(wanted)
        return wanted


def _file_block(block: ImageBlock) -> JsonObject:
    if block.data and block.media_type in _IMAGES:
        kind = "image"
    elif block.data and block.media_type == _DOCUMENT:
        kind = "document"
    else:
        return text_block(f"[file: {block.path or block.media_type}]")
    source: JsonObject = {"type": "base64", "media_type": block.media_type, "data": block.data}
    return {"type": kind, "source": source}
