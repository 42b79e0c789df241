"""Entry point: a tool, and the hooks for other plugins."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from nanobot_core import LazyTool, on
from stranger_orders.hooks import (
    orders_accept,
    orders_menu,
    orders_placed,
    orders_rewrite_price,
)

if TYPE_CHECKING:
    from nanobot_core import ContributionHook, EventHook, PluginContext


@on.contribute_hookspecs
def contribute_hookspecs() -> Iterable[ContributionHook[object] | EventHook[Any, object]]:
    return (orders_menu, orders_accept, orders_rewrite_price, orders_placed)


@on.contribute_tools
def contribute_tools(ctx: PluginContext) -> Iterable[LazyTool]:
    yield LazyTool("place_order", "stranger_orders.place_order:create_tool")
