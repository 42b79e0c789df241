"""``POST /v1/chat/completions``: requests and answers (OpenAI API reference, "Chat")."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal

from pydantic import Field, JsonValue

from nanobot_api.ask import (
    Ask,
    FormatWire,
    FunctionWire,
    Parts,
    Wire,
    as_call,
    choose_tools,
    demand_messages,
    demand_plain,
    parse,
    read_content,
    read_message,
)
from nanobot_api.error import refuse

if TYPE_CHECKING:
    from nanobot_api.answer import Answer, Delta, Tokens
    from nanobot_api.error import Failure
    from nanobot_core import JsonObject, Message


class _CalledFunction(Wire):
    name: str
    arguments: str = ""


class _Call(Wire):
    id: str
    type: Literal["function"] = "function"
    function: _CalledFunction


class _Message(Wire):
    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: Parts = ()
    tool_calls: tuple[_Call, ...] | None = None
    tool_call_id: str | None = None


class _Tool(Wire):
    type: Literal["function"]
    function: FunctionWire


class _StreamOptions(Wire):
    include_usage: bool | None = None


class _Request(Wire):
    model: str = Field(min_length=1, max_length=256)
    messages: tuple[_Message, ...] = Field(min_length=1)
    stream: bool | None = None
    stream_options: _StreamOptions | None = None
    max_tokens: int | None = Field(default=None, ge=1)
    max_completion_tokens: int | None = Field(default=None, ge=1)
    n: int | None = Field(default=None, ge=1, le=1)
    tools: tuple[_Tool, ...] | None = None
    tool_choice: JsonValue = None
    response_format: FormatWire | None = None
    user: str | None = None


def parse_chat(body: bytes) -> Ask:
    """Return what a request asks for.

    Raises:
        ApiError: it cannot be answered; the error names the field.
    """
    wire = parse(_Request, body)
    demand_plain(wire.response_format, "response_format")
    tools = [tool.function.definition() for tool in wire.tools or ()]
    system: list[str] = []
    messages: list[Message] = []
    for number, each in enumerate(wire.messages):
        place = f"messages[{number}]"
        content = read_content(each.content, f"{place}.content")
        if each.role in ("system", "developer"):
            if not isinstance(content, str):
                raise refuse(f"{place}.content: only text", param=f"{place}.content")
            system.append(content)
            continue
        if each.role == "user" and not each.content:
            raise refuse(f"{place}.content: Field required", param=f"{place}.content")
        if each.role == "tool" and each.tool_call_id is None:
            raise refuse(f"{place}.tool_call_id: Field required", param=f"{place}.tool_call_id")
        made = each.tool_calls or () if each.role == "assistant" else ()
        calls = [as_call(call.id, call.function.name, call.function.arguments) for call in made]
        answers = each.tool_call_id if each.role == "tool" else None
        messages.append(read_message(each.role, content, calls=calls, answers=answers))
    return Ask(
        model=wire.model,
        system="\n\n".join(text for text in system if text.strip()),
        messages=demand_messages(messages, "messages"),
        tools=choose_tools(tools, wire.tool_choice),
        stream=wire.stream is True,
        include_usage=bool(wire.stream_options and wire.stream_options.include_usage),
        max_tokens=wire.max_completion_tokens or wire.max_tokens,
        user=wire.user or "",
    )


class ChatForm:
    """Renders one answer.

    Args:
        answer_id: the same in all parts.
        created_s: seconds since 1970.
        ask: what was asked.
    """

    def __init__(self, answer_id: str, created_s: int, ask: Ask) -> None:
        self._ask = ask
        self._head: JsonObject = {
            "id": f"chatcmpl-{answer_id}",
            "created": created_s,
            "model": ask.model,
        }

    def whole(self, answer: Answer) -> JsonObject:
        """Return a complete answer."""
        message: JsonObject = {"role": "assistant", "content": answer.text, "refusal": None}
        if answer.calls:
            message["content"] = answer.text or None
            message["tool_calls"] = [
                as_call(call.id, call.name, call.arguments) for call in answer.calls
            ]
        choice: JsonObject = {
            "index": 0,
            "message": message,
            "logprobs": None,
            "finish_reason": answer.finish,
        }
        return {
            **self._head,
            "object": "chat.completion",
            "choices": [choice],
            "usage": _usage(answer.tokens),
        }

    def begin(self) -> Iterator[str]:
        """Yield the beginning of a stream."""
        yield self._chunk({"role": "assistant", "content": ""})

    def piece(self, delta: Delta) -> Iterator[str]:
        """Yield a piece of the answer."""
        fields = {"content": delta.text, "reasoning_content": delta.reasoning}
        yield self._chunk({name: text for name, text in fields.items() if text})

    def end(self, answer: Answer) -> Iterator[str]:
        """Yield the end of a stream."""
        for index, call in enumerate(answer.calls):
            first: JsonObject = {"index": index, **as_call(call.id, call.name, "")}
            yield self._chunk({"tool_calls": [first]})
            rest: JsonObject = {"index": index, "function": {"arguments": call.arguments}}
            yield self._chunk({"tool_calls": [rest]})
        yield self._chunk({}, answer.finish)
        if self._ask.include_usage:
            # Only on request: clients without it read the first choice of every chunk.
            last: JsonObject = {**self._head, "object": "chat.completion.chunk", "choices": []}
            yield _event({**last, "usage": _usage(answer.tokens)})
        yield "data: [DONE]\n\n"

    def broken(self, failure: Failure) -> Iterator[str]:
        """Yield the end of a stream that fails; a mark of the end would hide that."""
        yield _event(failure.to_json())

    def _chunk(self, delta: JsonObject, finish: str | None = None) -> str:
        choice: JsonObject = {
            "index": 0,
            "delta": delta,
            "logprobs": None,
            "finish_reason": finish,
        }
        return _event({**self._head, "object": "chat.completion.chunk", "choices": [choice]})


def _usage(tokens: Tokens) -> JsonObject:
    return {
        "prompt_tokens": tokens.prompt,
        "completion_tokens": tokens.completion,
        "total_tokens": tokens.prompt + tokens.completion,
        "prompt_tokens_details": {"cached_tokens": tokens.cached},
        "completion_tokens_details": {"reasoning_tokens": tokens.reasoning},
    }


def _event(data: JsonObject) -> str:
    return f"data: {json.dumps(data)}\n\n"
