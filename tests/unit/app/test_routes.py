"""Routes of the running gateway: the same until their plugin is loaded again."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from nanobot_core import GatewayAccess, PluginContext, Route, on
from tests.gateways import running

pytestmark = pytest.mark.anyio

CODE = """\
from nanobot_core import Mount, on


def page(ctx):
    return "FIRST"


@on.contribute_routes
def contribute_routes(ctx):
    return [Mount(path="/page", app=f"{__name__}:page")]
"""


class Keeper:
    """A plugin that keeps the gateway it was lent."""

    gateway: GatewayAccess | None = None

    @on.start
    def start(self, ctx: PluginContext) -> None:
        self.gateway = ctx.gateway

    def route(self) -> Route:
        assert self.gateway is not None
        [route] = [route for route in self.gateway.routes() if route.plugin == "mine"]
        return route


async def test_a_route_is_another_one_after_a_reload_of_its_plugin(tmp_path: Path) -> None:
    file, home, keeper = tmp_path / "mine.py", tmp_path / "home", Keeper()
    file.write_text(CODE)
    home.mkdir()
    settings = {"plugins": {"local": [str(file)]}, "gateway": {"port": 0}}
    (home / "config.yaml").write_text(yaml.safe_dump(settings))
    async with running(home, None, keeper) as bot:
        before = keeper.route()
        assert str(await before.load()) == "FIRST"
        assert keeper.route() == before

        file.write_text(CODE.replace("FIRST", "SECOND"))
        await bot.run("/plugins reload mine")

        after = keeper.route()
        assert after != before
        assert str(await after.load()) == "SECOND"
