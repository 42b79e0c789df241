"""A model service on the loopback that speaks Anthropic's Messages API, with scripted answers.

It is as strict as the real service: `anthropic_rules` says what it refuses.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from nanobot_core.messages import JsonObject, JsonValue
from nanobot_core.testing.anthropic_rules import (
    RefusedRequest,
    check_request,
    conversation_before,
    signature_of,
)
from nanobot_core.testing.model_server import ModelServer, RecordedRequest, Reply, pieces
from nanobot_core.text import parse_json_object

_EPOCH = "2026-01-01T00:00:00Z"


class AnthropicServer(ModelServer):
    """Serves ``POST …/v1/messages``; see `ModelServer`.

    A reply's thinking is signed, and a later request must hand it back unchanged. Its ``usage`` may
    have the names of either protocol.
    """

    base_path = ""

    def is_request(self, request: RecordedRequest) -> bool:
        """Whether `request` asks for a message."""
        return request.path.partition("?")[0].endswith("/v1/messages")

    def echo(self, request: RecordedRequest) -> Reply:
        """Answer with the text of the request's last message."""
        messages = request.body.get("messages") or [{}]
        content = messages[-1].get("content") or ""
        if not isinstance(content, str):
            content = "\n".join(_said(block) for block in content)
        return Reply(text=content)

    def refusal(self, request: RecordedRequest) -> Reply | None:
        """Return the error for a request that the real service refuses."""
        try:
            check_request(request)
        except RefusedRequest as refused:
            return anthropic_error(refused.status, refused.kind, str(refused))
        return None

    def render(self, reply: Reply, request: RecordedRequest) -> JsonObject:
        """Return a whole message."""
        usage = _usage(reply)
        message = _envelope(request, content=[*_blocks(reply, request)], usage=usage)
        return {**message, "stop_reason": _stop_reason(reply)}

    def render_events(self, reply: Reply, request: RecordedRequest) -> Iterator[str]:
        """Yield the events of a message."""
        usage = _usage(reply)
        started: JsonObject = {**usage, "output_tokens": min(1, int(str(usage["output_tokens"])))}
        yield _event("message_start", message=_envelope(request, content=[], usage=started))
        yield _event("ping")
        arguments = iter([call.arguments for call in reply.calls])
        for index, block in enumerate(_blocks(reply, request)):
            yield _event("content_block_start", index=index, content_block=_opening(block))
            for delta in _deltas(block, reply, arguments):
                yield _event("content_block_delta", index=index, delta=delta)
            yield _event("content_block_stop", index=index)
        end: JsonObject = {"stop_reason": _stop_reason(reply), "stop_sequence": None}
        yield _event("message_delta", delta=end, usage=usage)
        yield _event("message_stop")

    def render_models(self) -> JsonObject:
        """Return the list of `models`."""
        rows: list[JsonValue] = [
            {
                "type": "model",
                "id": name,
                "display_name": name,
                "created_at": _EPOCH,
                "lifecycle": "active",
                "max_input_tokens": 200_000,
                "max_tokens": 64_000,
            }
            for name in self.models
        ]
        return {"data": rows, "has_more": False, "first_id": None, "last_id": None}


def anthropic_error(status: int, kind: str, message: str) -> Reply:
    """Return a reply with an error in the form of the service."""
    error: JsonObject = {"type": kind, "message": message}
    body = {"type": "error", "error": error, "request_id": "req_scripted"}
    return Reply(status=status, body=json.dumps(body).encode())


def _envelope(
    request: RecordedRequest, *, content: list[JsonValue], usage: JsonObject
) -> JsonObject:
    return {
        "id": "msg_scripted",
        "type": "message",
        "role": "assistant",
        "model": request.body.get("model", "scripted"),
        "content": content,
        "stop_reason": None,
        "stop_sequence": None,
        "usage": usage,
    }


def _blocks(reply: Reply, request: RecordedRequest) -> Iterator[JsonObject]:
    if reply.reasoning:
        signature = signature_of(reply.reasoning, conversation_before(request.body))
        yield {"type": "thinking", "thinking": reply.reasoning, "signature": signature}
    if reply.text:
        yield {"type": "text", "text": reply.text}
    for call in reply.calls:
        # A whole message can hold only arguments that are an object.
        arguments = parse_json_object(call.arguments) or {}
        yield {
            "type": "tool_use",
            "id": call.id,
            "name": call.name,
            "input": arguments,
        }


def _opening(block: JsonObject) -> JsonObject:
    """Return `block` as it begins in a stream."""
    empty: dict[str, JsonValue] = {"text": "", "thinking": "", "signature": "", "input": {}}
    return {**block, **{key: value for key, value in empty.items() if key in block}}


def _deltas(block: JsonObject, reply: Reply, arguments: Iterator[str]) -> Iterator[JsonObject]:
    """Yield what completes a block; `arguments` are those of the calls that follow."""
    if block["type"] == "text":
        for piece in pieces(str(block["text"]), reply):
            yield {"type": "text_delta", "text": piece}
    elif block["type"] == "thinking":
        for piece in pieces(str(block["thinking"]), reply):
            yield {"type": "thinking_delta", "thinking": piece}
        yield {"type": "signature_delta", "signature": block["signature"]}
    else:
        for piece in pieces(next(arguments), reply):
            yield {"type": "input_json_delta", "partial_json": piece}


def _stop_reason(reply: Reply) -> str:
    return reply.finish_reason or ("tool_use" if reply.calls else "end_turn")


def _usage(reply: Reply) -> JsonObject:
    usage = reply.usage or {}
    if "input_tokens" in usage:
        return {"output_tokens": 0, **usage}
    return {
        "input_tokens": usage.get("prompt_tokens", 0),
        "output_tokens": usage.get("completion_tokens", 0),
    }


def _said(block: JsonObject) -> str:
    content = block.get("content")
    if isinstance(content, list):
        return "\n".join(_said(part) for part in content if isinstance(part, dict))
    text = block.get("text") or content
    return text if isinstance(text, str) else ""


def _event(kind: str, **fields: JsonValue) -> str:
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **fields})}"
