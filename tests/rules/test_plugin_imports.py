"""Plugins import public modules, and no other plugin; the core imports none."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rules.checks.plugin_imports import core_import_findings, plugin_import_findings
from tests.rules.checks.sample import write_tree

HERE = "plugins/nanobot-a/src/nanobot_a/plugin.py"
CORE = {"nanobot_core/agent/loop.py": "", "nanobot_core/errors.py": "", "nanobot_core/tools.py": ""}
BUILT_ON = "from nanobot_http import mount"


def project(dependency: str) -> dict[str, str]:
    return {"plugins/nanobot-a/pyproject.toml": f"[project]\ndependencies = ['{dependency}']"}


@pytest.mark.promise(4)
def test_plugins_import_public_modules_only(repository: Path) -> None:
    assert plugin_import_findings(repository) == []


@pytest.mark.promise(3, 4)
def test_the_core_imports_no_plugin(repository: Path) -> None:
    assert core_import_findings(repository) == []


@pytest.mark.parametrize(
    ("text", "finding"),
    [
        ("import nanobot_core.agent.loop", "nanobot_core.agent.loop, an inner module of the core"),
        ("from nanobot_core.agent import loop", "nanobot_core.agent.loop, an inner module"),
        ("from nanobot_core import errors", "nanobot_core.errors, an inner module of the core"),
        ("import_module('nanobot_core.errors')", "nanobot_core.errors, an inner module"),
        ("from nanobot_b import x", "nanobot_b, another plugin"),
        ("def f():\n    import nanobot_b.client", "nanobot_b.client, another plugin"),
        (BUILT_ON, "nanobot_http, another plugin"),
    ],
)
@pytest.mark.parametrize("path", [HERE, "plugins/nanobot-a/tests/test_plugin.py"])
def test_other_imports_are_named(tmp_path: Path, path: str, text: str, finding: str) -> None:
    write_tree(tmp_path, {**CORE, **project("httpx"), path: text})

    (found,) = plugin_import_findings(tmp_path)

    assert f"imports {finding}" in found


@pytest.mark.parametrize(
    "text",
    [
        "from nanobot_core import Tool, hookimpl, tools",
        "import nanobot_core.testing",
        "from nanobot_core.tools import ToolRegistry",
        "from nanobot_a.client import x",
        "import httpx",
        BUILT_ON,
    ],
)
def test_public_own_and_declared_imports_pass(tmp_path: Path, text: str) -> None:
    write_tree(tmp_path, {**CORE, **project("nanobot-http>=0.1"), HERE: text})

    assert plugin_import_findings(tmp_path) == []


def test_a_plugin_imported_by_the_core_is_named(tmp_path: Path) -> None:
    write_tree(tmp_path, {"nanobot_core/cli/agent.py": "import nanobot_files.plugin"})

    (found,) = core_import_findings(tmp_path)

    assert found.startswith("nanobot_core/cli/agent.py:1: imports nanobot_files.plugin")
