"""Entry point: what this plugin adds to orders."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from stranger_orders.hooks import (
    Dish,
    Order,
    orders_accept,
    orders_menu,
    orders_placed,
    orders_rewrite_price,
)

from nanobot_core import PluginFacts, Refuse, on

if TYPE_CHECKING:
    from nanobot_core import PluginContext


class HappyHour:
    """One instance belongs to one application."""

    def __init__(self) -> None:
        self._journal = Path()

    @on.describe_plugin
    def describe_plugin(self) -> PluginFacts:
        return PluginFacts(summary="Cakes, and a discount.", requires=("orders>=1.4",))

    @on.start
    def start(self, ctx: PluginContext) -> None:
        self._journal = ctx.data_dir / "orders.txt"

    @orders_menu
    def add_cake(self, ctx: PluginContext) -> Iterable[Dish]:
        yield Dish("cake", 300)

    @orders_accept
    def refuse_crowds(self, event: Order) -> Refuse | None:
        return Refuse("there are only ten seats") if event.amount > 10 else None

    @orders_rewrite_price
    async def give_discount(self, event: Order) -> int | None:
        return event.price // 2 if event.dish == "cake" else None

    @orders_placed(trylast=True)
    async def write_down(self, event: Order) -> None:
        await asyncio.to_thread(self._append, f"{event.amount} {event.dish} {event.price}")

    def _append(self, line: str) -> None:
        with self._journal.open("a", encoding="utf-8") as journal:
            journal.write(f"{line}\n")
