"""From a `ChatRequest` to the body of ``POST /responses``.

Requests are stateless: ``store`` is false, ``previous_response_id`` is never sent, and each request
contains its whole history. The history belongs to nanobot, which shortens and repairs it, continues
it with other services when one fails, and must not lose it when a service deletes what it stored.
The model's reasoning, which the service would otherwise keep, travels in encrypted form.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from hashlib import sha256
from pathlib import PurePath
from typing import TYPE_CHECKING, Literal, TypeAlias

from nanobot_core import (
    ChatRequest,
    Content,
    ImageBlock,
    JsonObject,
    JsonValue,
    Message,
    ToolCall,
    ToolDefinition,
)
from nanobot_core.providers import BodyEncoder
from nanobot_openai.dialect import dialect_of
from nanobot_openai.responses_answer import ACCOUNT, OUTPUT, OWNER, TEXT_GAP, ResponsesReader
from nanobot_openai.schema import adapt_schema

if TYPE_CHECKING:
    from nanobot_core.providers import FailureReader

ReasoningSummary: TypeAlias = Literal["auto", "concise", "detailed"]

_KEPT_TYPES = ("reasoning", "message", "function_call")
"""Only models that reason accept the first."""
_EMPTY = "(empty)"
"""Replaces empty content, which services refuse."""
_MIN_OUTPUT_TOKENS = 16
"""The service refuses a lower limit."""
_CALL_ID = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_NO_NAME = re.compile(r"[^a-zA-Z0-9_-]")
_MAX_NAME_CHARS = 64
_REASONING_MODEL = re.compile(
    r"(?!.*-chat)(o\d|gpt-(5|[6-9]|\d\d)(\b|[.-])|codex|(gpt-)?daybreak)", re.IGNORECASE
)
"""They return encrypted reasoning, which other models refuse, and they refuse a temperature."""
_EFFORTS = ("none", "minimal", "low", "medium", "high")
_ACCEPTED_EFFORTS: tuple[tuple[re.Pattern[str], tuple[str, ...]], ...] = (
    (re.compile(r"gpt-5-pro"), ("high",)),
    (re.compile(r"gpt-[\d.]+-pro"), ("medium", "high")),
    (re.compile(r"o\d|.*codex|gpt-6-astra|gpt-6\.1"), ("low", "medium", "high")),
    (re.compile(r"gpt-5(-mini|-nano)?(-\d{4}|$)"), ("minimal", "low", "medium", "high")),
)
"""(beginning of a model's name, efforts that it accepts); others accept all but ``minimal``."""
_ENFORCED_KEYWORDS = (
    *("pattern", "format", "minItems", "maxItems", "multipleOf"),
    *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"),
)
"""Rules of JSON Schema that the service enforces in a strict schema besides the structure."""


class ResponsesWire:
    """The form of requests and answers of one service with the Responses API.

    Args:
        provider: name of the provider; it gets back only its own blocks.
        account: text that changes with the account, because another account cannot decrypt the
            reasoning and refuses it. Parts of it are stored in the session.
        summary: the form of the summary of its reasoning that the model writes, or ``None`` for
            none. OpenAI refuses the field for some models until the organization is verified.
    """

    def __init__(
        self, provider: str, account: str = "", *, summary: ReasoningSummary | None = None
    ) -> None:
        self._provider = provider
        self._account = sha256(account.encode()).hexdigest()[:12]
        self._summary = summary
        self._encoder = BodyEncoder(_tool)

    def reader(self, failures: FailureReader) -> ResponsesReader:
        """Return a reader for one answer; `failures` turns the errors in it into ours."""
        return ResponsesReader(self._provider, self._account, failures)

    def encode(self, request: ChatRequest, *, stream: bool) -> bytes:
        """Return the body of `request` as JSON."""
        return self._encoder.encode(self.body(request, stream=stream))

    def body(self, request: ChatRequest, *, stream: bool) -> JsonObject:
        """Return the body of `request`; the request's ``extra`` replaces fields derived here."""
        history = request.messages
        instructions = history[0].text if history and history[0].role == "system" else ""
        reasons = _REASONING_MODEL.match(request.model) is not None
        items = list(self._items(history[1:] if instructions else history, reasons=reasons))
        if not items:
            items.append(_message("user", _EMPTY))
        body: JsonObject = {
            "model": request.model,
            "input": list[JsonValue](items),
            "store": False,
            "prompt_cache_key": _cache_key(instructions, items[0]),
        }
        if instructions:
            body["instructions"] = instructions
        if stream:
            body["stream"] = True
        if request.max_tokens is not None:
            body["max_output_tokens"] = max(_MIN_OUTPUT_TOKENS, request.max_tokens)
        if request.temperature is not None:
            body["temperature"] = request.temperature
        if request.tools:
            body["tools"] = self._encoder.tools(request.tools)
            if request.tool_choice != "auto":
                body["tool_choice"] = request.tool_choice
        if request.output_schema is not None:
            body["text"] = {"format": _format(request.output_schema)}
        body |= request.extra
        if reasons:
            body["include"] = ["reasoning.encrypted_content"]
            body.pop("temperature", None)
        if reasoning := self._reasoning(request):
            body["reasoning"] = reasoning
        return body

    def _items(self, history: Sequence[Message], *, reasons: bool) -> Iterator[JsonObject]:
        for index, message in enumerate(history):
            match message.role:
                case "assistant":
                    yield from _answer_items(message, self._output(message, reasons), index)
                case "tool":
                    yield {
                        "type": "function_call_output",
                        "call_id": _call_id(message.tool_call_id or ""),
                        "output": _tool_output(message),
                    }
                case "user":
                    yield _message("user", _parts(message.content) or _EMPTY)
                case "system":
                    # Some services take the role `system` only at the beginning, or not at all.
                    yield _message("developer", message.text or _EMPTY)

    def _output(self, message: Message, reasons: bool) -> list[JsonObject]:
        """Return what the reader kept of an answer of this account, for the model of a request."""
        kept = _KEPT_TYPES if reasons else _KEPT_TYPES[1:]
        entries: list[JsonObject] = []
        for block in message.provider_blocks:
            is_ours = block.get(OWNER) == self._provider and block.get(ACCOUNT) == self._account
            found = block.get(OUTPUT) if is_ours else None
            entries += [
                entry
                for entry in (found if isinstance(found, list) else ())
                if isinstance(entry, dict) and entry.get("type") in kept
            ]
        return entries

    def _reasoning(self, request: ChatRequest) -> JsonObject:
        reasoning: JsonObject = {}
        if request.reasoning_effort is not None:
            reasoning["effort"] = _effort(request.model.lower(), request.reasoning_effort)
        if self._summary is not None and reasoning.get("effort") != "none":
            reasoning["summary"] = self._summary
        return reasoning


def _effort(model: str, effort: str) -> str:
    """Return the effort nearest to `effort` that `model` accepts, the higher one of two."""
    for name, accepted in _ACCEPTED_EFFORTS:
        if name.match(model):
            wanted = _EFFORTS.index(effort)
            higher = (each for each in accepted if _EFFORTS.index(each) >= wanted)
            return next(higher, accepted[-1])
    return effort


def _tool(tool: ToolDefinition) -> JsonObject:
    return {
        "type": "function",
        "name": tool.name,
        "description": tool.description,
        "parameters": adapt_schema(tool.parameters, dialect_of("openai", "").schema),
        # The default is true here, and most schemas do not meet its conditions.
        "strict": False,
    }


def _format(schema: JsonObject) -> JsonObject:
    # Loaded only for requests with a schema, which few are.
    from nanobot_core.tools import strict_schema

    strict = strict_schema(schema, keywords=_ENFORCED_KEYWORDS)
    return {
        "type": "json_schema",
        "name": "answer",
        "schema": schema if strict is None else strict,
        "strict": strict is not None,
    }


def _cache_key(instructions: str, first: JsonObject) -> str:
    """Return a key that the requests of one session share, so that they reach the same cache."""
    beginning = f"{instructions}\0{json.dumps(first)}"
    return sha256(beginning.encode()).hexdigest()[:32]


def _message(role: str, content: str | list[JsonValue]) -> JsonObject:
    parts: list[JsonValue] = [_text_part(content)] if isinstance(content, str) else content
    return {"type": "message", "role": role, "content": parts}


def _answer_items(
    message: Message, output: Sequence[JsonObject], index: int
) -> Iterator[JsonObject]:
    """Yield the items of an answer, in the order in which the model wrote them if it is known.

    Reasoning stays before the item that followed it, and is left out if that item is gone, because
    the service refuses reasoning without it.
    """
    lengths = [_length(entry) for entry in output if entry.get("type") == "message"]
    texts = _split(message.text, lengths)
    calls = {position: _function_call(call) for position, call in enumerate(message.tool_calls)}
    items = [] if lengths or not message.text else [_assistant_text(message.text, index, 0)]
    for entry in output:
        item: JsonObject | None = entry
        if entry["type"] == "message":
            text = next(texts)
            item = _assistant_text(text, index, len(items), entry.get("phase")) if text else None
        elif entry["type"] == "function_call":
            position = entry.get("call")
            item = calls.pop(position, None) if isinstance(position, int) else None
        if item is None:
            _drop_reasoning(items)
        else:
            items.append(item)
    _drop_reasoning(items)
    items += calls.values()
    yield from items or [_assistant_text(_EMPTY, index, 0)]


def _drop_reasoning(items: list[JsonObject]) -> None:
    while items and items[-1]["type"] == "reasoning":
        items.pop()


def _length(entry: JsonObject) -> int:
    chars = entry.get("chars")
    return chars if isinstance(chars, int) else 0


def _split(text: str, lengths: Sequence[int]) -> Iterator[str]:
    """Yield the texts of an answer's messages, which `ResponsesReader` joined.

    If the text was changed since, all of it takes the place of the first message.
    """
    gaps = len(TEXT_GAP) * (len(lengths) - 1)
    if sum(lengths) + gaps != len(text):
        yield text
        while True:
            yield ""
    for length in lengths:
        yield text[:length]
        text = text[length + len(TEXT_GAP) :]


def _assistant_text(text: str, index: int, number: int, phase: JsonValue = None) -> JsonObject:
    part: JsonObject = {"type": "output_text", "text": text, "annotations": []}
    item: JsonObject = {
        "type": "message",
        "role": "assistant",
        # The service's own id would refer to reasoning that may be left out.
        "id": f"msg_{index}_{number}",
        "status": "completed",
        "content": [part],
    }
    return item if phase is None else {**item, "phase": phase}


def _function_call(call: ToolCall) -> JsonObject:
    return {
        "type": "function_call",
        "call_id": _call_id(call.id),
        "name": _NO_NAME.sub("_", call.name)[:_MAX_NAME_CHARS] or "unknown",
        # The service parses the arguments of old calls too.
        "arguments": json.dumps(call.arguments, ensure_ascii=False),
    }


def _call_id(call_id: str) -> str:
    """Return an id that the service accepts, the same for a call and its result."""
    if _CALL_ID.fullmatch(call_id):
        return call_id
    return f"call_{sha256(call_id.encode()).hexdigest()[:32]}"


def _tool_output(message: Message) -> JsonValue:
    text = message.text or _EMPTY
    if message.is_error and not text.lower().startswith("error"):
        # The protocol has no field for it.
        text = f"Error: {text}"
    blocks = () if isinstance(message.content, str) else message.content
    images = [_image_part(block) for block in blocks if isinstance(block, ImageBlock)]
    return [_text_part(text), *images] if images else text


def _parts(content: Content) -> list[JsonValue]:
    if isinstance(content, str):
        return [_text_part(content)] if content else []
    return [
        _image_part(block) if isinstance(block, ImageBlock) else _text_part(block.text)
        for block in content
        if isinstance(block, ImageBlock) or block.text
    ]


def _text_part(text: str) -> JsonObject:
    return {"type": "input_text", "text": text}


def _image_part(block: ImageBlock) -> JsonObject:
    if not block.data:
        return _text_part(f"[image: {block.path or block.media_type}]")
    url = f"data:{block.media_type};base64,{block.data}"
    if block.is_document:
        name = PurePath(block.path or "document.pdf").name
        return {"type": "input_file", "filename": name, "file_data": url}
    return {"type": "input_image", "image_url": url, "detail": "auto"}
