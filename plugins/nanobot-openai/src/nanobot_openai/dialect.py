"""How a vendor's form of the OpenAI protocol differs from the common one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """The differences of one vendor.

    Attributes:
        max_tokens_field: name of the limit on the answer.
        thinking: how thinking is steered: ``effort`` by ``reasoning_effort``, ``type`` by
            ``thinking.type``, ``flag`` by ``enable_thinking``.
        return_reasoning: which messages of the model contain its thinking as
            ``reasoning_content``: none, those with tool calls, or all.
        absent_reasoning: the value of that field for messages without thinking, such as those of
            another model, if the service refuses them without the field; ``None`` omits it.
        mistral: ids of tool calls must be nine letters and digits, and the model must answer
            the results of its tools before the user writes again.
        alternating: the service refuses two neighbouring messages of the user or of the model, so
            they are merged.
        stream_usage: the service accepts ``stream_options`` (the others always report usage).
        cost_field: field of ``usage`` with the price in US dollars, or ``None``.
    """

    max_tokens_field: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    thinking: Literal["effort", "type", "flag"] = "effort"
    return_reasoning: Literal["none", "calls", "all"] = "none"
    absent_reasoning: str | None = None
    mistral: bool = False
    alternating: bool = False
    stream_usage: bool = True
    cost_field: str | None = None


_MISTRAL_FAMILY = (
    "mistral",
    "ministral",
    "mixtral",
    "magistral",
    "codestral",
    "devstral",
    "pixtral",
)


def speaks_mistral(dialect: Dialect, model: str) -> bool:
    """Whether Mistral's rules apply; the templates of its open models enforce them too."""
    return dialect.mistral or any(name in model.lower() for name in _MISTRAL_FAMILY)


def must_alternate(dialect: Dialect, model: str) -> bool:
    """Whether roles must alternate; the templates of some open models raise if they do not."""
    return dialect.alternating or speaks_mistral(dialect, model) or "gemma" in model.lower()
