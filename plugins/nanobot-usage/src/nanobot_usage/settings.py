"""Settings. Budgets are in the core's section ``budgets``."""

from __future__ import annotations

from pydantic import Field, NonNegativeFloat

from nanobot_core import PluginSettings


class Price(PluginSettings):
    """US dollars for a million tokens of one kind.

    Attributes:
        input: US dollars for a million tokens sent.
        output: US dollars for a million tokens received, thinking included.
        cached: US dollars for a million tokens sent that the service had cached; ``None`` means as
            `input`.
    """

    input: NonNegativeFloat
    output: NonNegativeFloat
    cached: NonNegativeFloat | None = None


class UsageSettings(PluginSettings):
    """Section ``usage``.

    Attributes:
        prices: pattern of model names to price; the longest pattern that matches counts. Used
            if the service itself reports no cost; without one, the list price of the model counts.
        economy_model: model to use once 80% of a budget are spent, or ``None``.
        footer: tokens and cost of a turn are put below its answer.
    """

    prices: dict[str, Price] = Field(default_factory=dict)
    economy_model: str | None = None
    footer: bool = False
