"""What generations of models accept, as data.

From Anthropic's pages on thinking and on migrating to each model, as of November 2026.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Literal

_NO_FURTHER_VERSION = r"(?!-\d{1,2}(?!\d))"
"""``claude-opus-5`` is not ``claude-opus-5-5``; a date such as ``-20251101`` may follow."""
_ANSWER_TOKENS = 8_192
"""Limit of an answer for models whose own limit is unknown; every model accepts it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Traits:
    """What one generation accepts.

    Attributes:
        thinking: how thinking is requested: ``adaptive`` with an effort, or with a ``budget`` of
            tokens.
        off: what turns thinking off: ``absent`` (it is off unless requested), a ``thinking.type``,
            or ``never``.
        effort: ``output_config.effort`` is accepted.
        sampling: a temperature is accepted.
        forced_tools: the model can be made to call a tool, while it does not think.
        bound: a thinking block is refused if anything before it has changed.
    """

    thinking: Literal["adaptive", "budget"] = "adaptive"
    off: Literal["absent", "disabled", "between_tools", "never"] = "never"
    effort: bool = True
    sampling: bool = False
    forced_tools: bool = False
    bound: bool = True


_NEWEST = Traits()
_BUDGET = Traits(
    thinking="budget", off="absent", effort=False, sampling=True, forced_tools=True, bound=False
)
_ADAPTIVE_ON_REQUEST = Traits(off="absent", forced_tools=True, bound=False)
_ADAPTIVE = Traits(off="disabled", forced_tools=True, bound=False)

_GENERATIONS: tuple[tuple[str, Traits], ...] = (
    (r"claude-sonnet-5-5", Traits(off="between_tools")),
    (r"claude-haiku-5-5", Traits(off="disabled", forced_tools=True)),
    (r"claude-(opus|sonnet)-5", _ADAPTIVE),
    (r"claude-opus-4-[78]", _ADAPTIVE_ON_REQUEST),
    (
        r"claude-(opus|sonnet)-4-6",
        Traits(off="absent", sampling=True, forced_tools=True, bound=False),
    ),
    (
        r"claude-opus-4-5",
        Traits(thinking="budget", off="absent", sampling=True, forced_tools=True, bound=False),
    ),
    (r"claude-(opus|sonnet|haiku)-4(-[015])?", _BUDGET),
    (r"claude-\d", _BUDGET),
)
"""(pattern of names, traits); the first that matches applies."""


@lru_cache
def traits_of(model: str) -> Traits:
    """Return what `model` accepts.

    A Claude model without an entry counts as one of the newest. Models of others, which some
    services offer behind the same protocol, understand its older form.
    """
    name = _plain(model)
    if "claude" not in name:
        return _BUDGET
    for pattern, traits in _GENERATIONS:
        if re.search(pattern + _NO_FURTHER_VERSION, name):
            return traits
    return _NEWEST


@lru_cache
def answer_limit(model: str) -> int | None:
    """Return the most tokens that an answer of `model` may have, or ``None`` if unknown."""
    name = _plain(model)
    for known, limit in _answer_limits().items():
        if re.search(known + _NO_FURTHER_VERSION, name):
            return limit
    return None


def max_tokens_of(model: str, wanted: int | None) -> int:
    """Return the limit of an answer to send, which the service requires and checks."""
    limit = answer_limit(model)
    if wanted is None:
        return limit or _ANSWER_TOKENS
    return wanted if limit is None else min(wanted, limit)


def _plain(model: str) -> str:
    return model.lower().replace(".", "-")


@cache
def _answer_limits() -> dict[str, int]:
    rows = json.loads(Path(__file__).with_name("models.json").read_text("utf-8"))
    return {row["name"]: row["max_answer_tokens"] for row in rows}
