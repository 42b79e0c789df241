"""The service that removes what is out of date, and ends requests when the gateway stops."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from nanobot_api.place import clean_up
from nanobot_api.run import Runs
from nanobot_core import Service

if TYPE_CHECKING:
    from nanobot_core import PluginContext

_INTERVAL_S: Final = 3_600.0


class ApiService(Service):
    """Runs as long as the gateway, and stops before the HTTP server does.

    Args:
        ctx: the plugin's context.
    """

    def __init__(self, ctx: PluginContext) -> None:
        self._ctx = ctx

    async def run(self) -> None:
        """Clean up at the start and once an hour, until cancelled; then end all requests."""
        runs = self._ctx.shared(Runs)
        try:
            await clean_up(self._ctx, runs.works_on)
            while True:
                await self._ctx.clock.sleep(_INTERVAL_S)
                await clean_up(self._ctx, runs.works_on)
        finally:
            runs.stop_all()
