"""Configurations of nanobot-ai, of any content, become ours."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from nanobot_core.config.source import parse_source
from nanobot_core.errors import ConfigError
from nanobot_core.messages import JsonObject
from nanobot_core.moving.settings import convert, only_person

HOMES = Path(__file__).parents[2] / "original_homes"
WORDS = (
    "agents defaults workspace channels telegram allowFrom providers apiKey enabled tools token "
    "mcpServers owner plugins on 1e3 ключ"
)
names = st.sampled_from(WORDS.split())
leaves = st.none() | st.booleans() | st.integers(-5, 10**6) | names | st.text(max_size=8)
trees = st.recursive(
    leaves, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=4)
)


def converted(tree: object, folder: Path) -> JsonObject:
    source = folder / "config.json"
    source.write_text(json.dumps(tree), "utf-8")
    return parse_source(convert(source, folder, [], [], lambda _: ()).text, "made").tree


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(tree=st.dictionaries(names, trees, max_size=4))
def test_any_configuration_is_converted_or_refused(tmp_path: Path, tree: JsonObject) -> None:
    try:
        made = converted(tree, tmp_path)
    except ConfigError:
        return
    assert isinstance(made, dict)


@pytest.mark.parametrize("release", sorted(path.name for path in HOMES.iterdir() if path.is_dir()))
def test_only_what_a_person_has_chosen_is_left_of_what_means_nothing_here(
    tmp_path: Path, release: str
) -> None:
    source = HOMES / release / "config.json"
    found = convert(source, tmp_path, ["telegram:42"], ["cron"], lambda _: ())

    assert found.without_counterpart == ()
    tree = parse_source(found.text, "made").tree
    assert tree["owner"] == ["telegram:42"]
    assert tree["plugins"] == {"enabled": ["cron"]}
    assert set(tree["channels"]) <= {"sendProgress", "sendToolHints", "telegram", "websocket"}  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("people", "person"),
    [
        ({"telegram": ["42|ada"]}, "telegram:42"),
        ({"telegram": ["42"], "slack": []}, "telegram:42"),
        ({"telegram": ["42"], "slack": ["U1"]}, ""),
        ({"telegram": ["*"]}, ""),
        ({}, ""),
    ],
)
def test_the_owner_is_the_only_person(people: dict[str, list[str]], person: str) -> None:
    assert only_person(people) == person
