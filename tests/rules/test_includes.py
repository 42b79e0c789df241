"""Pages include and name sources that exist."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rules.checks.includes import include_findings
from tests.rules.checks.sample import write_tree

SOURCE = "class A:\n    def f(self): ...\n"


def test_pages_include_and_name_sources_that_exist(repository: Path) -> None:
    assert include_findings(repository) == []


@pytest.mark.parametrize(
    ("text", "finding"),
    [
        ("see `turns/gone.py`", "names 'turns/gone.py', which does not exist"),
        ("```{literalinclude} ../gone.py\n```", "includes '../gone.py', which does not exist"),
        (
            "```{literalinclude} ../nanobot_core/turns/a.py\n:pyobject: A.g\n```",
            "includes 'A.g' of '../nanobot_core/turns/a.py', which does not exist",
        ),
    ],
)
def test_a_missing_source_is_reported(tmp_path: Path, text: str, finding: str) -> None:
    write_tree(tmp_path, {"nanobot_core/turns/a.py": SOURCE, "docs/a.md": text})

    assert include_findings(tmp_path) == [f"docs/a.md: {finding}"]


@pytest.mark.parametrize(
    "text",
    [
        "see `turns/a.py` and your `my_package/a.py`",
        "```{literalinclude} ../nanobot_core/turns/a.py\n:pyobject: A.f\n```",
    ],
)
def test_existing_and_other_sources_pass(tmp_path: Path, text: str) -> None:
    write_tree(tmp_path, {"nanobot_core/turns/a.py": SOURCE, "docs/a.md": text})

    assert include_findings(tmp_path) == []
