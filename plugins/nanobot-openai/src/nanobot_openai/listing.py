"""The models that a service lists, from the answer to ``GET /models``."""

from __future__ import annotations

from collections.abc import Iterator

from nanobot_core import ModelInfo

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


def model_list(payload: object) -> list[ModelInfo]:
    """Return the models in `payload`; rows without an id are left out, and all if it is no list."""
    rows = payload.get("data") if isinstance(payload, dict) else None
    found = [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []
    return [
        ModelInfo(name=row["id"], window_tokens=next(_windows(row), None))
        for row in found
        if isinstance(row.get("id"), str) and row["id"]
    ]


def _windows(row: dict[str, object]) -> Iterator[int]:
    meta = row.get("meta")
    values = [row.get(name) for name in _WINDOWS]
    if isinstance(meta, dict):
        values += [meta.get(name) for name in _META_WINDOWS]
    for value in values:
        if isinstance(value, int) and 1 < value < _LARGEST_WINDOW:
            yield value
