"""``POST /v1/responses``: requests and answers (OpenAI API reference, "Responses")."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import BeforeValidator, Field, JsonValue

from nanobot_api.ask import (
    Ask,
    FormatWire,
    FunctionWire,
    Parts,
    Wire,
    as_call,
    as_tuple,
    choose_tools,
    demand_messages,
    demand_plain,
    parse,
    read_content,
    read_message,
)
from nanobot_api.error import refuse

if TYPE_CHECKING:
    from nanobot_api.answer import Answer, Delta, MadeCall
    from nanobot_api.error import Failure
    from nanobot_core import JsonObject, Message

PREFIX = "resp_"


class _Item(Wire):
    """A message, a call of a tool or its result; reasoning is passed over."""

    type: Literal["message", "function_call", "function_call_output", "reasoning"] = "message"
    role: Literal["system", "developer", "user", "assistant"] | None = None
    content: Parts = ()
    call_id: str | None = None
    name: str | None = None
    arguments: str = ""
    output: Parts = ()


def _as_items(value: object) -> object:
    return ({"role": "user", "content": value},) if isinstance(value, str) else as_tuple(value)


class _Tool(FunctionWire):
    type: Literal["function"]


class _TextOptions(Wire):
    format: FormatWire | None = None


class _Request(Wire):
    model: str = Field(min_length=1, max_length=256)
    input: Annotated[tuple[_Item, ...], BeforeValidator(_as_items)] = Field(min_length=1)
    instructions: str | None = None
    previous_response_id: str | None = None
    conversation: JsonValue = None
    background: bool | None = None
    store: bool | None = None
    stream: bool | None = None
    max_output_tokens: int | None = Field(default=None, ge=1)
    tools: tuple[_Tool, ...] | None = None
    tool_choice: JsonValue = None
    text: _TextOptions | None = None
    user: str | None = None


def parse_response(body: bytes) -> Ask:
    """Return what a request asks for.

    Raises:
        ApiError: it cannot be answered; the error names the field.
    """
    wire = parse(_Request, body)
    demand_plain(wire.text.format if wire.text else None, "text.format")
    for name, value in (("conversation", wire.conversation), ("background", wire.background)):
        if value:
            message = f"{name}: not supported; use previous_response_id or X-Nanobot-Session"
            raise refuse(message, param=name, code="unsupported_parameter")
    system, messages = _read_items(wire.input)
    if wire.instructions:
        system.insert(0, wire.instructions)
    tools = [tool.definition() for tool in wire.tools or ()]
    return Ask(
        model=wire.model,
        system="\n\n".join(text for text in system if text.strip()),
        messages=demand_messages(messages, "input"),
        tools=choose_tools(tools, wire.tool_choice),
        stream=wire.stream is True,
        max_tokens=wire.max_output_tokens,
        user=wire.user or "",
        previous=(wire.previous_response_id or "").removeprefix(PREFIX),
        store=wire.store is not False,
    )


def _read_items(items: tuple[_Item, ...]) -> tuple[list[str], list[Message]]:
    system: list[str] = []
    messages: list[Message] = []
    for number, item in enumerate(items):
        place = f"input[{number}]"
        match item.type:
            case "message":
                content = read_content(item.content, f"{place}.content")
                if item.role is None or not item.content:
                    field = f"{place}.{'role' if item.role is None else 'content'}"
                    raise refuse(f"{field}: Field required", param=field)
                if item.role in ("system", "developer"):
                    system.append(content if isinstance(content, str) else "")
                else:
                    messages.append(read_message(item.role, content))
            case "function_call":
                if item.call_id is None or item.name is None:
                    field = f"{place}.{'name' if item.name is None else 'call_id'}"
                    raise refuse(f"{field}: Field required", param=field)
                call = as_call(item.call_id, item.name, item.arguments)
                messages.append(read_message("assistant", "", calls=[call]))
            case "function_call_output":
                if item.call_id is None:
                    raise refuse(f"{place}.call_id: Field required", param=f"{place}.call_id")
                output = read_content(item.output, f"{place}.output")
                messages.append(read_message("tool", output, answers=item.call_id))
            case "reasoning":
                pass
    return system, messages


class ResponseForm:
    """Renders one answer.

    Args:
        answer_id: the same in all parts.
        created_s: seconds since 1970.
        ask: what was asked.
    """

    def __init__(self, answer_id: str, created_s: int, ask: Ask) -> None:
        self._id = answer_id
        self._created_s = created_s
        self._ask = ask
        self._sequence = 0
        self._text = ""

    def whole(self, answer: Answer) -> JsonObject:
        """Return a complete answer."""
        return self._response(answer, self._items(answer, answer.text))

    def begin(self) -> Iterator[str]:
        """Yield the beginning of a stream."""
        response = {**self._head(), "status": "in_progress", "output": [], "usage": None}
        yield self._event("response.created", response=response)
        yield self._event("response.in_progress", response=response)

    def piece(self, delta: Delta) -> Iterator[str]:
        """Yield a piece of the answer; thinking is left out."""
        if not delta.text:
            return
        if not self._text:
            item = self._message("", "in_progress")
            item["content"] = []
            yield self._event("response.output_item.added", output_index=0, item=item)
            yield self._event("response.content_part.added", **self._place, part=_part(""))
        self._text += delta.text
        yield self._event(
            "response.output_text.delta", **self._place, delta=delta.text, logprobs=[]
        )

    def end(self, answer: Answer) -> Iterator[str]:
        """Yield the end of a stream."""
        if self._text:
            text, place = self._text, self._place
            yield self._event("response.output_text.done", **place, text=text, logprobs=[])
            yield self._event("response.content_part.done", **place, part=_part(text))
            item = self._message(text, "completed")
            yield self._event("response.output_item.done", output_index=0, item=item)
        for index, call in enumerate(answer.calls, 1 if self._text else 0):
            yield from self._call_events(call, index)
        response = self._response(answer, self._items(answer, self._text))
        kind = "completed" if response["status"] == "completed" else "incomplete"
        yield self._event(f"response.{kind}", response=response)

    def broken(self, failure: Failure) -> Iterator[str]:
        """Yield the end of a stream that fails."""
        error: JsonObject = {
            "code": failure.code or "server_error",
            "message": failure.message,
        }
        head = {**self._head(), "status": "failed", "output": [], "usage": None, "error": error}
        yield self._event("response.failed", response=head)

    @property
    def _place(self) -> JsonObject:
        return {"item_id": f"msg_{self._id}", "output_index": 0, "content_index": 0}

    def _call_events(self, call: MadeCall, index: int) -> Iterator[str]:
        item = _call_item(call)
        place: JsonObject = {"item_id": item["id"], "output_index": index}
        added: JsonObject = {**item, "arguments": "", "status": "in_progress"}
        yield self._event("response.output_item.added", output_index=index, item=added)
        delta = call.arguments
        yield self._event("response.function_call_arguments.delta", **place, delta=delta)
        yield self._event(
            "response.function_call_arguments.done", **place, name=call.name, arguments=delta
        )
        yield self._event("response.output_item.done", output_index=index, item=item)

    def _items(self, answer: Answer, text: str) -> list[JsonObject]:
        message = [self._message(text, "completed")] if text or not answer.calls else []
        return [*message, *(_call_item(call) for call in answer.calls)]

    def _message(self, text: str, status: str) -> JsonObject:
        return {
            "id": f"msg_{self._id}",
            "type": "message",
            "role": "assistant",
            "status": status,
            "content": [_part(text)],
        }

    def _head(self) -> JsonObject:
        ask = self._ask
        tools: list[JsonValue] = [
            {
                "type": "function",
                "name": tool.name,
                "description": tool.description,
                "parameters": tool.parameters,
                "strict": False,
            }
            for tool in ask.tools
        ]
        return {
            "id": PREFIX + self._id,
            "object": "response",
            "created_at": self._created_s,
            "model": ask.model,
            "error": None,
            "incomplete_details": None,
            "instructions": ask.system or None,
            "max_output_tokens": ask.max_tokens,
            "metadata": {},
            "parallel_tool_calls": True,
            "previous_response_id": PREFIX + ask.previous if ask.previous else None,
            "store": ask.store,
            "temperature": None,
            "tool_choice": "auto",
            "tools": tools,
            "top_p": None,
        }

    def _response(self, answer: Answer, items: list[JsonObject]) -> JsonObject:
        is_cut = answer.finish == "length"
        tokens = answer.tokens
        usage: JsonObject = {
            "input_tokens": tokens.prompt,
            "input_tokens_details": {"cached_tokens": tokens.cached},
            "output_tokens": tokens.completion,
            "output_tokens_details": {"reasoning_tokens": tokens.reasoning},
            "total_tokens": tokens.prompt + tokens.completion,
        }
        return {
            **self._head(),
            "status": "incomplete" if is_cut else "completed",
            "incomplete_details": {"reason": "max_output_tokens"} if is_cut else None,
            "output": list[JsonValue](items),
            "usage": usage,
        }

    def _event(self, kind: str, **fields: JsonValue) -> str:
        data = {"type": kind, "sequence_number": self._sequence, **fields}
        self._sequence += 1
        return f"event: {kind}\ndata: {json.dumps(data)}\n\n"


def _part(text: str) -> JsonObject:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def _call_item(call: MadeCall) -> JsonObject:
    return {
        "id": f"fc_{call.id}",
        "type": "function_call",
        "status": "completed",
        "call_id": call.id,
        "name": call.name,
        "arguments": call.arguments,
    }
