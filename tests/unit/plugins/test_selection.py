"""Which plugins run, in which order, and the sentence that says why."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, strategies as st

from nanobot_core import PluginFacts
from nanobot_core.config.models import PluginsSettings
from nanobot_core.plugins.catalogue import (
    PluginFilter,
    Selection,
    in_calling_order,
    missing_plugins,
    select,
)
from nanobot_core.plugins.health import Condition
from nanobot_core.plugins.index import InstalledPlugin
from nanobot_core.plugins.manifest import Manifest


def installed(
    plugin_id: str,
    *,
    requires: Sequence[str] = (),
    after: Sequence[str] = (),
    before: Sequence[str] = (),
    direct: bool = True,
    bundled: bool = False,
    problem: str = "",
    file: str | None = None,
) -> InstalledPlugin:
    facts = PluginFacts(requires=tuple(requires), after=tuple(after), before=tuple(before))
    return InstalledPlugin(
        id=plugin_id,
        target=f"acme_{plugin_id}.plugin",
        distribution=f"acme-{plugin_id}",
        version="1.0",
        manifest=Manifest(id=plugin_id, facts=facts),
        direct=direct,
        bundled=bundled,
        problem=problem,
        file=file,
    )


def decide(
    plugins: Sequence[InstalledPlugin],
    plugin_filter: PluginFilter | None = None,
    **settings: Any,
) -> dict[str, Selection]:
    chosen = select(plugins, PluginsSettings.model_validate(settings), plugin_filter)
    return {item.plugin.id: item for item in chosen}


def enabled(chosen: dict[str, Selection]) -> set[str]:
    return {plugin_id for plugin_id, item in chosen.items() if item.enabled}


@pytest.mark.promise(17)
@pytest.mark.parametrize(
    ("policy", "expected"),
    [("direct", {"a", "named"}), ("listed", {"named"}), ("all", {"a", "carried", "named"})],
)
def test_the_policy_decides_on_plugins_that_nobody_names(policy: str, expected: set[str]) -> None:
    plugins = [installed("a"), installed("carried", direct=False), installed("named")]

    assert enabled(decide(plugins, policy=policy, enabled=["named"])) == expected


def test_required_is_enabled_whatever_the_policy() -> None:
    plugins = [installed("a", direct=False)]

    assert enabled(decide(plugins, policy="listed", required=["a"])) == {"a"}


def test_a_local_file_is_enabled_because_it_is_named() -> None:
    chosen = decide([installed("mine", file="/x/mine.py")], policy="listed")

    assert chosen["mine"].condition.reason == "named under plugins.local"


@pytest.mark.parametrize(
    ("plugin_filter", "settings", "reason"),
    [
        (None, {"disabled": ["a"], "enabled": ["a"]}, "named under plugins.disabled"),
        (PluginFilter(safe=True), {"enabled": ["a"]}, "left out by --safe"),
        (PluginFilter(without=frozenset({"a"})), {"required": ["a"]}, "left out by --without"),
        (None, {"policy": "listed"}, "policy 'listed' and not named"),
    ],
)
def test_what_is_out_says_why(
    plugin_filter: PluginFilter | None, settings: dict[str, Any], reason: str
) -> None:
    chosen = decide([installed("a")], plugin_filter, **settings)

    assert (chosen["a"].enabled, chosen["a"].condition.reason) == (False, reason)


@pytest.mark.promise(37)
def test_safe_keeps_what_belongs_to_the_core() -> None:
    plugins = [installed("ours", bundled=True), installed("theirs")]

    assert enabled(decide(plugins, PluginFilter(safe=True))) == {"ours"}


def test_a_problem_keeps_a_plugin_out_with_its_reason() -> None:
    chosen = decide([installed("a", problem="it needs x")], enabled=["a"])["a"]

    assert (chosen.condition.state, chosen.condition.reason) == ("incompatible", "it needs x")
    assert "acme-a" in chosen.condition.remedy


def test_a_plugin_whose_code_was_examined_in_vain_is_out() -> None:
    chosen = select(
        [installed("a")],
        PluginsSettings(),
        obstacles={"a": Condition("failed", "raised", "fix it")},
    )

    assert (chosen[0].condition.state, chosen[0].condition.reason, chosen[0].condition.remedy) == (
        "failed",
        "raised",
        "fix it",
    )


@pytest.mark.promise(30)
def test_what_an_enabled_plugin_requires_is_enabled_down_the_chain() -> None:
    plugins = [
        installed("a", requires=["b"]),
        installed("b", requires=["c"], direct=False),
        installed("c", direct=False),
    ]

    chosen = decide(plugins)

    assert enabled(chosen) == {"a", "b", "c"}
    assert chosen["c"].condition.reason == "required by 'b'"


@pytest.mark.parametrize(
    ("last", "settings", "why"),
    [
        (None, {}, "not installed"),
        ("c", {"disabled": ["c"]}, "named under plugins.disabled"),
    ],
)
def test_a_chain_with_a_missing_end_is_out_as_a_whole(
    last: str | None, settings: dict[str, Any], why: str
) -> None:
    plugins = [
        installed("a", requires=["b"]),
        installed("b", requires=["c"], direct=False),
        installed("z"),
    ]
    if last:
        plugins.append(installed(last))

    chosen = decide(plugins, **settings)

    assert enabled(chosen) == {"z"}
    assert chosen["a"].condition.state == "incompatible"
    assert "it requires plugin 'b'" in chosen["a"].condition.reason
    assert why in chosen["a"].condition.reason
    assert chosen["b"].condition.reason == "it came only as a dependency of another package"


def test_safe_does_not_bring_back_strangers_that_are_required() -> None:
    plugins = [installed("ours", bundled=True, requires=["theirs"]), installed("theirs")]

    assert enabled(decide(plugins, PluginFilter(safe=True))) == set()


def test_only_those_that_cause_a_cycle_are_out() -> None:
    plugins = [
        installed("a", after=["b"]),
        installed("b", after=["a"]),
        installed("needs-a", requires=["a"]),
        installed("bystander"),
    ]

    chosen = decide(plugins)

    assert enabled(chosen) == {"bystander"}
    assert chosen["a"].condition.reason.startswith("its requires, after and before form a cycle: ")
    assert "a" in chosen["needs-a"].condition.reason


def test_a_plugin_that_nobody_asked_cannot_put_another_one_out() -> None:
    plugins = [installed("greedy", after=["files"], before=["files"]), installed("files")]

    assert enabled(decide(plugins)) == {"files"}


def test_plugins_that_require_each_other_are_out_with_the_cycle() -> None:
    chosen = decide([installed("a", requires=["b"]), installed("b", requires=["a"])])

    assert enabled(chosen) == set()
    assert "cycle" in chosen["a"].condition.reason


def test_a_named_plugin_that_is_not_installed_comes_with_the_line_that_installs_it() -> None:
    settings = PluginsSettings(enabled=["telegram", "fils"], required=["memory"])

    missing = missing_plugins([installed("files")], settings)

    assert [item.plugin.id for item in missing] == ["memory", "telegram", "fils"]
    assert missing[1].condition.remedy == "run nanobot plugins add nanobot-telegram"
    assert "did you mean 'files'?" in missing[2].condition.remedy


IDS = ["a", "b", "c", "d", "e"]
wishes = st.lists(st.sampled_from([*IDS, "absent"]), max_size=2)
plugin_sets = st.lists(
    st.builds(
        installed,
        st.sampled_from(IDS),
        requires=wishes,
        after=wishes,
        before=wishes,
        direct=st.booleans(),
        problem=st.sampled_from(["", "", "broken"]),
    ),
    unique_by=lambda plugin: plugin.id,
)


@given(plugins=plugin_sets, data=st.data())
def test_whatever_is_installed_the_enabled_ones_fit_each_other(
    plugins: list[InstalledPlugin], data: st.DataObject
) -> None:
    disabled = data.draw(st.lists(st.sampled_from(IDS)))
    chosen = decide(plugins, disabled=disabled)
    running = enabled(chosen)

    order = [plugin.id for plugin in in_calling_order([chosen[name].plugin for name in running])]

    assert not running & set(disabled)
    for plugin_id in running:
        manifest = chosen[plugin_id].plugin.manifest
        assert manifest
        facts = manifest.facts
        assert set(facts.requires) <= running
        for earlier in running & {*facts.requires, *facts.after}:
            assert order.index(earlier) < order.index(plugin_id)
    for item in chosen.values():
        assert item.condition.reason
    shuffled = data.draw(st.permutations(plugins))
    assert decide(shuffled, disabled=disabled) == chosen


@pytest.mark.promise(30)
@pytest.mark.parametrize(
    ("requirement", "reason"),
    [
        ("bakery", ""),
        ("bakery>=1,<2", ""),
        ("bakery>=2", "requires plugin 'bakery>=2', which is installed as 1.0"),
        ("cellar>=2", "requires plugin 'cellar>=2', which is not installed"),
    ],
)
def test_a_required_plugin_may_have_a_range_of_versions(requirement: str, reason: str) -> None:
    chosen = decide([installed("bakery"), installed("shop", requires=[requirement])])

    assert chosen["shop"].enabled == (not reason)
    assert reason in chosen["shop"].condition.reason


def test_a_missing_plugin_that_another_requires_is_named_as_it_is_installed() -> None:
    chosen = decide([installed("shop", requires=["http"])])

    assert chosen["shop"].condition.remedy == "run nanobot plugins add nanobot-http"


@pytest.mark.promise(30)
@pytest.mark.parametrize(
    ("others", "requirement", "reason"),
    [
        ([], "bakery>=2?", ""),
        (["bakery"], "bakery?", ""),
        (["bakery"], "bakery>=1?", ""),
        (["bakery"], "bakery>=2?", "it works with plugin 'bakery>=2', not 1.0"),
    ],
)
def test_a_plugin_may_use_another_one_without_requiring_it(
    others: list[str], requirement: str, reason: str
) -> None:
    plugins = [installed("apron", requires=[requirement]), *map(installed, others)]

    chosen = decide(plugins)

    assert reason in chosen["apron"].condition.reason
    assert enabled(chosen) == ({*others} if reason else {"apron", *others})
    if not reason:
        running = in_calling_order([item.plugin for item in chosen.values()])
        assert running[-1].id == "apron", "it comes after what it uses"


@pytest.mark.promise(30)
def test_a_plugin_that_is_disabled_keeps_no_other_one_out() -> None:
    plugins = [installed("apron", requires=["bakery>=2?"]), installed("bakery")]

    assert enabled(decide(plugins, disabled=["bakery"])) == {"apron"}
