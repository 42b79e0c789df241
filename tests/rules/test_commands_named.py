"""What a message or a page tells people to run exists."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import typer.main

from nanobot_core.cli import gateway, plugins
from tests.rules.checks.sample import write_tree
from tests.rules.test_hooks_documented import absent_plugins

_NAMED = re.compile(r"(nanobot (?:plugins|gateway)|(?<![\w./])/plugins) ([a-z][a-z-]*)\b")
IN_A_CHAT = {"list", "enable", "disable", "reload"}
"""What ``/plugins`` takes; see `Gateway.change_plugin`."""


def command_findings(root: Path, known: dict[str, set[str]]) -> Iterator[str]:
    """Name each command below `root` that is named and not in `known`."""
    folders = ("nanobot_core/**/*.py", "plugins/*/src/**/*.py", "docs/**/*.md", "README.md")
    for path in sorted(path for folder in folders for path in root.glob(folder)):
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
            for group, word in _NAMED.findall(line):
                if word not in known[group]:
                    yield f"{path.relative_to(root)}:{number}: there is no '{group} {word}'"


def _known(root: Path) -> dict[str, set[str]]:
    found = {
        "nanobot plugins": {
            *typer.main.get_group(plugins.app).commands,
            *(entry.name for entry in plugins.PluginsGroup.table),
        },
        "nanobot gateway": {*typer.main.get_group(gateway.app).commands},
        "/plugins": IN_A_CHAT,
    }
    for file in root.glob("plugins/*/src/*/nanobot-plugin.json"):
        for item in json.loads(file.read_text("utf-8"))["declarations"]:
            if item["kind"] == "cli" and item["detail"].get("parent"):
                found.setdefault(f"nanobot {item['detail']['parent']}", set()).add(item["name"])
    return found


def test_every_command_that_is_named_exists(repository: Path) -> None:
    if not absent_plugins(repository):
        assert [*command_findings(repository, _known(repository))] == []


def test_a_command_that_does_not_exist_is_named(tmp_path: Path) -> None:
    text = "'run nanobot plugins reload x or nanobot plugins list'"
    tree = write_tree(tmp_path, {"nanobot_core/a.py": text})

    found = [*command_findings(tree, {"nanobot plugins": {"list"}})]

    assert found == ["nanobot_core/a.py:1: there is no 'nanobot plugins reload'"]
