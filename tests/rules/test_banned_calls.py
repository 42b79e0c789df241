"""Printing, tasks and the environment have one home each."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rules.checks.calls import call_findings
from tests.rules.checks.sample import write_tree

HERE = "nanobot_core/agent/loop.py"


def test_nothing_is_used_outside_its_home(repository: Path) -> None:
    assert call_findings(repository) == []


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("print('x')", "print"),
        ("import asyncio\nasyncio.create_task(f())", "asyncio.create_task"),
        ("from asyncio import ensure_future", "asyncio.ensure_future"),
        ("import os\nos.environ['A']", "os.environ"),
        ("import os\nos.getenv('A')", "os.getenv"),
        ("from os import environ", "os.environ"),
    ],
)
def test_a_use_outside_its_home_is_named(tmp_path: Path, text: str, name: str) -> None:
    (found,) = call_findings(write_tree(tmp_path, {HERE: text}))

    assert found.startswith(f"{HERE}:{text.count(chr(10)) + 1}: {name} belongs to nanobot_core/")


def test_each_home_allows_its_own_names_only(tmp_path: Path) -> None:
    files = {
        "nanobot_core/cli/agent.py": "print('x')",
        "nanobot_core/tasks.py": "import asyncio\nasyncio.create_task(f())",
        "nanobot_core/config/env.py": "import os\nos.environ['A']",
        "nanobot_core/app/env.py": "import os\nos.environ['A']",
        "nanobot_core/turns/a.py": "group.create_task(f())",
    }

    found = call_findings(write_tree(tmp_path, files))

    assert found == ["nanobot_core/app/env.py:2: os.environ belongs to nanobot_core/config/"]
