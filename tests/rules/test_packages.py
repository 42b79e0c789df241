"""Plugin folders have the shape that the tutorial shows."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rules.checks.packages import HEADINGS, package_findings
from tests.rules.checks.sample import write_tree

SOURCE = "plugins/nanobot-a/src/nanobot_a"
PROJECT = """\
[project]
name = "nanobot-a"
dependencies = ["nanobot-core>=0.1,<0.2"]
[project.entry-points.nanobot]
a = "nanobot_a.plugin"
[project.entry-points."nanobot.manifest"]
a = "nanobot_a"
"""
GOOD = {
    "plugins/nanobot-a/pyproject.toml": PROJECT,
    "plugins/nanobot-a/README.md": "\n".join(f"## {heading}" for heading in HEADINGS),
    "plugins/nanobot-a/tests/test_plugin.py": "",
    f"{SOURCE}/__init__.py": "",
    f"{SOURCE}/nanobot-plugin.json": "{}",
    f"{SOURCE}/plugin.py": "",
    f"{SOURCE}/py.typed": "",
}


@pytest.mark.promise(3)
def test_all_plugins_have_the_documented_shape(repository: Path) -> None:
    assert package_findings(repository) == []


def test_the_documented_shape_passes(tmp_path: Path) -> None:
    assert package_findings(write_tree(tmp_path, GOOD)) == []


@pytest.mark.parametrize("missing", sorted(GOOD))
def test_a_missing_file_is_named(tmp_path: Path, missing: str) -> None:
    write_tree(tmp_path, {path: text for path, text in GOOD.items() if path != missing})

    assert package_findings(tmp_path) != []


@pytest.mark.parametrize(
    ("old", "new", "finding"),
    [
        ('"nanobot-a"', '"other"', "the distribution is called 'other'"),
        ("nanobot_a.plugin", "nanobot_a.main", "the entry point of 'nanobot' is not"),
        ('a = "nanobot_a"', 'a = "nanobot_b"', "the entry points of 'nanobot.manifest' are not"),
        ("nanobot-core>=0.1,<0.2", "httpx", "does not say which nanobot-core it works with"),
    ],
)
def test_a_wrong_project_table_is_named(tmp_path: Path, old: str, new: str, finding: str) -> None:
    project = PROJECT.replace(old, new)
    write_tree(tmp_path, {**GOOD, "plugins/nanobot-a/pyproject.toml": project})

    (found,) = package_findings(tmp_path)

    assert found.startswith(f"plugins/nanobot-a: {finding}")
