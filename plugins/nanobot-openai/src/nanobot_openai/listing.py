"""The models that a service lists, from the answer to ``GET /models``."""

from __future__ import annotations

from collections.abc import Iterator

from nanobot_core import Ability, ModelInfo

_WINDOWS = (
    "loaded_context_length",  # LM Studio, of a model in memory
    "max_model_len",  # vLLM
    "context_length",  # OpenRouter, Moonshot
    "context_window",  # Groq
    "max_context_length",  # Mistral, LM Studio
)
"""Fields with the window, in tokens."""
_META_WINDOWS = ("n_ctx", "n_ctx_train")
"""The same in llama.cpp's ``meta``: as it runs, and as the model was trained."""
_LARGEST_WINDOW = 1 << 40
"""More tokens than any service can mean."""


_PRICES = {"prompt": "input_usd", "completion": "output_usd", "input_cache_read": "cached_usd"}
_ABILITIES: dict[str, Ability] = {
    "image": "images",
    "file": "documents",
    "tools": "tools",
    "reasoning": "reasoning",
    "structured_outputs": "json_schema",
}


def model_list(payload: object) -> list[ModelInfo]:
    """Return the models in `payload`; rows without an id are left out, and all if it is no list."""
    rows = payload.get("data") if isinstance(payload, dict) else None
    found = [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []
    return [
        ModelInfo(
            name=row["id"],
            window_tokens=next(_windows(row), None),
            max_answer_tokens=_longest_answer(row),
            abilities=_abilities(row),
            **_prices(row),
        )
        for row in found
        if isinstance(row.get("id"), str) and row["id"]
    ]


def _longest_answer(row: dict[str, object]) -> int | None:
    """Return what Groq has in the row, and OpenRouter in that of the service behind it."""
    behind = row.get("top_provider")
    for holder in (row, behind if isinstance(behind, dict) else {}):
        value = holder.get("max_completion_tokens")
        if isinstance(value, int) and 1 < value < _LARGEST_WINDOW:
            return value
    return None


def _prices(row: dict[str, object]) -> dict[str, float]:
    """Return OpenRouter's prices, which are dollars for one token as text."""
    pricing = row.get("pricing")
    found = {}
    for theirs, ours in _PRICES.items():
        try:
            usd = float(str(pricing[theirs])) if isinstance(pricing, dict) else -1
        except (KeyError, ValueError):
            continue
        if 0 <= usd < 1:  # a router of models has the price -1
            found[ours] = round(usd * 1_000_000, 6)
    return found


def _abilities(row: dict[str, object]) -> frozenset[Ability] | None:
    """Return what OpenRouter reports; a service that reports only a part leaves the rest open."""
    architecture, parameters = row.get("architecture"), row.get("supported_parameters")
    inputs = architecture.get("input_modalities") if isinstance(architecture, dict) else None
    if not isinstance(inputs, list) or not isinstance(parameters, list):
        return None
    return frozenset(ability for word, ability in _ABILITIES.items() if word in inputs + parameters)


def _windows(row: dict[str, object]) -> Iterator[int]:
    meta = row.get("meta")
    values = [row.get(name) for name in _WINDOWS]
    if isinstance(meta, dict):
        values += [meta.get(name) for name in _META_WINDOWS]
    for value in values:
        if isinstance(value, int) and 1 < value < _LARGEST_WINDOW:
            yield value
