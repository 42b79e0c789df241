"""From a `ChatRequest` to the body of ``POST /v1/messages``."""

from __future__ import annotations

import json
from collections.abc import Sequence
from hashlib import sha256
from typing import TYPE_CHECKING

from nanobot_anthropic.blocks import text_block
from nanobot_anthropic.mapping import called_names, encoded, system_blocks
from nanobot_anthropic.traits import max_tokens_of, traits_of
from nanobot_core import JsonObject, JsonValue

if TYPE_CHECKING:
    from nanobot_anthropic.mapping import Turn
    from nanobot_anthropic.traits import Traits
    from nanobot_core import ChatRequest, ProviderSpec, ToolDefinition

_CACHE_HERE: JsonObject = {"type": "ephemeral"}
_BUDGETS = {"low": 0.2, "medium": 0.4, "high": 0.6}
"""Part of the answer's tokens that thinking may take, where thinking has a budget."""
_SMALLEST_BUDGET = 1_024
_KNOWN_PREFIXES = 20_000


class SentPrefixes:
    """Fingerprints of what was sent, by which thinking is recognised that is still valid.

    A thinking block is bound to the conversation before it: some models refuse it once anything
    there has changed, for example when old results are left out to save tokens. A block is valid
    if what precedes it has been sent as a request before, because that request's answer contained
    it.
    """

    def __init__(self) -> None:
        self._known: dict[bytes, None] = {}

    def valid(self, head: JsonValue, turns: Sequence[Turn]) -> list[bool]:
        """Return for each turn whether its thinking may be sent, and remember the whole.

        Args:
            head: everything that precedes the turns.
            turns: of one request, whose last one is the user's.
        """
        digest = sha256(encoded(head))
        found: list[bool] = []
        for turn in turns:
            found.append(turn.thought is not None and digest.digest() in self._known)
            digest.update(turn.encoded(with_thought=found[-1]))
        self._known.pop(digest.digest(), None)
        self._known[digest.digest()] = None
        if len(self._known) > _KNOWN_PREFIXES:
            del self._known[next(iter(self._known))]
        return found


def body_of(
    request: ChatRequest, spec: ProviderSpec, tools: list[JsonValue], turns: Sequence[Turn]
) -> JsonObject:
    """Return the body for `request`, without its messages.

    The request's ``extra`` goes over what is derived here, and the spec's overrides for the model
    go over both.

    Args:
        request: what to ask.
        spec: the provider's row.
        tools: the request's tools in the form of the service.
        turns: the request's messages.
    """
    traits = traits_of(request.model)
    max_tokens = max_tokens_of(request.model, request.max_tokens)
    body: JsonObject = {"model": request.model, "max_tokens": max_tokens}
    body |= _tool_fields(request, tools, traits)
    system = system_blocks(request.messages)
    output = _output_format(request)
    if request.output_schema is not None and not output:
        system.append(_schema_block(request.output_schema))
    if system:
        body["system"] = [*system]
    body |= _thinking(request, traits, max_tokens, turns)
    is_thinking = body.get("thinking", {"type": "disabled"}) != {"type": "disabled"}
    if request.temperature is not None and traits.sampling and not is_thinking:
        # The service accepts 0 to 1, others up to 2.
        body["temperature"] = min(request.temperature, 1.0)
    if output:
        config = body.get("output_config")
        body["output_config"] = {**(config if isinstance(config, dict) else {}), "format": output}
    if spec.prompt_cache:
        _mark_beginning(body)
    body |= request.extra
    for part, fields in spec.model_overrides:
        if part in request.model.lower():
            body |= fields
    return body


def messages_of(
    body: JsonObject, turns: Sequence[Turn], prefixes: SentPrefixes, *, is_marked: bool
) -> bytes:
    """Return the messages for a body as JSON.

    Marks for the cache are on the newest message that the user wrote, and on the newest. The
    service looks for a cached beginning at each mark and at the twenty blocks before it; the first
    of these marks is found when one iteration adds more than that.

    Args:
        body: everything that precedes the messages.
        turns: the messages.
        prefixes: what this provider sent before.
        is_marked: with marks for the cache.
    """
    valid = [True] * len(turns)
    if traits_of(str(body["model"])).bound:
        valid = prefixes.valid([body.get("tools"), body.get("system")], turns)
    asked = [index for index, turn in enumerate(turns) if turn.is_asked]
    marked = {*asked[-1:], len(turns) - 1} if is_marked else set()
    parts = [
        _marked_turn(turn) if index in marked else turn.encoded(with_thought=valid[index])
        for index, turn in enumerate(turns)
    ]
    return b"[%b]" % b", ".join(parts)


def tool_schema(tool: ToolDefinition) -> JsonObject:
    """Return `tool` in the form of the service."""
    return {
        "name": tool.name,
        "description": tool.description,
        "input_schema": {"type": "object", **tool.parameters},
    }


def _tool_fields(request: ChatRequest, tools: list[JsonValue], traits: Traits) -> JsonObject:
    if tools:
        if request.tool_choice == "none":
            return {"tools": tools, "tool_choice": {"type": "none"}}
        if request.tool_choice == "required" and traits.forced_tools:
            return {"tools": tools, "tool_choice": {"type": "any"}}
        return {"tools": tools}
    # The service refuses calls in a history without a list of tools.
    if names := called_names(request.messages):
        absent: list[JsonValue] = [
            {
                "name": name,
                "description": "Not available now.",
                "input_schema": {"type": "object", "properties": {}},
            }
            for name in names
        ]
        return {"tools": absent, "tool_choice": {"type": "none"}}
    return {}


def _output_format(request: ChatRequest) -> JsonObject:
    """Return the format of the answer; nothing if the service cannot enforce its schema."""
    if request.output_schema is None:
        return {}
    # Most requests have no schema, and the package takes time to import.
    from nanobot_core.tools import strict_schema

    schema = strict_schema(request.output_schema)
    return {} if schema is None else {"type": "json_schema", "schema": schema}


def _schema_block(schema: JsonObject) -> JsonObject:
    """Return the sentence that stands in for a schema without a strict form."""
    text = "Answer with nothing but a JSON object that conforms to this JSON Schema:"
    return text_block(f"{text}\n{json.dumps(schema, ensure_ascii=False)}")


def _thinking(
    request: ChatRequest, traits: Traits, max_tokens: int, turns: Sequence[Turn]
) -> JsonObject:
    """Return the fields that steer thinking; none leave it as the model does by default."""
    effort = request.reasoning_effort
    is_forced = bool(request.tools) and request.tool_choice == "required" and traits.forced_tools
    if is_forced or effort == "none":
        # A model that thinks cannot be made to call a tool.
        return _without_thinking(traits)
    if effort is None:
        return {}
    level: JsonObject = {"output_config": {"effort": effort}} if traits.effort else {}
    if traits.thinking == "adaptive":
        # Newer models send no summary of their thinking unless it is requested.
        return {"thinking": {"type": "adaptive", "display": "summarized"}, **level}
    budget = max(_SMALLEST_BUDGET, int(max_tokens * _BUDGETS[effort]))
    if budget >= max_tokens or _continues_without_thinking(turns):
        return level
    return {"thinking": {"type": "enabled", "budget_tokens": budget}, **level}


def _without_thinking(traits: Traits) -> JsonObject:
    if traits.off == "absent":
        return {}
    if traits.off == "never":
        return {"output_config": {"effort": "low"}}
    return {"thinking": {"type": traits.off}}


def _continues_without_thinking(turns: Sequence[Turn]) -> bool:
    """Whether the model is to continue an answer that began without thinking.

    With a budget, an answer that calls tools must begin with its thinking; another model may have
    begun this one.
    """
    if len(turns) < 2 or turns[-1].is_asked:
        return False
    return turns[-2].thought is None


def _mark_beginning(body: JsonObject) -> None:
    """Mark the system prompt for the cache; tools precede it, so the mark includes them."""
    for key in ("system", "tools"):
        if marked := _marked(body.get(key)):
            body[key] = marked
            return


def _marked_turn(turn: Turn) -> bytes:
    """Return a message of the user as JSON, with a mark."""
    message = turn.to_json()
    return encoded({**message, "content": _marked(message["content"])})


def _marked(blocks: JsonValue) -> list[JsonValue]:
    """Return a copy of `blocks` with a mark on the last one."""
    if not isinstance(blocks, list) or not blocks or not isinstance(blocks[-1], dict):
        return []
    return [*blocks[:-1], {**blocks[-1], "cache_control": _CACHE_HERE}]
