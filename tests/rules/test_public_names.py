"""The public names are the documented ones."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

from tests.rules.checks.names import documented_name_findings, static_name_findings
from tests.rules.checks.plugin_imports import PUBLIC

LAZY = (
    "nanobot_core",
    "nanobot_core.chat",
    "nanobot_core.net",
    "nanobot_core.providers",
    "nanobot_core.testing",
)


def exported(module: str) -> set[str]:
    return set(importlib.import_module(module).__all__)


def test_public_names_equal_the_documented_names(repository: Path) -> None:
    page = repository / "docs" / "plugins" / "public-names.md"

    assert documented_name_findings(page, {module: exported(module) for module in PUBLIC}) == []


@pytest.mark.parametrize("module", LAZY)
def test_type_checkers_see_the_exported_names(repository: Path, module: str) -> None:
    file = repository.joinpath(*module.split("."), "__init__.py")

    assert static_name_findings(file, exported(module)) == []


@pytest.mark.parametrize("module", sorted(PUBLIC))
def test_each_public_name_can_be_imported(module: str) -> None:
    imported = importlib.import_module(module)

    assert [name for name in sorted(exported(module)) if not hasattr(imported, name)] == []


def test_differences_between_page_and_module_are_named(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# Names\n\n## `a`\n\n`One`, `Two`\n\n## `a.b`\n\n`Three`\n", "utf-8")

    found = documented_name_findings(page, {"a": {"One", "New"}, "a.b": {"Three"}})

    assert found == ["a.New: exported, not in page.md", "a.Two: in page.md, not exported"]


def test_differences_between_checkers_and_program_are_named(tmp_path: Path) -> None:
    module = tmp_path / "m.py"
    module.write_text("if TYPE_CHECKING:\n    from a import One as One, Two as Two\n", "utf-8")

    found = static_name_findings(module, {"One", "Three"})

    assert found == ["m.py: checkers do not see 'Three'", "m.py: only checkers see 'Two'"]
