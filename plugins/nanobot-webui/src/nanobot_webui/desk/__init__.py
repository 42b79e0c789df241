"""The pages on which the owner runs the gateway."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from starlette.routing import Route

    from nanobot_core import PluginContext


def desk_routes(ctx: PluginContext) -> list[Route]:
    """Return the routes below ``/desk``. They are for the owner; `Site` checks that."""
    return []
