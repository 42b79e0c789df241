"""Amounts of tokens and money, and what a model call cost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nanobot_core import Usage
    from nanobot_usage.settings import Price

NANO_PER_USD = 1_000_000_000
_NANO_PER_USD_AND_TOKEN = 1_000
"""A dollar for a million tokens, in billionths of a dollar for one."""


@dataclass(frozen=True, slots=True)
class Spent:
    """Tokens, and money in billionths of a dollar, which add up without rounding."""

    tokens: int = 0
    nano_usd: int = 0

    def __add__(self, other: Spent) -> Spent:
        return Spent(self.tokens + other.tokens, self.nano_usd + other.nano_usd)

    @property
    def usd(self) -> float:
        """The money in dollars."""
        return self.nano_usd / NANO_PER_USD


def nano_usd_of(model: str, usage: Usage, prices: Mapping[str, Price]) -> int | None:
    """Return what a call cost, or ``None`` if no price is known.

    The service's own figure counts first, then the owner's prices, then the list price.

    Args:
        model: name of the model, with or without the provider before it.
        prices: pattern to price; patterns are compared with the name and with its last part.
    """
    if usage.cost_usd is not None:
        return round(usage.cost_usd * NANO_PER_USD)
    names = (model, model.rpartition("/")[2])
    patterns = [each for each in prices if any(fnmatchcase(name, each) for name in names)]
    if not patterns:
        known = usage.estimated_usd
        return None if known is None else round(known * NANO_PER_USD)
    price = prices[max(patterns, key=len)]
    cached = price.input if price.cached is None else price.cached
    fresh_tokens = max(usage.prompt_tokens - usage.cached_tokens, 0)
    dollars_per_million = (
        fresh_tokens * price.input
        + usage.cached_tokens * cached
        + usage.completion_tokens * price.output
    )
    return round(dollars_per_million * _NANO_PER_USD_AND_TOKEN)
