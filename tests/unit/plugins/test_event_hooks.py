"""A plugin calls hooks of its own: observers, gates and chains, which other plugins implement."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from nanobot_core import (
    ContributionHook,
    EventHook,
    HookError,
    PluginContext,
    PluginLoadFailed,
    PluginRejected,
    Refuse,
    declare_chain,
    declare_contribution,
    declare_gate,
    declare_observer,
    hookimpl,
    on,
)
from nanobot_core.contracts.plugin import StopCause
from nanobot_core.hooks.compilation import Registrant
from nanobot_core.messages import JsonObject
from nanobot_core.plugins.examine import describe
from nanobot_core.plugins.host import PluginHost
from nanobot_core.testing import FakeClock, FakePluginContext
from tests.distributions import manifest_of, write_plugin
from tests.registrants import check_registrant
from tests.unit.plugins.conftest import MakeHost
from tests.unit.plugins.samples import report

pytestmark = pytest.mark.anyio


@dataclass(frozen=True, slots=True)
class Loaf:
    name: str
    price: int


@declare_contribution(item=Loaf)
def bakery_loaves(ctx: PluginContext) -> Iterable[Loaf]:
    """Give loaves."""
    raise NotImplementedError


@declare_observer()
def bakery_sold(event: Loaf) -> None:
    """A loaf was sold."""


@declare_gate()
def bakery_accept(event: Loaf) -> Refuse | None:
    """Refuse to sell a loaf."""
    raise NotImplementedError


@declare_chain("price", int)
def bakery_rewrite_price(event: Loaf) -> int | None:
    """Change the price."""
    raise NotImplementedError


OWN = (bakery_loaves, bakery_sold, bakery_accept, bakery_rewrite_price)
RYE = Loaf("rye", 400)


class Bakery:
    def __init__(self, *points: Any) -> None:
        self._points = points or OWN

    @on.contribute_hookspecs
    def contribute_hookspecs(self) -> Iterable[ContributionHook[object] | EventHook[Any, object]]:
        return self._points


class Shop:
    """Implements three of its hooks, sync and async."""

    def __init__(self, discount: int = 0, refuses: str = "") -> None:
        self.sold: list[str] = []
        self._discount = discount
        self._refuses = refuses

    @bakery_sold
    async def note(self, event: Loaf) -> None:
        await asyncio.sleep(0)
        self.sold.append(event.name)

    @bakery_accept
    def judge(self, event: Loaf) -> Refuse | None:
        return Refuse(f"no {event.name}") if event.name == self._refuses else None

    @bakery_rewrite_price
    async def discount(self, event: Loaf) -> int | None:
        return event.price - self._discount if self._discount else None


async def bakery_of(host: PluginHost, **others: object) -> PluginContext:
    """Return the context of a bakery in a host with other plugins."""
    await host.register(Bakery(), "bakery")
    for plugin_id, plugin in others.items():
        await host.register(plugin, plugin_id)
    return await host.context_for("bakery")


@pytest.mark.promise(47)
async def test_a_call_reaches_every_plugin_in_order(make_host: MakeHost) -> None:
    first, second = Shop(discount=100), Shop(discount=50, refuses="wheat")
    ctx = await bakery_of(make_host(), first=first, second=second)

    assert await ctx.call(bakery_rewrite_price, RYE) == 250
    assert await ctx.call(bakery_accept, RYE) is None
    assert await ctx.call(bakery_accept, replace(RYE, name="wheat")) == Refuse("no wheat")
    await ctx.call(bakery_sold, RYE)

    assert (first.sold, second.sold) == (["rye"], ["rye"])


@pytest.mark.promise(47)
async def test_without_other_plugins_a_call_has_the_answer_of_nothing(make_host: MakeHost) -> None:
    ctx = await bakery_of(make_host())

    assert await ctx.call(bakery_rewrite_price, RYE) == 400
    assert await ctx.call(bakery_accept, RYE) is None
    await ctx.call(bakery_sold, RYE)


@pytest.mark.promise(47)
@pytest.mark.parametrize(
    ("order", "expected"), [({}, ["a", "b", "last"]), ({"bakery_sold": ["b"]}, ["b", "a", "last"])]
)
async def test_the_order_is_that_of_the_plugins_the_wishes_and_the_owner(
    make_host: MakeHost, order: dict[str, Any], expected: list[str]
) -> None:
    heard: list[str] = []

    def listener(name: str, *, trylast: bool = False) -> object:
        class Listener:
            @bakery_sold(trylast=trylast)
            def note(self, event: Loaf) -> None:
                heard.append(name)

        return Listener()

    host = make_host({"plugins.order": order})
    ctx = await bakery_of(
        host, aa=listener("last", trylast=True), first=listener("a"), b=listener("b")
    )

    await ctx.call(bakery_sold, RYE)

    assert heard == expected


@pytest.mark.promise(47)
async def test_an_implementation_by_name_needs_no_import_and_is_checked(
    make_host: MakeHost, warnings: list[str]
) -> None:
    class ByName:
        def __init__(self) -> None:
            self.sold: list[str] = []

        @hookimpl(optionalhook=True)
        def bakery_sold(self, event: Loaf) -> None:
            self.sold.append(event.name)

    class WrongName:
        @hookimpl(optionalhook=True)
        def bakery_sold(self, loaf: Loaf) -> None:
            raise AssertionError

    right = ByName()
    host = make_host()
    ctx = await bakery_of(host, right=right, wrong=WrongName())

    await ctx.call(bakery_sold, RYE)

    assert right.sold == ["rye"]
    assert describe(Registrant("right", "1", right)).hooks == {"bakery_sold": 0}
    assert any("wrong" in line and "loaf" in line for line in warnings)
    assert report(host, "wrong").state == "degraded"


async def test_a_contribution_by_name_is_called_like_any_other(make_host: MakeHost) -> None:
    class ByName:
        @hookimpl(optionalhook=True)
        def bakery_loaves(self) -> Iterable[Loaf]:
            yield RYE

    ctx = await bakery_of(make_host(), shop=ByName())

    assert [each.value for each in await ctx.contributed(bakery_loaves)] == [RYE]


async def test_a_hook_that_nothing_declares_is_never_called(make_host: MakeHost) -> None:
    class ByName:
        @hookimpl(optionalhook=True)
        def brewery_sold(self, event: object) -> None:
            raise AssertionError

        @on.stop
        def stop(self, ctx: PluginContext, reason: StopCause) -> None: ...

    host = make_host()

    await host.register(ByName(), "shop")

    assert report(host, "shop").state == "active"


@pytest.mark.promise(47)
async def test_what_others_contribute_is_of_the_declared_class(
    make_host: MakeHost, warnings: list[str]
) -> None:
    class Wrong:
        @bakery_loaves
        def loaves(self, ctx: PluginContext) -> Iterable[Loaf]:
            return ["a loaf"]  # type: ignore[list-item]

    class Right:
        @bakery_loaves
        def loaves(self, ctx: PluginContext) -> Iterable[Loaf]:
            yield RYE

    ctx = await bakery_of(make_host(), right=Right(), wrong=Wrong())

    assert [each.value for each in await ctx.contributed(bakery_loaves)] == [RYE]
    assert any("bakery_loaves returned str, return Loaf" in line for line in warnings)


@pytest.mark.promise(47)
async def test_one_that_fails_is_passed_over_and_a_gate_refuses(
    make_host: MakeHost, warnings: list[str]
) -> None:
    class Broken:
        @bakery_sold
        def note(self, event: Loaf) -> None:
            raise LookupError("no book")

        @bakery_accept
        def judge(self, event: Loaf) -> Refuse | None:
            raise LookupError("no law")

        @bakery_rewrite_price
        def discount(self, event: Loaf) -> int | None:
            return "cheap"  # type: ignore[return-value]

    after = Shop(discount=100)
    host = make_host()
    ctx = await bakery_of(host, broken=Broken(), shop=after)

    await ctx.call(bakery_sold, RYE)

    assert after.sold == ["rye"]
    assert await ctx.call(bakery_rewrite_price, RYE) == 300
    refusal = await ctx.call(bakery_accept, RYE)
    assert refusal is not None
    assert "no law" in refusal.reason
    assert any("returned str instead of int or None" in line for line in warnings)
    errors = {each.hook: each.errors for each in report(host, "broken").hooks}
    assert errors == {"bakery_sold": 1, "bakery_accept": 1, "bakery_rewrite_price": 1}


async def test_a_critical_link_stops_the_chain(make_host: MakeHost) -> None:
    class Broken:
        @bakery_rewrite_price(critical=True)
        def discount(self, event: Loaf) -> int | None:
            raise LookupError("no list")

    ctx = await bakery_of(make_host(), broken=Broken())

    with pytest.raises(HookError, match="no list"):
        await ctx.call(bakery_rewrite_price, RYE)


async def test_a_call_has_the_limit_of_its_kind(make_host: MakeHost, clock: FakeClock) -> None:
    class Slow:
        @bakery_rewrite_price
        async def discount(self, event: Loaf) -> int | None:
            await asyncio.Event().wait()
            return None

    host = make_host({"plugins.limits": {"slow.bakery_rewrite_price": 2}})
    ctx = await bakery_of(host, slow=Slow())

    call = asyncio.get_running_loop().create_task(ctx.call(bakery_rewrite_price, RYE))
    await clock.wait_for_sleepers(1)
    await clock.advance(2)

    assert await call == 400
    assert [each.timeouts for each in report(host, "slow").hooks] == [1]


@pytest.mark.promise(47)
async def test_plugins_that_come_and_go_take_part_from_the_next_call_on(
    make_host: MakeHost,
) -> None:
    host = make_host()
    ctx = await bakery_of(host)
    await ctx.call(bakery_sold, RYE)
    shop = Shop()

    await host.register(shop, "shop")
    await ctx.call(bakery_sold, RYE)
    await host.changes.disable("shop")
    await ctx.call(bakery_sold, RYE)

    assert shop.sold == ["rye"]


async def test_only_hooks_of_its_own_can_be_called(make_host: MakeHost) -> None:
    host = make_host()
    await host.register(Shop(), "shop")
    ctx = await host.context_for("shop")

    with pytest.raises(PluginRejected, match="it calls 'bakery_sold', which it does not declare"):
        await ctx.call(bakery_sold, RYE)


async def test_a_call_in_start_is_refused(make_host: MakeHost) -> None:
    class Early(Bakery):
        @on.start
        async def start(self, ctx: PluginContext) -> None:
            await ctx.call(bakery_sold, RYE)

    with pytest.raises(PluginLoadFailed, match="call it after start"):
        await make_host().register(Early(), "bakery")


def test_a_wrong_signature_is_refused_when_the_plugin_is_loaded() -> None:
    class Wrong:
        @staticmethod
        @bakery_sold  # type: ignore[arg-type]
        def note(event: Loaf, till: int) -> None: ...

    with pytest.raises(PluginRejected, match="till"):
        check_registrant(Registrant("wrong", "1", Wrong()))


BAKERY = '''
from dataclasses import dataclass
from nanobot_core import *
@dataclass(frozen=True)
class Loaf:
    price: int
@declare_gate(revision={revision})
def bakery_accept(event):
    """Refuse to sell."""
@on.contribute_hookspecs
def contribute_hookspecs(): return (bakery_accept,)
'''
JUDGE = """
from nanobot_core import *
from acme_bakery.plugin import bakery_accept
{more}
@bakery_accept
def judge(event): return Refuse("never")
"""


def write_pair(
    site: Path, *, revision: int = 1, more: str = "", facts: JsonObject | None = None
) -> None:
    write_plugin(
        site,
        "bakery",
        code=BAKERY.format(revision=revision),
        manifest=manifest_of("bakery", hookspecs=["bakery_accept"]),
    )
    manifest = manifest_of("judge", hooks={"bakery_accept": 1}, facts=facts or {})
    write_plugin(site, "judge", code=JUDGE.format(more=more), manifest=manifest)


async def asked(host: PluginHost) -> str:
    """Return why the bakery of the site folder may not sell."""
    await host.start()
    ctx = await host.context_for("bakery")
    from acme_bakery.plugin import Loaf, bakery_accept  # type: ignore[import-not-found]

    refusal: Refuse | None = await ctx.call(bakery_accept, Loaf(400))
    return refusal.reason if refusal else ""


@pytest.mark.promise(47)
async def test_an_installed_plugin_is_started_by_the_first_call(
    make_host: MakeHost, site: Path
) -> None:
    write_pair(site)
    host = make_host()

    assert await asked(host) == "never"
    assert set(host.table.active) == {"bakery", "judge"}


@pytest.mark.promise(47)
@pytest.mark.parametrize(
    ("revision", "more", "settings", "expected"),
    [
        (2, "", {}, "it was built for revision 1 of hook 'bakery_accept', and revision 2"),
        (1, "raise LookupError('no book')", {}, "no book"),
        (1, "", {"plugins.enabled": ["judge"]}, "never"),
        (1, "", {"plugins.disabled": ["judge"]}, ""),
    ],
    ids=["another revision", "import fails", "runs", "disabled"],
)
async def test_a_gate_of_a_plugin_that_does_not_run_refuses_unless_it_is_disabled(
    make_host: MakeHost,
    site: Path,
    revision: int,
    more: str,
    settings: dict[str, Any],
    expected: str,
) -> None:
    write_pair(site, revision=revision, more=more)

    reason = await asked(make_host(settings))

    assert expected in reason if expected else reason == ""


async def test_a_gate_whose_requirement_is_missing_refuses(make_host: MakeHost, site: Path) -> None:
    write_pair(site, facts={"requires": ["no-such-plugin"]})

    reason = await asked(make_host())

    assert "plugin 'judge' implements 'bakery_accept' and does not run" in reason
    assert "run nanobot plugins disable judge" in reason


async def test_the_double_answers_as_the_test_says(tmp_path: Path) -> None:
    ctx = FakePluginContext(tmp_path)
    ctx.implementations["bakery_rewrite_price"] = lambda event: event.price + 1

    assert await ctx.call(bakery_rewrite_price, RYE) == 401
    assert await ctx.call(bakery_accept, RYE) is None
