"""Where a vendor's form of the OpenAI protocol departs from the common one, as data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """One vendor's departures.

    Attributes:
        max_tokens_field: name of the limit on the answer.
        thinking: how thinking is steered: ``effort`` by ``reasoning_effort``, ``type`` by
            ``thinking.type``, ``flag`` by ``enable_thinking``.
        return_reasoning: thinking that led to tool calls must be handed back as
            ``reasoning_content``.
        stream_usage: the service takes ``stream_options`` (the others tell usage unasked).
        cost_field: field of ``usage`` that holds the price in US dollars, or ``None``.
    """

    max_tokens_field: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    thinking: Literal["effort", "type", "flag"] = "effort"
    return_reasoning: bool = False
    stream_usage: bool = True
    cost_field: str | None = None


_COMMON = Dialect()
_DIALECTS = {
    "openai": Dialect(max_tokens_field="max_completion_tokens"),
    "openrouter": Dialect(cost_field="cost"),
    "mistral": Dialect(stream_usage=False),
    "deepseek": Dialect(thinking="type", return_reasoning=True),
    "moonshot": Dialect(thinking="type", return_reasoning=True),
    "zhipu": Dialect(thinking="type", return_reasoning=True),
    "volcengine": Dialect(thinking="type", return_reasoning=True),
    "dashscope": Dialect(thinking="flag", return_reasoning=True),
    "siliconflow": Dialect(thinking="flag", return_reasoning=True),
    # What stands behind these is unknown; servers of open models want it or leave it unread.
    "custom": Dialect(return_reasoning=True),
    "vllm": Dialect(return_reasoning=True),
}


def dialect_of(provider: str) -> Dialect:
    """Return the dialect of the vendor named `provider`; unknown ones speak the common form."""
    return _DIALECTS.get(provider, _COMMON)
