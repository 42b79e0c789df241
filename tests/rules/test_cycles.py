"""Modules do not import each other."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rules.checks.cycles import cycle_findings
from tests.rules.checks.sample import write_tree


def test_no_modules_import_each_other(repository: Path) -> None:
    assert cycle_findings(repository) == []


@pytest.mark.parametrize(
    "text",
    ["from nanobot_core import a\n", "def f():\n    from nanobot_core.a import x\n"],
    ids=["at the top", "in a function"],
)
def test_a_cycle_is_reported(tmp_path: Path, text: str) -> None:
    write_tree(
        tmp_path, {"nanobot_core/a.py": "import nanobot_core.b\n", "nanobot_core/b.py": text}
    )

    assert cycle_findings(tmp_path) == [
        "these modules import each other: nanobot_core.a, nanobot_core.b"
    ]


def test_imports_for_types_make_no_cycle(tmp_path: Path) -> None:
    typed = "if TYPE_CHECKING:\n    from nanobot_core import a\n"
    write_tree(
        tmp_path, {"nanobot_core/a.py": "import nanobot_core.b\n", "nanobot_core/b.py": typed}
    )

    assert cycle_findings(tmp_path) == []
