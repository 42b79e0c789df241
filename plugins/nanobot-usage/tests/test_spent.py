from __future__ import annotations

import pytest

from nanobot_core import Usage
from nanobot_usage.settings import Price
from nanobot_usage.spent import Spent, nano_usd_of

PRICES = {
    "gpt*": Price(input=1, output=4),
    "gpt-large*": Price(input=2, output=8, cached=0.5),
    "vendor/*": Price(input=3, output=3),
}
USAGE = Usage(prompt_tokens=1_000_000, completion_tokens=500_000, cached_tokens=400_000)


@pytest.mark.parametrize(
    ("model", "usd"),
    [
        ("gpt-small", 3.0),
        ("gateway/gpt-small", 3.0),
        ("gpt-large-2", 0.6 * 2 + 0.4 * 0.5 + 0.5 * 8),
        ("vendor/other", 4.5),
    ],
)
def test_the_longest_pattern_that_matches_sets_the_price(model: str, usd: float) -> None:
    assert nano_usd_of(model, USAGE, PRICES) == round(usd * 1e9)


def test_what_the_service_says_counts_before_the_table() -> None:
    assert nano_usd_of("gpt-small", Usage(prompt_tokens=9, cost_usd=0.25), PRICES) == 250_000_000


def test_without_any_price_the_cost_is_unknown() -> None:
    assert nano_usd_of("other", USAGE, PRICES) is None


def test_the_list_price_counts_after_the_owners() -> None:
    usage = Usage(prompt_tokens=1_000_000, estimated_usd=0.5)
    assert nano_usd_of("other", usage, PRICES) == 500_000_000
    assert nano_usd_of("gpt-small", usage, PRICES) == 1_000_000_000


def test_a_service_that_says_it_costs_nothing_is_believed() -> None:
    assert nano_usd_of("gpt-small", Usage(prompt_tokens=9, cost_usd=0.0), PRICES) == 0


def test_dollars_come_from_their_billionths() -> None:
    assert Spent(1, 1_500_000_000).usd == 1.5
