"""LiteLLM's objects for the pieces of an answer, as JSON in OpenAI's format."""

from __future__ import annotations

from typing import Any


def says_why_it_ends(piece: object) -> bool:
    """Return whether `piece` holds the service's own reason for the end.

    LiteLLM puts a reason into each piece of Gemini's, and marks those pieces as unfinished.
    """
    if isinstance(piece, dict):
        return bool(piece.get("finish_reason"))
    if (getattr(piece, "_hidden_params", None) or {}).get("is_finished") is False:
        return False
    choices = getattr(piece, "choices", None) or ()
    return any(getattr(choice, "finish_reason", None) for choice in choices)


def payload_of(piece: object) -> dict[str, Any]:
    """Return a piece, or a whole answer, as JSON.

    Not by ``model_dump``, which warns of LiteLLM's own types and takes long for each piece.
    """
    if isinstance(piece, dict):
        return _common(piece)
    choices = [
        {
            "finish_reason": getattr(choice, "finish_reason", None),
            "delta": _fields(getattr(choice, "delta", None) or getattr(choice, "message", None)),
        }
        for choice in getattr(piece, "choices", None) or ()
    ]
    usage = getattr(piece, "usage", None)
    return {"choices": choices, "usage": None if usage is None else usage.model_dump()}


def _fields(message: object) -> dict[str, Any]:
    names = ("content", "reasoning_content", "thinking_blocks", "provider_specific_fields")
    fields = {name: getattr(message, name, None) for name in names}
    calls = getattr(message, "tool_calls", None) or ()
    fields["tool_calls"] = [_call(call) for call in calls]
    return fields


def _call(call: object) -> dict[str, Any]:
    function = getattr(call, "function", None)
    return {
        "id": getattr(call, "id", None),
        "index": getattr(call, "index", None),
        "provider_specific_fields": getattr(call, "provider_specific_fields", None),
        "function": {
            "name": getattr(function, "name", None),
            "arguments": getattr(function, "arguments", None),
        },
    }


def _common(piece: dict[str, Any]) -> dict[str, Any]:
    """Return a piece in the format that LiteLLM shares between some services, in OpenAI's."""
    fields = piece.get("provider_specific_fields") or {}
    call = piece.get("tool_use")
    delta = {
        "content": piece.get("text"),
        "tool_calls": [call] if call else [],
        "provider_specific_fields": fields,
        "reasoning_content": fields.get("reasoning_content"),
        "thinking_blocks": fields.get("thinking_blocks"),
    }
    choice = {"delta": delta, "finish_reason": piece.get("finish_reason") or None}
    return {"choices": [choice], "usage": piece.get("usage")}
