"""Two applications in one process share no state of a plugin."""

from __future__ import annotations

from pathlib import Path

import pytest

from nanobot_core.plugins.host import PluginHost
from tests.distributions import write_plugin
from tests.unit.plugins.conftest import MakeHost
from tests.unit.plugins.samples import HEAD, READY, listening, report

pytestmark = pytest.mark.anyio

COUNTER = (
    HEAD
    + """
class Counter:
    def __init__(self):
        self.turns = 0
        self.fails = False
    @on.start
    def start(self, ctx):
        self.ctx = ctx
        ctx.on_dispose(lambda: log.append("closed"))
    @on.before_turn
    def ready(self, event):
        self.turns += 1
        if self.fails:
            raise ValueError("as told")
"""
)


async def two_hosts(make_host: MakeHost, site: Path) -> tuple[PluginHost, PluginHost]:
    """Return two started hosts that use the same plugin."""
    write_plugin(site, "counter", code=COUNTER, manifest=listening("counter", "start"))
    entry_points = site / "acme_counter-1.0.dist-info" / "entry_points.txt"
    text = entry_points.read_text("utf-8")
    entry_points.write_text(text.replace(".plugin\n", ".plugin:Counter\n"), "utf-8")
    first, second = make_host(), make_host()
    await first.start()
    await second.start()
    return first, second


def counter(host: PluginHost) -> object:
    return host.table.active["counter"].registrant.namespace


@pytest.mark.promise(45)
async def test_each_host_has_an_instance_with_its_own_state_and_circuits(
    make_host: MakeHost, site: Path
) -> None:
    first, second = await two_hosts(make_host, site)
    counter(first).fails = True  # type: ignore[attr-defined]  # a class of the test's plugin

    for _ in range(3):
        await first.hooks.before_turn(READY)
        await second.hooks.before_turn(READY)
    await first.hooks.before_turn(READY)

    assert counter(first) is not counter(second)
    assert [report(host, "counter").state for host in (first, second)] == ["degraded", "active"]
    assert vars(counter(second))["turns"] == 3


@pytest.mark.promise(45)
async def test_the_end_of_one_host_leaves_the_other_at_work(
    make_host: MakeHost, site: Path
) -> None:
    first, second = await two_hosts(make_host, site)
    namespace = counter(second)

    await first.stop()
    await second.hooks.before_turn(READY)

    assert vars(namespace)["turns"] == 1
    assert report(second, "counter").state == "active"
