"""The invented service Acme on the loopback, for the tests of its provider."""

from __future__ import annotations

import json
from collections.abc import Iterator

from nanobot_core import JsonObject, JsonValue
from nanobot_core.testing import ModelServer, RecordedRequest, Reply, pieces


class AcmeServer(ModelServer):
    """Answers ``POST …/answers`` by a script; see `ModelServer`."""

    def is_request(self, request: RecordedRequest) -> bool:
        return request.path.endswith("/answers")

    def is_streamed(self, request: RecordedRequest) -> bool:
        return request.body["live"] is True

    def refusal(self, request: RecordedRequest) -> Reply | None:
        if request.headers.get("x-acme-key"):
            return None
        return Reply(status=401, body=b'{"error": {"code": "no_key"}}')

    def echo(self, request: RecordedRequest) -> Reply:
        return Reply(text=request.body["turns"][-1]["text"])

    def render(self, reply: Reply, request: RecordedRequest) -> JsonObject:
        calls: list[JsonValue] = [
            {"ref": call.id, "tool": call.name, "input": json.loads(call.arguments)}
            for call in reply.calls
        ]
        answer: JsonObject = {"thought": reply.reasoning, "text": reply.text, "calls": calls}
        return {"answer": answer, **self._end(reply)}

    def render_events(self, reply: Reply, request: RecordedRequest) -> Iterator[str]:
        events: list[JsonObject] = []
        for name, text in (("thought", reply.reasoning), ("text", reply.text)):
            events += [{"add": name, "value": piece} for piece in pieces(text, reply)]
        for call in reply.calls:
            events.append({"add": "call", "ref": call.id, "tool": call.name})
            events += [{"add": "input", "value": piece} for piece in pieces(call.arguments, reply)]
        events.append({"end": self._end(reply)})
        yield from (f"data: {json.dumps(event)}" for event in events)

    def _end(self, reply: Reply) -> JsonObject:
        return {"why": reply.finish_reason or "done", "tokens": {"in": 10, "out": 5}}
