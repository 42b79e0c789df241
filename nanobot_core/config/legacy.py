"""What configurations of the original hold and this core writes otherwise or has no use for."""

from __future__ import annotations

RETIRED_KEYS = {
    "agents.defaults.max_tool_result_chars": "set tools.max_tool_result_chars instead",
    "agents.defaults.max_messages": "histories are cut by tokens, see context_window_tokens",
    "agents.defaults.memory_window": "histories are cut by tokens, see context_window_tokens",
    "agents.defaults.context_block_limit": "histories are cut by tokens, see context_window_tokens",
    "agents.defaults.model_preset": "set model, or use a profile",
    "channels.send_max_retries": "deliveries are retried as the platform's answer allows",
}
"""Keys of the original, some close in spelling to ours: each a warning, never an error."""

_EFFORTS = {"minimal": "low", "minimum": "low", "xhigh": "high", "adaptive": None, "": None}


def none_if_empty(value: object) -> object:
    """Read the original's empty texts as no value."""
    return None if value == "" else value


def none_if_automatic(value: object) -> object:
    """Read the original's ``provider: auto`` as no choice."""
    return None if value in ("", "auto") else value


def known_effort(value: object) -> object:
    """Read the original's further reasoning efforts as the nearest that all services know."""
    return _EFFORTS.get(value, value) if isinstance(value, str) else value


def first_model(value: object) -> object:
    """Read the original's fallback candidates, mappings that name a model."""
    return value.get("model", value) if isinstance(value, dict) else value
