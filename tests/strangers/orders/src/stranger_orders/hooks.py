"""What other plugins can add to orders, and change about them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from nanobot_core import (
    PluginContext,
    Refuse,
    declare_chain,
    declare_contribution,
    declare_gate,
    declare_observer,
)


@dataclass(frozen=True, slots=True)
class Dish:
    """A dish with its price in cents."""

    name: str
    price: int


@dataclass(frozen=True, slots=True)
class Order:
    """An order; the price, in cents, is that of all of it."""

    dish: str
    amount: int
    price: int


@declare_contribution(item=Dish)
def orders_menu(ctx: PluginContext) -> Iterable[Dish]:
    """Add dishes to the menu."""
    raise NotImplementedError


@declare_gate()
def orders_accept(event: Order) -> Refuse | None:
    """Refuse an order; None accepts it."""
    raise NotImplementedError


@declare_chain("price", int)
def orders_rewrite_price(event: Order) -> int | None:
    """Change the price; None leaves it as it is."""
    raise NotImplementedError


@declare_observer()
def orders_placed(event: Order) -> None:
    """An order was placed."""
