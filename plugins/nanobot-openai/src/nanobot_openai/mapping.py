"""From a `ChatRequest` to the body of ``POST /chat/completions``."""

from __future__ import annotations

import json
import operator
import re
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import replace
from hashlib import sha256
from pathlib import PurePath
from typing import TYPE_CHECKING

from nanobot_core import (
    ChatRequest,
    Content,
    ImageBlock,
    JsonObject,
    JsonValue,
    Message,
    TextBlock,
    ToolCall,
)
from nanobot_openai.dialect import ANY_NAME
from nanobot_openai.schema import adapt_schema, is_closed

if TYPE_CHECKING:
    from nanobot_core import ProviderSpec, ToolDefinition
    from nanobot_openai.dialect import Dialect

EMPTY = "(empty)"
"""Replaces empty content, which services refuse."""

DONE = "Done."
"""The model's answer to the results of its tools where the history has none."""

BLOCK_OWNER = "provider"
"""Key of a provider block that names who made it; only that provider gets it back."""

NAME_MARK = "x__"
"""Before the name of a tool that a service would refuse."""

_LATE_SYSTEM = "Message of the system:"
_CALL_ID_CHARS = 9
_CACHE_HERE: JsonObject = {"type": "ephemeral"}
_KNOWN_RUNS = 8


class MessageMapper:
    """Maps the messages of requests.

    The requests of a run repeat each other, so what is mapped of the latest runs is kept.

    Args:
        provider: name of the provider.
    """

    def __init__(self, provider: str) -> None:
        self._provider = provider
        self._runs: OrderedDict[int, tuple[Sequence[Message], Dialect, list[JsonObject]]] = (
            OrderedDict()
        )

    def map(self, history: Sequence[Message], dialect: Dialect) -> list[JsonObject]:
        """Return `history` on the wire. Only the list itself may be changed."""
        run = id(history[0]) if history else 0
        known, spoken, mapped = self._runs.pop(run, ((), dialect, []))
        is_longer = len(known) <= len(history) and all(map(operator.is_, known, history))
        if not is_longer or spoken != dialect:
            known, mapped = (), []
        added = history[len(known) :]
        mapped = [*mapped, *_messages(added, self._provider, dialect)]
        # Images are large, and those of tool results follow the results of the same answer.
        if all(isinstance(message.content, str) for message in added):
            self._runs[run] = history, dialect, mapped
            if len(self._runs) > _KNOWN_RUNS:
                self._runs.popitem(last=False)
        return list(mapped)


def body_of(
    request: ChatRequest,
    *,
    spec: ProviderSpec,
    dialect: Dialect,
    mapper: MessageMapper,
    stream: bool,
    tools: list[JsonValue],
) -> JsonObject:
    """Return the body for `request`, whose tools are `tools` on the wire.

    The request's ``extra`` goes over what is derived here, and the spec's overrides for the model
    go over both, because the service refuses the request without them.
    """
    messages = _in_order(mapper.map(request.messages, dialect), dialect)
    if spec.prompt_cache and "claude" in request.model.lower():
        _mark_for_cache(messages)
    body: JsonObject = {"model": request.model, "messages": list[JsonValue](messages)}
    if request.max_tokens is not None:
        body[dialect.max_tokens_field] = request.max_tokens
    if request.temperature is not None and dialect.temperatures is not None:
        lowest, highest = dialect.temperatures
        body["temperature"] = min(max(request.temperature, lowest), highest)
    if tools:
        body |= _offer(request, dialect, tools)
    body |= _thinking(request, dialect, stream=stream, has_tools="tools" in body)
    if request.output_schema is not None:
        body["response_format"] = _response_format(request.output_schema, dialect)
    if stream:
        body["stream"] = True
        if dialect.stream_usage:
            body["stream_options"] = {"include_usage": True}
    body |= request.extra
    for part, fields in spec.model_overrides:
        if part in request.model.lower():
            body |= fields
    return body


def render_tool(tool: ToolDefinition, dialect: Dialect) -> JsonObject:
    """Return what a body says of `tool`."""
    function: JsonObject = {
        "name": wire_name(tool.name, dialect),
        "description": tool.description,
        "parameters": adapt_schema(tool.parameters, dialect.schema),
    }
    return {"type": "function", "function": function}


def wire_name(name: str, dialect: Dialect) -> str:
    """Return the name of a tool as the service accepts it; `own_name` undoes it."""
    is_accepted = re.fullmatch(dialect.tool_name, name) and not name.startswith(NAME_MARK)
    return name if is_accepted or dialect.tool_name == ANY_NAME else NAME_MARK + name


def own_name(name: str, dialect: Dialect) -> str:
    """Return the name of a tool from what the service wrote."""
    return name if dialect.tool_name == ANY_NAME else name.removeprefix(NAME_MARK)


def _offer(request: ChatRequest, dialect: Dialect, tools: list[JsonValue]) -> JsonObject:
    """Return the tools and how they may be chosen.

    A service without ``none`` gets no tools instead; one without ``required`` chooses itself.
    """
    choice, accepted = request.tool_choice, dialect.tool_choices
    effort = request.reasoning_effort
    if dialect.thinks_unasked if effort is None else effort != "none":
        accepted &= dialect.thinking_choices
    if choice == "none" and choice not in accepted:
        return {}
    # `auto` is what services do unasked, and some refuse the field while the model thinks.
    if choice == "auto" or choice not in accepted:
        return {"tools": tools}
    return {"tools": tools, "tool_choice": choice}


def _thinking(
    request: ChatRequest, dialect: Dialect, *, stream: bool, has_tools: bool
) -> JsonObject:
    fields = dialect.efforts.get(request.reasoning_effort or "", {})
    if has_tools and dialect.effort_with_tools is not None:
        fields = dialect.effort_with_tools
    return fields if stream or dialect.whole_answer is None else {**fields, **dialect.whole_answer}


def _response_format(schema: JsonObject, dialect: Dialect) -> JsonObject:
    from nanobot_core.tools import strict_schema

    strict = strict_schema(schema)
    wanted = adapt_schema(schema if strict is None else strict, dialect.schema)
    is_strict = strict is not None and is_closed(wanted)
    shape: JsonObject = {"name": "answer", "schema": wanted, "strict": is_strict}
    return {"type": "json_schema", "json_schema": shape}


def _messages(history: Sequence[Message], provider: str, dialect: Dialect) -> list[JsonObject]:
    messages: list[JsonObject] = []
    shown: list[JsonValue] = []
    history = [_readable(message, dialect) for message in history]
    for message in history:
        if message.role == "tool":
            messages.append(_tool_message(message, dialect))
            shown += _images(message.content)
            continue
        if shown:
            messages.append(_tool_images(shown))
            shown = []
        if message.role == "assistant":
            messages.append(_assistant_message(message, provider, dialect))
        elif message.role == "user":
            messages.append({"role": "user", "content": _content(message.content)})
        else:
            messages.append({"role": "system", "content": message.text or EMPTY})
    if shown:
        messages.append(_tool_images(shown))
    return messages


def _readable(message: Message, dialect: Dialect) -> Message:
    """Return `message` with the names of files that the service does not accept in their place."""
    if isinstance(message.content, str):
        return message
    content = tuple(
        TextBlock(_named(block))
        if isinstance(block, ImageBlock) and not _is_accepted(block, dialect)
        else block
        for block in message.content
    )
    return replace(message, content=content)


def _is_accepted(block: ImageBlock, dialect: Dialect) -> bool:
    return dialect.documents if block.is_document else "text-only" not in dialect.needs


def _in_order(messages: list[JsonObject], dialect: Dialect) -> list[JsonObject]:
    """Return `messages` with roles in an order that the service accepts."""
    if "one-system" in dialect.needs:
        messages = _with_one_system(messages)
    if "answer-results" in dialect.needs:
        messages = _with_answered_results(messages)
    if "alternate" in dialect.needs:
        messages = _alternating(messages)
    return messages


def _with_one_system(messages: list[JsonObject]) -> list[JsonObject]:
    """Join the system messages at the beginning; later ones become the user's, in their place."""
    result: list[JsonObject] = []
    for message in messages:
        if message["role"] != "system" or not result:
            result.append(message)
        elif len(result) == 1 and result[0]["role"] == "system":
            result[0] = {**message, "content": _joined(result[0]["content"], message["content"])}
        else:
            content = f"{_LATE_SYSTEM}\n{message['content']}"
            result.append({"role": "user", "content": content})
    return result


def _call_id(call_id: str, dialect: Dialect) -> str:
    """Return an id that the service accepts, the same for a call and its result."""
    if re.fullmatch(dialect.call_id, call_id, re.DOTALL):
        return call_id
    return sha256(call_id.encode()).hexdigest()[:_CALL_ID_CHARS]


def _with_answered_results(messages: list[JsonObject]) -> list[JsonObject]:
    """Put an answer between the result of a tool and a user message, which Mistral demands."""
    answered: list[JsonObject] = []
    for message in messages:
        if message["role"] == "user" and answered and answered[-1]["role"] == "tool":
            answered.append({"role": "assistant", "content": DONE})
        answered.append(message)
    return answered


def _alternating(messages: list[JsonObject]) -> list[JsonObject]:
    """Merge neighbouring messages of the user, and of the model where it calls no tools."""
    merged: list[JsonObject] = []
    for message in messages:
        last = merged[-1] if merged else {}
        is_same = message["role"] == last.get("role") and message["role"] in {"user", "assistant"}
        if is_same and "tool_calls" not in last:
            content = _joined(last["content"], message["content"])
            merged[-1] = {**last, **message, "content": content}
        else:
            merged.append(message)
    return merged


def _joined(first: JsonValue, second: JsonValue) -> JsonValue:
    texts = [each for each in (first, second) if isinstance(each, str)]
    if not isinstance(first, list) and not isinstance(second, list):
        return "\n\n".join(texts)
    parts: list[JsonValue] = []
    for content in (first, second):
        if isinstance(content, list):
            parts += content
        elif content:
            parts.append({"type": "text", "text": content})
    return parts


def _tool_message(message: Message, dialect: Dialect) -> JsonObject:
    text = message.text or EMPTY
    if message.is_error and not text.lower().startswith("error"):
        # The protocol has no field for it.
        text = f"Error: {text}"
    call_id = message.tool_call_id and _call_id(message.tool_call_id, dialect)
    return {"role": "tool", "tool_call_id": call_id or "", "content": text}


def _tool_images(images: list[JsonValue]) -> JsonObject:
    """Tool messages may hold only text, so their images follow the last of them as the user's."""
    note: JsonObject = {"type": "text", "text": "Images from the tool results above:"}
    return {"role": "user", "content": [note, *images]}


def _assistant_message(message: Message, provider: str, dialect: Dialect) -> JsonObject:
    wire: JsonObject = {"role": "assistant", "content": message.text or EMPTY}
    if dialect.return_reasoning == "all" or (
        dialect.return_reasoning == "calls" and message.tool_calls
    ):
        reasoning = message.reasoning or dialect.absent_reasoning
        if reasoning is not None:
            wire["reasoning_content"] = reasoning
    if message.tool_calls:
        wire["content"] = message.text or None
        calls = [_tool_call(call, dialect) for call in message.tool_calls]
        _hand_back(message.provider_blocks, provider, wire, calls)
        if dialect.unsigned_call and not any("extra_content" in call for call in calls):
            calls[0]["extra_content"] = dialect.unsigned_call
        wire["tool_calls"] = list[JsonValue](calls)
    else:
        _hand_back(message.provider_blocks, provider, wire, [])
    return wire


def _hand_back(
    blocks: Sequence[JsonObject], provider: str, wire: JsonObject, calls: list[JsonObject]
) -> None:
    """Put the blocks that `answer.py` kept of this provider's answer back in their place."""
    for block in blocks:
        if block.get(BLOCK_OWNER) != provider:
            continue
        if details := block.get("reasoning_details"):
            wire["reasoning_details"] = details
        position, extra = block.get("call"), block.get("extra_content")
        if isinstance(position, int) and position < len(calls) and extra:
            calls[position]["extra_content"] = extra


def _tool_call(call: ToolCall, dialect: Dialect) -> JsonObject:
    # Services parse the arguments of old calls too: text that was not JSON would fail each request.
    arguments = json.dumps(call.arguments, ensure_ascii=False)
    return {
        "id": _call_id(call.id, dialect),
        "type": "function",
        "function": {"name": wire_name(call.name, dialect), "arguments": arguments},
    }


def _content(content: Content) -> JsonValue:
    """Return the content of a user message.

    It is a text where there are no images, because some servers of open models take no list.
    """
    if isinstance(content, str):
        return content or EMPTY
    parts: list[JsonValue] = []
    for block in content:
        if isinstance(block, ImageBlock):
            parts.append(_image(block))
        elif block.text:
            parts.append({"type": "text", "text": block.text})
    if any(isinstance(block, ImageBlock) for block in content):
        return parts
    return "\n".join(block.text for block in content if not isinstance(block, ImageBlock)) or EMPTY


def _images(content: Content) -> list[JsonValue]:
    blocks = () if isinstance(content, str) else content
    return [_image(block) for block in blocks if isinstance(block, ImageBlock)]


def _image(block: ImageBlock) -> JsonObject:
    if not block.data:
        return {"type": "text", "text": _named(block)}
    url = f"data:{block.media_type};base64,{block.data}"
    if block.is_document:
        name = PurePath(block.path or "document.pdf").name
        return {"type": "file", "file": {"filename": name, "file_data": url}}
    return {"type": "image_url", "image_url": {"url": url}}


def _named(block: ImageBlock) -> str:
    kind = "file" if block.is_document else "image"
    return f"[{kind}: {block.path or block.media_type}]"


def _mark_for_cache(messages: list[JsonObject]) -> None:
    """Mark the system prompt, the newest message of the user, and the newest message.

    This is Anthropic's prompt caching, as OpenRouter passes it on. The service looks for a cached
    beginning at each mark and at the twenty passages before it; the mark in the middle is found
    when one iteration adds more than that.
    """
    system = [0] if messages and messages[0]["role"] == "system" else []
    asked = [index for index, message in enumerate(messages) if message["role"] == "user"]
    for index in {*system, *asked[-1:], *range(len(messages))[-1:]}:
        content = messages[index]["content"]
        if isinstance(content, str):
            content = [{"type": "text", "text": content, "cache_control": _CACHE_HERE}]
        elif isinstance(content, list) and content and isinstance(content[-1], dict):
            content = [*content[:-1], {**content[-1], "cache_control": _CACHE_HERE}]
        messages[index] = {**messages[index], "content": content}
