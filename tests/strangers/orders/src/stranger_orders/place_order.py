"""The tool, which asks the other plugins at each step."""

from __future__ import annotations

from dataclasses import replace

from nanobot_core import PluginContext, Tool, ToolContext, ToolFailed, tool
from stranger_orders.hooks import (
    Dish,
    Order,
    orders_accept,
    orders_menu,
    orders_placed,
    orders_rewrite_price,
)


def create_tool(ctx: PluginContext) -> Tool:
    """Return the tool for one application."""

    @tool(name="place_order")
    async def place_order(context: ToolContext, dish: str, amount: int) -> str:
        """Order a dish."""
        menu = [Dish("soup", 450), *(each.value for each in await ctx.contributed(orders_menu))]
        price = next((each.price for each in menu if each.name == dish), None)
        if price is None:
            raise ToolFailed(f"there is no {dish}, only {', '.join(each.name for each in menu)}")
        order = Order(dish, amount, amount * price)
        if refusal := await ctx.call(orders_accept, order):
            raise ToolFailed(f"the order is refused: {refusal.reason}")
        order = replace(order, price=await ctx.call(orders_rewrite_price, order))
        await ctx.call(orders_placed, order)
        return f"{order.amount} {order.dish} for {order.price / 100:.2f}"

    return place_order
