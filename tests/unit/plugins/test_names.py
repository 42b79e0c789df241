"""Names of tools do not depend on the order of loading, and no two tools share one."""

from __future__ import annotations

import re

import pytest
from hypothesis import example, given, strategies as st

from nanobot_core.plugins.tool_names import MAX_NAME_CHARS, assign_tool_names, long_name

plugins = st.sampled_from(["a", "b", "a__b", "files", "x" * 60])
names = st.sampled_from(["c", "b__c", "read", "a__c", "tool.with.dots", "n" * 64])
claims = st.dictionaries(plugins, st.lists(names, max_size=4), max_size=5)
aliases = st.dictionaries(names, st.builds("{}/{}".format, plugins, names), max_size=3)


def test_a_unique_name_stays_short() -> None:
    assert assign_tool_names({"files": ["read"]}, {})[0] == {("files", "read"): "read"}


@pytest.mark.promise(27)
def test_a_contested_name_is_spelt_out_for_all_and_the_remedy_is_told() -> None:
    public, clashes = assign_tool_names({"web": ["search"], "files": ["search"]}, {})

    assert public == {
        ("files", "search"): "files__search",
        ("web", "search"): "web__search",
    }
    assert clashes[0].plugins == ("files", "web")
    assert clashes[0].remedy == "set tools.aliases.search: files/search"


def test_a_plugin_that_keeps_its_names_has_the_contested_one() -> None:
    public, clashes = assign_tool_names(
        {"shell": ["exec"], "a": ["exec"], "b": ["exec"]}, {}, {"shell"}
    )

    assert public == {
        ("shell", "exec"): "exec",
        ("a", "exec"): "a__exec",
        ("b", "exec"): "b__exec",
    }
    (clash,) = clashes
    assert (clash.keeper, clash.outcome) == ("shell", "'shell' has it")
    assert clash.remedy == "set tools.aliases.exec: shell/exec"


def test_the_owners_alias_counts_for_more_than_a_kept_name() -> None:
    claims = {"shell": ["exec"], "a": ["exec"]}

    public, _ = assign_tool_names(claims, {"exec": "a/exec"}, {"shell"})

    assert public == {("shell", "exec"): "shell__exec", ("a", "exec"): "exec"}


def test_two_plugins_that_both_keep_names_are_spelt_out() -> None:
    public, clashes = assign_tool_names({"a": ["exec"], "b": ["exec"]}, {}, {"a", "b"})

    assert set(public.values()) == {"a__exec", "b__exec"}
    assert clashes[0].keeper == ""


@given(claims=claims, keepers=st.sets(plugins, max_size=2))
def test_no_claim_of_others_takes_a_kept_name(
    claims: dict[str, list[str]], keepers: set[str]
) -> None:
    alone = {plugin: names for plugin, names in claims.items() if plugin in keepers}

    public, _ = assign_tool_names(claims, {}, keepers)

    assert len(set(public.values())) == len(public)
    for owner, name in assign_tool_names(alone, {}, keepers)[0].items():
        if name == owner[1]:
            assert public[owner] == name


def test_an_alias_settles_a_contest() -> None:
    public, clashes = assign_tool_names(
        {"web": ["search"], "files": ["search"]}, {"search": "web/search"}
    )

    assert public == {("files", "search"): "files__search", ("web", "search"): "search"}
    assert clashes == ()


def test_an_alias_for_a_tool_that_is_not_there_changes_nothing() -> None:
    public, _ = assign_tool_names({"files": ["search"]}, {"search": "web/search"})

    assert public == {("files", "search"): "search"}


def test_one_plugin_that_gives_a_tool_twice_is_no_contest() -> None:
    assert assign_tool_names({"files": ["read", "read"]}, {})[1] == ()


@given(claims=claims, aliases=aliases, data=st.data())
@example(
    claims={"a": ["b__c"], "b": ["b__c"], "a__b": ["c"], "files": ["c"]}, aliases={}, data=None
)
def test_every_tool_has_one_usable_name_of_its_own(
    claims: dict[str, list[str]], aliases: dict[str, str], data: st.DataObject | None
) -> None:
    public, clashes = assign_tool_names(claims, aliases)

    assert len(set(public.values())) == len(public)
    assert set(public) == {(each, name) for each in claims for name in claims[each]}
    for (plugin, name), shown in public.items():
        assert len(shown) <= MAX_NAME_CHARS
        assert shown in {name, *aliases} or re.fullmatch(r"[a-zA-Z0-9_-]+", shown)
        if shown not in {name, *aliases}:
            assert shown.startswith(plugin[:20])
    if data is not None:
        order = data.draw(st.permutations(sorted(claims)))
        again = assign_tool_names({each: claims[each] for each in order}, aliases)
        assert again == (public, clashes)


@given(st.text(max_size=80), st.text(max_size=80))
def test_a_long_name_is_one_that_providers_take(plugin: str, name: str) -> None:
    assert re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", long_name(plugin, name))
