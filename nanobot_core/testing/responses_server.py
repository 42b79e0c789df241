"""A model service on the loopback that speaks OpenAI's Responses API, with scripted answers."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from hashlib import sha256
from typing import ClassVar

from nanobot_core.messages import JsonObject, JsonValue
from nanobot_core.testing.model_server import (
    ModelServer,
    RecordedRequest,
    Reply,
    Responder,
    ScriptedCall,
    pieces,
)
from nanobot_core.testing.responses_rules import Refusal, ResponsesRules

_INCOMPLETE = {
    "length": "max_output_tokens",
    "max_output_tokens": "max_output_tokens",
    "content_filter": "content_filter",
}
_COMPLETE = frozenset({"stop", "tool_calls"})


class ResponsesServer(ModelServer):
    """Serves ``POST …/responses`` by a script and refuses what the real service refuses.

    `Reply.reasoning` becomes the summary of an item of reasoning. If the request asks for encrypted
    reasoning, the server accepts that item in later requests, unchanged and in its place, and no
    other. A `Reply.finish_reason` of ``length`` or ``content_filter`` makes the answer incomplete;
    other values than ``stop`` and ``tool_calls`` are the code of a failed answer.

    Args:
        script: replies in the order of requests.
        default: reply, or function of the request, for requests after the script.
        port: port on 127.0.0.1; 0 takes a free one.
        models: names that the service lists.
    """

    path: ClassVar[str] = "/responses"

    def __init__(
        self,
        script: Iterable[Reply] = (),
        *,
        default: Reply | Responder | None = None,
        port: int = 0,
        models: Iterable[str] = ("scripted",),
    ) -> None:
        super().__init__(script, default=default, port=port, models=models)
        self.rules: ResponsesRules = ResponsesRules()

    def is_request(self, request: RecordedRequest) -> bool:
        """Whether `request` is for the Responses API."""
        return request.path.partition("?")[0].endswith(self.path)

    def echo(self, request: RecordedRequest) -> Reply:
        """Answer with the text of the last item."""
        items = request.body.get("input") or ""
        last = items[-1] if isinstance(items, list) else {"content": items}
        content = last.get("content", last.get("output", ""))
        if not isinstance(content, str):
            content = "\n".join(part.get("text", "") for part in content)
        return Reply(text=content)

    def refusal(self, request: RecordedRequest) -> Reply | None:
        """Return the error of the service if `request` breaks one of its rules."""
        try:
            self.rules.check(request.body)
        except Refusal as refusal:
            body = json.dumps({"error": refusal.error}).encode()
            return Reply(status=refusal.status, body=body)
        return None

    def render(self, reply: Reply, request: RecordedRequest) -> JsonObject:
        """Return a whole answer."""
        return _final(reply, request, self._output(reply, request))

    def render_events(self, reply: Reply, request: RecordedRequest) -> Iterator[str]:
        """Yield the events of a streamed answer."""
        output = self._output(reply, request)
        started = _envelope(request, "in_progress")
        events: list[JsonObject] = [
            {"type": "response.created", "response": started},
            {"type": "response.in_progress", "response": started},
        ]
        for index, item in enumerate(output):
            events += _item_events(item, index, reply)
        final = _final(reply, request, output)
        events.append({"type": f"response.{final['status']}", "response": final})
        for number, event in enumerate(events):
            data = json.dumps({**event, "sequence_number": number})
            yield f"event: {event['type']}\ndata: {data}"

    def _output(self, reply: Reply, request: RecordedRequest) -> list[JsonObject]:
        number = len(self.requests)
        output: list[JsonObject] = []
        if reply.reasoning:
            output.append(self._reasoning(reply, request, number))
        if reply.text:
            part: JsonObject = {
                "type": "output_text",
                "text": reply.text,
                "annotations": [],
                "logprobs": [],
            }
            output.append({"type": "message", "role": "assistant", "content": [part]})
        output += [_call(call) for call in reply.calls]
        status = "incomplete" if reply.finish_reason in _INCOMPLETE else "completed"
        prefixes = {"reasoning": "rs", "message": "msg", "function_call": "fc"}
        return [
            {"id": f"{prefixes[str(item['type'])]}_{number}_{index}", "status": status, **item}
            for index, item in enumerate(output)
        ]

    def _reasoning(self, reply: Reply, request: RecordedRequest, number: int) -> JsonObject:
        item: JsonObject = {
            "type": "reasoning",
            "id": f"rs_{number}",
            "summary": [{"type": "summary_text", "text": reply.reasoning}],
        }
        if "reasoning.encrypted_content" in request.body.get("include", ()):
            sealed = sha256(f"{number} {reply.reasoning}".encode()).hexdigest()
            item["encrypted_content"] = sealed
            self.rules.issued[sealed] = item
        return dict(item)


def _call(call: ScriptedCall) -> JsonObject:
    return {
        "type": "function_call",
        "call_id": call.id,
        "name": call.name,
        "arguments": call.arguments,
    }


def _envelope(request: RecordedRequest, status: str) -> JsonObject:
    return {
        "id": "resp_scripted",
        "object": "response",
        "created_at": 0,
        "status": status,
        "error": None,
        "incomplete_details": None,
        "model": request.body.get("model"),
        "output": [],
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "usage": None,
    }


def _final(reply: Reply, request: RecordedRequest, output: list[JsonObject]) -> JsonObject:
    """Return the finished response, as a whole answer and as the last event contain it."""
    reason = reply.finish_reason or "stop"
    if reason in _COMPLETE:
        final = _envelope(request, "completed")
    elif reason in _INCOMPLETE:
        final = _envelope(request, "incomplete")
        final["incomplete_details"] = {"reason": _INCOMPLETE[reason]}
    else:
        final = _envelope(request, "failed")
        final["error"] = {"code": reason, "message": "the model failed"}
    final["output"] = list[JsonValue](output)
    final["usage"] = None if reply.usage is None else _usage(reply.usage)
    return final


def _usage(usage: JsonObject) -> JsonObject:
    """Return `usage` with the names of this API, whichever of the two forms it has."""
    if "prompt_tokens" not in usage:
        return usage
    return {
        "input_tokens": usage["prompt_tokens"],
        "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
        "output_tokens": usage["completion_tokens"],
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": usage["total_tokens"],
    }


def _item_events(item: JsonObject, index: int, reply: Reply) -> Iterator[JsonObject]:
    """Yield the events of one item, from its beginning to its end."""
    kind = str(item["type"])
    place: JsonObject = {"output_index": index, "item_id": item["id"]}
    empty: JsonObject = {"reasoning": [], "message": [], "function_call": ""}
    field = {"reasoning": "summary", "message": "content", "function_call": "arguments"}[kind]
    begun: JsonObject = {**item, "status": "in_progress", field: empty[kind]}
    yield {"type": "response.output_item.added", "output_index": index, "item": begun}
    if kind == "reasoning":
        yield from _part_events("reasoning_summary", "summary", item, place, reply)
    elif kind == "message":
        yield from _part_events("content", "content", item, place, reply)
    else:
        name = "response.function_call_arguments"
        arguments = str(item["arguments"])
        for piece in pieces(arguments, reply):
            yield {"type": f"{name}.delta", **place, "delta": piece}
        done: JsonObject = {"name": item["name"], "arguments": arguments}
        yield {"type": f"{name}.done", **place, **done}
    yield {"type": "response.output_item.done", "output_index": index, "item": item}


def _part_events(
    prefix: str, field: str, item: JsonObject, place: JsonObject, reply: Reply
) -> Iterator[JsonObject]:
    """Yield the events of the parts of a message or of a summary."""
    text_event = "output_text" if prefix == "content" else f"{prefix}_text"
    parts = item[field]
    assert isinstance(parts, list)  # made above
    for number, part in enumerate(parts):
        assert isinstance(part, dict)
        text = str(part["text"])
        where: JsonObject = {**place, f"{field}_index": number}
        extra: JsonObject = {"logprobs": []} if prefix == "content" else {}
        begun: JsonObject = {**part, "text": ""}
        yield {"type": f"response.{prefix}_part.added", **where, "part": begun}
        for piece in pieces(text, reply):
            yield {"type": f"response.{text_event}.delta", **where, "delta": piece, **extra}
        yield {"type": f"response.{text_event}.done", **where, "text": text, **extra}
        yield {"type": f"response.{prefix}_part.done", **where, "part": part}
