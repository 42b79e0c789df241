"""A model service on the loopback that speaks the OpenAI protocol, with scripted answers.

In a test it is an async context manager; as ``python -m nanobot_core.testing.openai_server`` it
serves another process and prints its base URL as the first line.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from nanobot_core.messages import JsonObject, JsonValue
from nanobot_core.testing.model_server import (
    ModelServer,
    RecordedRequest,
    Reply,
    ScriptedCall,
    pieces,
)


def echo(request: RecordedRequest) -> Reply:
    """Answer with the text of the request's last message."""
    messages = request.body.get("messages") or [{}]
    content = messages[-1].get("content") or ""
    if not isinstance(content, str):
        content = "\n".join(part.get("text", "") for part in content)
    return Reply(text=content)


class OpenAIServer(ModelServer):
    """Serves ``POST …/chat/completions``; see `ModelServer`."""

    def is_request(self, request: RecordedRequest) -> bool:
        """Whether `request` asks for a chat completion."""
        return request.path.endswith("/chat/completions")

    def echo(self, request: RecordedRequest) -> Reply:
        """Answer with the text of the request's last message."""
        return echo(request)

    def render(self, reply: Reply, request: RecordedRequest) -> JsonObject:
        """Return a whole chat completion."""
        return _completion(reply)

    def render_events(self, reply: Reply, request: RecordedRequest) -> Iterator[str]:
        """Yield chunks of a chat completion and the mark of the end."""
        yield from (f"data: {json.dumps(chunk)}" for chunk in _chunks(reply))
        yield "data: [DONE]"


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


def _chunks(reply: Reply) -> list[JsonObject]:
    deltas: list[JsonObject] = [{"role": "assistant", "content": ""}]
    deltas += [{"reasoning_content": piece} for piece in pieces(reply.reasoning, reply)]
    deltas += [{"content": piece} for piece in pieces(reply.text, reply)]
    for index, call in enumerate(reply.calls):
        opening: JsonObject = {**_call(call), "index": index}
        opening["function"] = {"name": call.name, "arguments": ""}
        deltas.append({"tool_calls": [opening]})
        deltas += [
            {"tool_calls": [{"index": index, "function": {"arguments": piece}}]}
            for piece in pieces(call.arguments, reply)
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


async def _run(port: int, script: Path | None) -> None:
    scripted = json.loads(await asyncio.to_thread(script.read_text, "utf-8")) if script else {}
    replies = [reply_from_json(record) for record in scripted.get("replies", ())]
    default = reply_from_json(scripted["default"]) if "default" in scripted else None
    async with OpenAIServer(replies, default=default, port=port) as server:
        sys.stdout.write(f"{server.url}\n")
        sys.stdout.flush()
        await asyncio.Event().wait()


def main() -> None:
    """Serve until interrupted."""
    parser = argparse.ArgumentParser(prog="python -m nanobot_core.testing.openai_server")
    parser.add_argument("--port", type=int, default=0, help="port on 127.0.0.1; 0 takes a free one")
    parser.add_argument(
        "--script",
        type=Path,
        help='JSON file: {"replies": [...], "default": {...}}; without default the server echoes',
    )
    options = parser.parse_args()
    with suppress(KeyboardInterrupt):  # the way to end it in a terminal
        asyncio.run(_run(options.port, options.script))


if __name__ == "__main__":
    main()
