"""What a scripted OpenAI-compatible service answers, and its form on the wire."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from nanobot_core.messages import JsonObject, JsonValue

_USAGE: JsonObject = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptedCall:
    """A tool call in a scripted answer.

    Attributes:
        name: name of the tool.
        arguments: the argument text as the model wrote it; it need not be JSON.
        id: id of the call; empty leaves the field out.
    """

    name: str
    arguments: str = "{}"
    id: str = "call_1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """One scripted answer; streamed or whole as the request asks.

    Attributes:
        text: the answer.
        reasoning: thinking, sent as ``reasoning_content``.
        calls: tool calls.
        finish_reason: why the model stopped; ``None`` follows from `calls`.
        usage: the usage object, or ``None`` for a service that reports none.
        chunk_chars: characters of text, thinking or arguments in one streamed chunk.
        status: HTTP status.
        headers: further response headers.
        content_type: instead of the one that belongs to the form of the answer.
        body: sent as it is instead of everything above.
        body_repeat: how often `body` is sent, for bodies of any size.
        write_bytes: bytes of the body written at once; ``None`` writes it whole.
        pause_s: seconds between two writes of a body that is not written whole.
        gate: the answer waits until this is set.
        delay_s: seconds to wait before the answer, for benchmarks.
        stop_after_bytes: bytes of the body after which the service stops, or ``None``.
        stop: how it stops: ends the connection, resets it, or stays silent until the client goes.
    """

    text: str = ""
    reasoning: str = ""
    calls: tuple[ScriptedCall, ...] = ()
    finish_reason: str | None = None
    usage: JsonObject | None = field(default_factory=lambda: dict(_USAGE))
    chunk_chars: int = 16
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    content_type: str | None = None
    body: bytes | None = None
    body_repeat: int = 1
    write_bytes: int | None = None
    pause_s: float = 0.0
    gate: asyncio.Event | None = None
    delay_s: float = 0.0
    stop_after_bytes: int | None = None
    stop: Literal["close", "reset", "stall"] = "close"


def reply_from_json(record: dict[str, Any]) -> Reply:
    """Return the reply with the fields of `record`, in which ``body`` is text.

    Raises:
        TypeError: a field that no reply has.
    """
    fields = dict(record)
    if "body" in fields:
        fields["body"] = str(fields["body"]).encode()
    fields["calls"] = tuple(ScriptedCall(**call) for call in fields.get("calls", ()))
    return Reply(**fields)


def render_reply(reply: Reply, *, streamed: bool) -> tuple[bytes, bytes]:
    """Return the head of the response, without the empty line, and its body.

    Args:
        reply: the answer.
        streamed: as server-sent events in chunked transfer encoding.
    """
    if reply.body is not None:
        body, kind = reply.body, "application/json"
    elif streamed:
        events = [json.dumps(chunk) for chunk in _chunks(reply)]
        body = "".join(f"data: {event}\n\n" for event in [*events, "[DONE]"]).encode()
        kind = "text/event-stream"
    else:
        body, kind = json.dumps(_completion(reply)).encode(), "application/json"
    framing = (
        "transfer-encoding: chunked"
        if streamed
        else f"content-length: {len(body) * reply.body_repeat}"
    )
    lines = [
        f"HTTP/1.1 {reply.status} Scripted",
        f"content-type: {kind if reply.content_type is None else reply.content_type}",
        framing,
        *(f"{name}: {value}" for name, value in reply.headers.items()),
    ]
    return "\r\n".join(lines).encode("latin-1"), body


def _chunks(reply: Reply) -> list[JsonObject]:
    deltas: list[JsonObject] = [{"role": "assistant", "content": ""}]
    deltas += [{"reasoning_content": piece} for piece in _pieces(reply.reasoning, reply)]
    deltas += [{"content": piece} for piece in _pieces(reply.text, reply)]
    for index, call in enumerate(reply.calls):
        opening: JsonObject = {**_call(call), "index": index}
        opening["function"] = {"name": call.name, "arguments": ""}
        deltas.append({"tool_calls": [opening]})
        deltas += [
            {"tool_calls": [{"index": index, "function": {"arguments": piece}}]}
            for piece in _pieces(call.arguments, reply)
        ]
    chunks = [_envelope([{"index": 0, "delta": delta}], streamed=True) for delta in deltas]
    last: JsonObject = {"index": 0, "delta": {}, "finish_reason": _finish_reason(reply)}
    chunks.append(_envelope([last], streamed=True))
    if reply.usage is not None:
        chunks.append({**_envelope([], streamed=True), "usage": reply.usage})
    return chunks


def _completion(reply: Reply) -> JsonObject:
    message: JsonObject = {"role": "assistant", "content": reply.text or None}
    if reply.reasoning:
        message["reasoning_content"] = reply.reasoning
    if reply.calls:
        message["tool_calls"] = [_call(call) for call in reply.calls]
    choice: JsonObject = {"index": 0, "message": message, "finish_reason": _finish_reason(reply)}
    usage: JsonObject = {} if reply.usage is None else {"usage": reply.usage}
    return {**_envelope([choice], streamed=False), **usage}


def _envelope(choices: list[JsonValue], *, streamed: bool) -> JsonObject:
    return {
        "id": "chatcmpl-scripted",
        "object": "chat.completion.chunk" if streamed else "chat.completion",
        "created": 0,
        "model": "scripted",
        "choices": choices,
    }


def _call(call: ScriptedCall) -> JsonObject:
    identity: JsonObject = {"id": call.id} if call.id else {}
    function: JsonObject = {"name": call.name, "arguments": call.arguments}
    return {**identity, "type": "function", "function": function}


def _finish_reason(reply: Reply) -> str:
    return reply.finish_reason or ("tool_calls" if reply.calls else "stop")


def _pieces(text: str, reply: Reply) -> list[str]:
    size = reply.chunk_chars
    return [text[start : start + size] for start in range(0, len(text), size)]
