"""Registration is checked, order is the same everywhere, and the typed face is complete."""

from __future__ import annotations

import random
import typing
from collections.abc import AsyncIterator, Callable, Iterator
from types import ModuleType
from typing import Any, NoReturn

import pytest
from hypothesis import given, strategies as st

from nanobot_core import (
    CliGroup,
    ContentReady,
    HookError,
    PluginFacts,
    PluginRejected,
    TurnInfo,
    hookimpl,
    on,
)
from nanobot_core.hooks import caller
from nanobot_core.hooks.caller import Hooks, declared_hooks
from nanobot_core.hooks.compilation import HookStats, OwnerRules, Registrant, build_hooks
from nanobot_core.hooks.implementation import HookRuntime
from nanobot_core.hooks.kinds import Kind
from tests.registrants import check_registrant
from tests.unit.hooks.conftest import Bench

CALLED = {Kind.OBSERVE, Kind.DETACHED, Kind.CHAIN, Kind.GATE, Kind.FIRST, Kind.GATHER, Kind.WRAP}


def test_the_typed_face_names_every_hook_of_the_agents_work() -> None:
    called = {name for name, point in declared_hooks().items() if point.kind in CALLED}

    assert set(typing.get_type_hints(Hooks, vars(caller) | vars(typing) | _names())) == called


def _names() -> dict[str, Any]:
    import nanobot_core.contracts.plugin as plugin
    from nanobot_core import events, messages

    return {"events": events, **vars(messages), **vars(plugin)}


def test_every_declaration_states_its_contract() -> None:
    for name, point in declared_hooks().items():
        assert point.declaration.__doc__, name


def test_plain_hookimpl_with_the_hooks_name_works() -> None:
    class Plugin:
        @hookimpl
        def finalize_content(self, event: ContentReady) -> str:
            return event.content

    assert check_registrant(Registrant("x", "1", Plugin())) == ("finalize_content",)


def test_a_misspelt_hook_is_refused_with_the_right_name() -> None:
    class Plugin:
        @hookimpl
        def finalise_content(self, event: ContentReady) -> str:
            return event.content

    with pytest.raises(PluginRejected, match="finalize_content"):
        check_registrant(Registrant("x", "1", Plugin()))


def test_a_wrong_signature_is_refused_with_the_argument() -> None:
    class Plugin:
        @hookimpl
        def finalize_content(self, event: ContentReady, extra: int) -> str:
            return event.content

    with pytest.raises(PluginRejected, match="extra"):
        check_registrant(Registrant("x", "1", Plugin()))


def test_an_async_contribution_is_refused() -> None:
    class Plugin:
        @hookimpl
        async def contribute_tools(self, ctx: object) -> list[object]:
            return []

    with pytest.raises(PluginRejected, match="plain function"):
        check_registrant(Registrant("x", "1", Plugin()))


def test_a_keyword_only_argument_is_refused() -> None:
    class Plugin:
        @hookimpl
        def finalize_content(self, event: ContentReady, *, mode: str = "") -> str:
            return event.content

    with pytest.raises(PluginRejected, match="keyword-only"):
        check_registrant(Registrant("x", "1", Plugin()))


@pytest.mark.anyio
async def test_an_implementation_may_take_fewer_arguments(bench: Bench, turn: TurnInfo) -> None:
    class Plugin:
        @hookimpl
        def finalize_content(self) -> str:
            return "fixed"

    hooks = bench.hooks(Plugin())

    assert await hooks.finalize_content(ContentReady(turn=turn, content="a")) == "fixed"


class Plain:
    @on.before_turn
    def note(self, event: object) -> None: ...


class First:
    @on.before_turn(tryfirst=True)
    def note(self, event: object) -> None: ...


class Last:
    @on.before_turn(trylast=True)
    def note(self, event: object) -> None: ...


def compiled(registrants: list[Registrant], **options: Any) -> list[str]:
    def refuse(*_: object, **__: object) -> NoReturn:
        raise AssertionError

    def ignore(_: HookError) -> None: ...

    runtime = HookRuntime(spawn=refuse, report=ignore)
    hooks = build_hooks(registrants, runtime, HookStats(lambda: 0.0), **options)
    return [item.plugin for item in hooks.before_turn.implementations]


KINDS: list[Callable[[], object]] = [Plain, First, Last]


@given(st.lists(st.sampled_from(KINDS), min_size=1, max_size=8))
def test_tryfirst_and_trylast_move_within_the_given_order(kinds: list[type]) -> None:
    registrants = [Registrant(f"p{n}", "1", kind()) for n, kind in enumerate(kinds)]
    rank: dict[type, int] = {First: 0, Plain: 1, Last: 2}
    expected = sorted(range(len(kinds)), key=lambda n: (rank[kinds[n]], n))

    assert compiled(registrants) == [f"p{n}" for n in expected]


@pytest.mark.promise(29)
def test_the_owners_order_beats_all_others() -> None:
    registrants = [Registrant(name, "1", Plain()) for name in ("a", "b", "c")]
    registrants.append(Registrant("d", "1", First()))

    assert compiled(registrants, order={"before_turn": ["c", "a"]}) == ["c", "a", "d", "b"]


@pytest.mark.anyio
async def test_a_limit_for_one_plugin_beats_the_one_for_the_hook(bench: Bench) -> None:
    class Plugin:
        @on.finalize_content
        def change(self, event: ContentReady) -> None: ...

    limits = {"finalize_content": 2.0, "p1.finalize_content": 9.0}
    hooks = bench.hooks(Plugin(), Plugin(), rules=OwnerRules(limits))

    assert [item.limit_s for item in hooks.finalize_content.implementations] == [2.0, 9.0]


@pytest.mark.anyio
async def test_a_call_in_progress_keeps_the_implementations_it_began_with(
    bench: Bench, turn: TurnInfo
) -> None:
    class Marks:
        def __init__(self, mark: str) -> None:
            self.mark = mark

        @on.finalize_content
        async def change(self, event: ContentReady) -> str:
            replaced.append(bench.hooks(Marks("new")))
            return event.content + self.mark

    replaced: list[Hooks] = []
    old = bench.hooks(Marks("a"), Marks("b"))

    assert await old.finalize_content(ContentReady(turn=turn, content="")) == "ab"
    assert len(replaced) == 2


def test_the_order_does_not_depend_on_the_order_of_discovery() -> None:
    from nanobot_core.plugins.catalogue import in_calling_order
    from nanobot_core.plugins.index import InstalledPlugin
    from nanobot_core.plugins.manifest import Manifest

    wishes = {"a": PluginFacts(after=("c",)), "b": PluginFacts(), "c": PluginFacts(before=("b",))}
    plugins = [
        InstalledPlugin(
            id=name,
            target=name,
            distribution=name,
            version="1",
            manifest=Manifest(id=name, facts=facts),
        )
        for name, facts in wishes.items()
    ]
    orders = set()
    for seed in range(20):
        random.Random(seed).shuffle(plugins)
        orders.add(tuple(plugin.id for plugin in in_calling_order(plugins)))

    assert orders == {("c", "a", "b")}


def test_contributing_one_kind_in_two_places_is_refused() -> None:
    class Plugin:
        @on.contribute_cli
        def some(self) -> list[CliGroup]:
            return []

        @on.contribute_cli
        def more(self) -> list[CliGroup]:
            return []

    with pytest.raises(PluginRejected, match="2 times"):
        check_registrant(Registrant("x", "1", Plugin()))


@pytest.mark.anyio
async def test_a_plugin_may_listen_in_several_places(bench: Bench, turn: TurnInfo) -> None:
    class Plugin:
        @on.finalize_content
        def first(self, event: ContentReady) -> str:
            return f"{event.content}1"

        @on.finalize_content
        def second(self, event: ContentReady) -> str:
            return f"{event.content}2"

    content = await bench.hooks(Plugin()).finalize_content(ContentReady(turn=turn, content=""))

    assert sorted(content) == ["1", "2"]


def _generator(event: object) -> Iterator[None]:
    yield


async def _async_generator(event: object) -> AsyncIterator[None]:
    yield


def _any(*args: object) -> None: ...


@pytest.mark.promise(7)
@pytest.mark.parametrize(
    ("function", "wrapper", "hookwrapper", "reason"),
    [
        (_generator, True, False, "is a wrapper of pluggy"),
        (_generator, False, True, "is a wrapper of pluggy"),
        (_generator, False, False, "is a generator function"),
        (_async_generator, False, False, "is a generator function"),
        (_any, False, False, "not '*args: "),
    ],
)
def test_what_pluggy_accepts_and_is_never_called_is_refused_with_the_form(
    function: Callable[..., object], wrapper: bool, hookwrapper: bool, reason: str
) -> None:
    namespace = ModuleType("sample")
    marked = hookimpl(function, specname="before_turn", wrapper=wrapper, hookwrapper=hookwrapper)
    vars(namespace)["before_turn"] = marked

    with pytest.raises(PluginRejected) as caught:
        check_registrant(Registrant("sample", "", namespace))

    assert reason in caught.value.reason
    assert "def before_turn(event)" in caught.value.remedy


def test_an_unknown_argument_is_named_with_those_that_the_hook_has() -> None:
    class Plugin:
        @hookimpl
        def before_turn(self, evnt: object) -> None: ...

    with pytest.raises(PluginRejected) as caught:
        check_registrant(Registrant("sample", "1", Plugin()))

    assert caught.value.reason == "hook 'before_turn' has no argument 'evnt'"
    assert caught.value.remedy == "did you mean 'event'? it has: event"
