"""Edits change what they are asked to change, and nothing else."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from nanobot_core.config.editing import (
    add_to_list,
    migrate_json_to_yaml,
    set_value,
)
from nanobot_core.config.source import parse_source, read_text
from nanobot_core.errors import ConfigInvalid, ConfigUnreadable
from nanobot_core.messages import JsonObject, JsonValue

YAML = """\
# who I am
owner: ["me"]   # only me
agents:
  defaults:
    maxTokens: 5  # small
    model: ${MODEL:-x}

plugins:
  # chat
  enabled:
    - web
    - telegram  # phone
unknown: {keep: 'this'}
"""

_SCALARS = st.none() | st.booleans() | st.integers() | st.text("abeflnorstuy0123456789.-_: '\"#~<")
_VALUES = st.recursive(
    _SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text("abc-1", min_size=1), inner, max_size=3)
    ),
    max_leaves=8,
)


def tree_of(path: Path) -> JsonObject:
    return parse_source(read_text(path), str(path), is_json=path.suffix == ".json").tree


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "config.yaml"
    path.write_text(YAML)
    return path


@pytest.mark.parametrize(
    "text", ["", "# nothing yet\n", "{}\n", "{}  # nothing yet\n", "---\n{}\n"]
)
def test_an_empty_configuration_can_be_edited(tmp_path: Path, text: str) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(text)
    set_value(file, "agents.defaults.model", "x")
    assert add_to_list(file, "plugins.disabled", "web")
    tree = parse_source(file.read_text(), "config.yaml", is_json=False).tree
    assert tree == {"agents": {"defaults": {"model": "x"}}, "plugins": {"disabled": ["web"]}}
    assert ("nothing yet" in file.read_text()) is ("nothing yet" in text)


def test_setting_a_value_changes_one_line(config: Path) -> None:
    set_value(config, "agents.defaults.max_tokens", 7)
    assert config.read_text() == YAML.replace("maxTokens: 5", "maxTokens: 7")


def test_setting_a_value_makes_the_mappings_around_it(config: Path) -> None:
    set_value(config, "channels.telegram.enabled", True)
    assert config.read_text() == YAML + "channels:\n  telegram:\n    enabled: true\n"


@pytest.mark.parametrize(
    "text",
    [
        "a:\n    b:\n        c: 1\n        d:\n            - x\n            - y\n",
        "a:\n  c: 1\n  d:  # why\n  # what\n  - x\n  - y: 1\n    z: 2\n",
        "d:\n-   x\n-   y\na:\n   c: 1\n",
        "a: {b: 1, c: [1, 2]}\nl:\n  - {a: 1}\nlong: " + "word " * 60 + "end\n",
        "a: |\n  two\n  lines\n\nb: >-\n  folded\n  text\nc: &x {k: 1}\nd:\n  <<: *x\n",
        "a: 'it''s'\nb: \"x\"\nc: 0x1F\nd: 1e3\nf:\n",
    ],
)
def test_every_layout_stays_as_it_is(tmp_path: Path, text: str) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(text)
    set_value(path, "added", 1)
    assert path.read_text() == text + "added: 1\n"


def test_a_list_gains_an_item_once_with_its_comments_kept(config: Path) -> None:
    assert add_to_list(config, "plugins.enabled", "cron")
    assert not add_to_list(config, "plugins.enabled", "cron")
    assert config.read_text() == YAML.replace("# phone\n", "# phone\n    - cron\n")


def test_an_item_moves_between_lists_with_their_comments_kept(config: Path) -> None:
    enabled, disabled = "plugins.enabled", "plugins.disabled"
    assert add_to_list(config, enabled, "cron", out_of=disabled)
    assert config.read_text() == YAML.replace("# phone\n", "# phone\n    - cron\n")
    assert not add_to_list(config, enabled, "cron", out_of=disabled)

    assert add_to_list(config, disabled, "cron", out_of=enabled)

    assert config.read_text().startswith(YAML.partition("# phone\n")[0])
    assert tree_of(config)["plugins"] == {"enabled": ["web", "telegram"], "disabled": ["cron"]}
    assert not add_to_list(config, disabled, "cron", out_of=enabled)


def test_an_item_that_cannot_move_stays_in_its_list(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text("plugins:\n  enabled: [cron]\n  disabled: cron\n")

    with pytest.raises(ConfigInvalid, match=r"plugins\.disabled: expected a list"):
        add_to_list(path, "plugins.disabled", "cron", out_of="plugins.enabled")

    assert tree_of(path)["plugins"] == {"enabled": ["cron"], "disabled": "cron"}


def test_a_key_path_through_something_else_is_refused(config: Path) -> None:
    with pytest.raises(ConfigInvalid, match="owner: expected a mapping"):
        set_value(config, "owner.name", 1)
    with pytest.raises(ConfigInvalid, match="agents: expected a list"):
        add_to_list(config, "agents", "x")
    assert config.read_text() == YAML


def test_keys_of_digits_are_found(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text("groups:\n  -100123: {open: true}\n")
    set_value(path, "groups.-100123.open", False)
    assert path.read_text() == "groups:\n  -100123: {open: false}\n"


def test_a_file_of_comments_keeps_them(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text("# first\n\n# second\n")
    set_value(path, "a.b", "c")
    assert path.read_text() == "# first\n\n# second\na:\n  b: c\n"


def test_new_files_are_for_the_owner_alone_and_modes_stay(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "config.yaml"
    set_value(path, "owner", ["me"])
    assert path.stat().st_mode & 0o777 == 0o600
    path.chmod(0o640)
    set_value(path, "owner", ["you"])
    assert path.stat().st_mode & 0o777 == 0o640
    assert list(path.parent.iterdir()) == [path]


def test_a_link_stays_a_link(config: Path, tmp_path: Path) -> None:
    link = tmp_path / "link.yaml"
    link.symlink_to(config)
    set_value(link, "owner", ["x"])
    assert link.is_symlink()
    assert tree_of(config)["owner"] == ["x"]


@pytest.mark.parametrize("indent", ["\t", "    "])
def test_json_is_edited_as_json_in_its_order_and_indentation(tmp_path: Path, indent: str) -> None:
    path = tmp_path / "config.json"
    before = {"z": 1, "a": {"maxTokens": 2, "text": "\u00e9"}}
    path.write_text(json.dumps(before, indent=indent))
    set_value(path, "a.max_tokens", 3)
    after = {"z": 1, "a": {"maxTokens": 3, "text": "\u00e9"}}
    assert path.read_text() == json.dumps(after, indent=indent, ensure_ascii=False) + "\n"


def test_a_new_json_file_is_json(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    set_value(path, "a.b", 1)
    assert json.loads(path.read_text()) == {"a": {"b": 1}}


def test_broken_files_are_left_as_they_are(tmp_path: Path) -> None:
    for name, text in (
        ("c.yaml", "a: ["),
        ("c.yaml", "a: !!int b"),
        ("c.yaml", "a: 1\na: 2\n"),
        ("c.json", "a: 1"),
    ):
        path = tmp_path / name
        path.write_text(text)
        with pytest.raises((ConfigUnreadable, ConfigInvalid)):
            set_value(path, "b", 1)
        assert path.read_text() == text


def test_json_becomes_yaml_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    tree = {"a": {"apiKey": "${KEY}", "n": "1e3", "s": "no", "t": "0123"}, "l": [1, None, "null"]}
    path.write_text(json.dumps(tree, indent="\t"))
    target, _ = migrate_json_to_yaml(path)
    assert target == tmp_path / "config.yaml"
    assert tree_of(target) == tree
    assert path.exists()
    assert target.stat().st_mode & 0o777 == 0o600
    with pytest.raises(ConfigUnreadable, match="exists"):
        migrate_json_to_yaml(path)


@given(value=_VALUES)
def test_any_value_reads_back_and_the_comments_stay(
    value: JsonValue, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("edit") / "config.yaml"
    path.write_text(YAML)
    before = tree_of(path)
    set_value(path, "custom.thing", value)
    assert tree_of(path) == {**before, "custom": {"thing": value}}
    assert path.read_text().startswith(YAML)


@pytest.mark.parametrize(
    "text",
    [
        "a: {!!int : x}\nowner: []\n",
        "a: {!!float : x}\nowner: []\n",
        "a: &d {b: 1}\nowner:\n  <<: *d\n  b: 2\nc: {<<: *d, owner: 3}\n\ufeffd: 4\n",
        "a:\n  b:\n\ufeff c: 1\nowner: []\n",
        "a:\n  d\u2028e: 1\nowner: []\n",
    ],
)
def test_an_edit_that_would_change_something_else_is_refused(tmp_path: Path, text: str) -> None:
    """Guards against an editor that reads YAML otherwise than the loader, or fails on it."""
    path = tmp_path / "config.yaml"
    path.write_text(text, "utf-8")
    try:
        set_value(path, "owner", "telegram:1")
    except ConfigUnreadable:
        assert path.read_text("utf-8") == text
    else:
        before, after = (parse_source(one, "c").tree for one in (text, path.read_text("utf-8")))
        assert after == {**before, "owner": "telegram:1"}
