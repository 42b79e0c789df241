"""From a `ChatRequest` to the arguments of LiteLLM's ``acompletion``."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import TYPE_CHECKING

from nanobot_core import ChatRequest, Content, ImageBlock, JsonObject, JsonValue, Message, ToolCall

if TYPE_CHECKING:
    from nanobot_core import ProviderSpec

EMPTY = "(empty)"
"""Replaces empty content, which services refuse."""

BLOCK_OWNER = "provider"
"""Key of a provider block that names who made it; only that provider gets it back."""

_CACHE_HERE: JsonObject = {"type": "ephemeral"}


def arguments_of(
    request: ChatRequest, spec: ProviderSpec, options: Mapping[str, JsonValue]
) -> JsonObject:
    """Return the arguments for `request`, except those that say how to reach the service.

    The section's `options` go under what is derived here, the request's ``extra`` over it, and the
    spec's overrides for the model over both, because the service refuses the request without them.
    LiteLLM changes its arguments, so they are copies of what the request contains.
    """
    messages = _messages(request.messages, spec.name)
    # For models other than Claude, LiteLLM would make a stored cache, which costs by the hour.
    if spec.prompt_cache and "claude" in request.model.lower():
        _mark_for_cache(messages)
    arguments: JsonObject = {**options, "model": request.model}
    arguments["messages"] = list[JsonValue](messages)
    if request.tools:
        arguments["tools"] = [deepcopy(tool.to_schema()) for tool in request.tools]
        # `auto` is what services do unasked, and some refuse the field while the model thinks.
        if request.tool_choice != "auto":
            arguments["tool_choice"] = request.tool_choice
    if request.max_tokens is not None:
        arguments["max_tokens"] = request.max_tokens
    if request.temperature is not None:
        arguments["temperature"] = request.temperature
    if request.reasoning_effort is not None:
        arguments["reasoning_effort"] = request.reasoning_effort
    arguments |= deepcopy(request.extra)
    for part, fields in spec.model_overrides:
        if part in request.model.lower():
            arguments |= deepcopy(fields)
    return arguments


def _messages(history: Sequence[Message], provider: str) -> list[JsonObject]:
    messages: list[JsonObject] = []
    shown: list[JsonValue] = []
    for message in history:
        if message.role == "tool":
            messages.append(_tool_message(message))
            shown += _images(message.content)
            continue
        if shown:
            messages.append(_tool_images(shown))
            shown = []
        if message.role == "assistant":
            messages.append(_assistant_message(message, provider))
        elif message.role == "user":
            messages.append({"role": "user", "content": _content(message.content)})
        else:
            messages.append({"role": "system", "content": message.text or EMPTY})
    if shown:
        messages.append(_tool_images(shown))
    return messages


def _tool_message(message: Message) -> JsonObject:
    text = message.text or EMPTY
    if message.is_error and not text.lower().startswith("error"):
        # LiteLLM's form of a message has no field for it.
        text = f"Error: {text}"
    return {"role": "tool", "tool_call_id": message.tool_call_id or "", "content": text}


def _tool_images(images: list[JsonValue]) -> JsonObject:
    """Return images of tool results as the user's: not every service takes them in a result."""
    note: JsonObject = {"type": "text", "text": "Images from the tool results above:"}
    return {"role": "user", "content": [note, *images]}


def _assistant_message(message: Message, provider: str) -> JsonObject:
    calls = [_tool_call(call) for call in message.tool_calls]
    wire: JsonObject = {"role": "assistant", "content": message.text or (None if calls else EMPTY)}
    _hand_back(message.provider_blocks, provider, wire, calls)
    if calls:
        wire["tool_calls"] = list[JsonValue](calls)
    return wire


def _hand_back(
    blocks: Sequence[JsonObject], provider: str, wire: JsonObject, calls: list[JsonObject]
) -> None:
    """Put the blocks that `answer.py` kept of this provider's answer back in their place."""
    for block in blocks:
        if block.get(BLOCK_OWNER) != provider:
            continue
        if thoughts := block.get("thinking_blocks"):
            wire["thinking_blocks"] = deepcopy(thoughts)
        position, fields = block.get("call"), block.get("provider_specific_fields")
        if not fields:
            continue
        if position is None:
            wire["provider_specific_fields"] = deepcopy(fields)
        elif isinstance(position, int) and position < len(calls):
            calls[position]["provider_specific_fields"] = deepcopy(fields)


def _tool_call(call: ToolCall) -> JsonObject:
    # LiteLLM parses the arguments of old calls too: text that was not JSON would fail each request.
    arguments = json.dumps(call.arguments, ensure_ascii=False)
    return {
        "id": call.id,
        "type": "function",
        "function": {"name": call.name, "arguments": arguments},
    }


def _content(content: Content) -> JsonValue:
    if isinstance(content, str):
        return content or EMPTY
    if not any(isinstance(block, ImageBlock) for block in content):
        texts = [block.text for block in content if not isinstance(block, ImageBlock)]
        return "\n".join(texts) or EMPTY
    parts: list[JsonValue] = []
    for block in content:
        if isinstance(block, ImageBlock):
            parts.append(_image(block))
        elif block.text:
            parts.append({"type": "text", "text": block.text})
    return parts


def _images(content: Content) -> list[JsonValue]:
    blocks = () if isinstance(content, str) else content
    return [_image(block) for block in blocks if isinstance(block, ImageBlock)]


def _image(block: ImageBlock) -> JsonObject:
    if not block.data or block.is_document:
        kind = "file" if block.is_document else "image"
        return {"type": "text", "text": f"[{kind}: {block.path or block.media_type}]"}
    url = f"data:{block.media_type};base64,{block.data}"
    return {"type": "image_url", "image_url": {"url": url}}


def _mark_for_cache(messages: list[JsonObject]) -> None:
    """Mark the system prompt, the newest message of the user, and the newest message."""
    system = [0] if messages and messages[0]["role"] == "system" else []
    asked = [index for index, message in enumerate(messages) if message["role"] == "user"]
    for index in {*system, *asked[-1:], *range(len(messages))[-1:]}:
        message = messages[index]
        content = message["content"]
        if message["role"] == "tool":
            # LiteLLM looks for it beside the content of a result.
            messages[index] = {**message, "cache_control": _CACHE_HERE}
            continue
        if isinstance(content, str):
            content = [{"type": "text", "text": content, "cache_control": _CACHE_HERE}]
        elif isinstance(content, list) and content and isinstance(content[-1], dict):
            content = [*content[:-1], {**content[-1], "cache_control": _CACHE_HERE}]
        messages[index] = {**message, "content": content}
