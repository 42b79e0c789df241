"""Where a vendor's form of the OpenAI protocol departs from the common one, as data."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """One vendor's departures.

    Attributes:
        max_tokens_field: name of the limit on the answer.
        thinking: how thinking is steered: ``effort`` by ``reasoning_effort``, ``type`` by
            ``thinking.type``, ``flag`` by ``enable_thinking``.
        return_reasoning: which messages of the model hand its thinking back as
            ``reasoning_content``: none, those with tool calls, or all.
        absent_reasoning: what those of them hand back that have no thinking, such as messages of
            another model, because the service refuses them without the field; ``None`` leaves it
            out.
        mistral: ids of tool calls must be nine letters and digits, and the model must answer
            the results of its tools before the user writes again.
        alternating: the service refuses two neighbouring messages of the user or of the model, so
            they are merged.
        stream_usage: the service takes ``stream_options`` (the others report usage unasked).
        cost_field: field of ``usage`` that holds the price in US dollars, or ``None``.
    """

    max_tokens_field: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    thinking: Literal["effort", "type", "flag"] = "effort"
    return_reasoning: Literal["none", "calls", "all"] = "none"
    absent_reasoning: str | None = None
    mistral: bool = False
    alternating: bool = False
    stream_usage: bool = True
    cost_field: str | None = None


_COMMON = Dialect()
_DIALECTS = {
    "openai": Dialect(max_tokens_field="max_completion_tokens"),
    "openrouter": Dialect(cost_field="cost"),
    "mistral": Dialect(stream_usage=False, mistral=True, alternating=True),
    # Since V3.2 refused without the field in turns with tool calls, and left unread in others.
    "deepseek": Dialect(thinking="type", return_reasoning="all", absent_reasoning=""),
    # An empty text counts as absent there.
    "moonshot": Dialect(thinking="type", return_reasoning="calls", absent_reasoning=" "),
    "zhipu": Dialect(thinking="type", return_reasoning="calls"),
    "volcengine": Dialect(thinking="type", return_reasoning="calls"),
    "dashscope": Dialect(thinking="flag", return_reasoning="calls"),
    "siliconflow": Dialect(thinking="flag", return_reasoning="calls"),
    # The model behind these is unknown; servers of open models want it or leave it unread.
    "custom": Dialect(return_reasoning="calls"),
    "vllm": Dialect(return_reasoning="calls"),
}
_MISTRAL_FAMILY = re.compile(
    "mistral|ministral|mixtral|magistral|codestral|devstral|pixtral", re.IGNORECASE
)


def dialect_of(provider: str) -> Dialect:
    """Return the dialect of the vendor named `provider`; unknown ones speak the common form."""
    return _DIALECTS.get(provider, _COMMON)


def speaks_mistral(dialect: Dialect, model: str) -> bool:
    """Whether Mistral's rules apply; the templates of its open models enforce them too."""
    return dialect.mistral or _MISTRAL_FAMILY.search(model) is not None


def must_alternate(dialect: Dialect, model: str) -> bool:
    """Whether roles must alternate; the templates of some open models raise if they do not."""
    return dialect.alternating or speaks_mistral(dialect, model) or "gemma" in model.lower()
