"""What a program registers counts at once, and the owner says who comes first and how long."""

from __future__ import annotations

import asyncio

import pytest

from nanobot_core import (
    ContentReady,
    LazyTool,
    PluginContext,
    PluginLoadFailed,
    PluginRejected,
    Tool,
    on,
)
from nanobot_core.testing import FakeClock
from tests.unit.plugins.conftest import MakeHost
from tests.unit.plugins.samples import (
    TURN,
    Marker,
    report,
    shout,
)

pytestmark = pytest.mark.anyio


async def test_the_owner_may_order_the_plugins_of_a_hook(make_host: MakeHost) -> None:
    host = make_host({"plugins.order": {"finalize_content": ["c", "a"]}})
    for plugin_id in "abc":
        await host.register(Marker(plugin_id), plugin_id)

    content = await host.hooks.finalize_content(ContentReady(turn=TURN, content=""))

    assert content == "cab"


@pytest.mark.promise(10)
async def test_the_owner_may_limit_a_hook_of_one_plugin(
    make_host: MakeHost, clock: FakeClock
) -> None:
    class Slow:
        @on.finalize_content
        async def finalize_content(self, event: ContentReady) -> str:
            await asyncio.Event().wait()
            return "late"

    host = make_host({"plugins.limits": {"slow.finalize_content": 2}})
    await host.register(Slow(), "slow")

    call = host.hooks.finalize_content(ContentReady(turn=TURN, content="as it was"))
    content = asyncio.get_running_loop().create_task(call)
    await clock.wait_for_sleepers()
    await clock.advance(2)

    assert await content == "as it was"
    assert report(host, "slow").hooks[0].timeouts == 1


async def test_a_registered_object_counts_at_once_and_is_listed(make_host: MakeHost) -> None:
    class Loud:
        @on.contribute_tools
        def contribute_tools(self, ctx: PluginContext) -> list[Tool | LazyTool]:
            return [shout]

    host = make_host()
    await host.load_tools()

    await host.register(Loud(), "loud")

    assert "shout" in host.tools
    assert [name for name, _ in host.declared("tools")] == ["loud"]
    assert report(host, "loud").reason == "registered by the program"
    assert host.table.labels() == ("loud",)
    with pytest.raises(PluginRejected, match="has this id"):
        await host.register(Loud(), "loud")


async def test_what_cannot_be_registered_leaves_nothing(make_host: MakeHost) -> None:
    class Wrong:
        @on.start
        def start(self, ctx: PluginContext) -> None:
            raise OSError("no")

        @property
        def surprise(self) -> str:
            raise RuntimeError("looked at")

    host = make_host()

    with pytest.raises(PluginLoadFailed, match=r"looked at|its start failed"):
        await host.register(Wrong(), "wrong")

    assert host.reports() == []
    assert not host.table.labels()
