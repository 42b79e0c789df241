"""What the model puts into the workspace neither leads the agent out of it nor stops it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import yaml
from _pytest.mark import ParameterSet

pytest.importorskip("nanobot_offline")
pytest.importorskip("nanobot_files")

WATCHED = """
import asyncio, json, os, sys
from pathlib import Path

home, calls = Path(sys.argv[1]), sys.argv[2]
workspace = str(home / "workspace")
opened = []

def watch(event, arguments):
    if not event.startswith(("open", "os.", "shutil.", "pathlib.", "glob.")):
        return
    for argument in arguments:
        if isinstance(argument, (str, bytes, os.PathLike)):
            path = os.fsdecode(argument)
            if path.startswith(workspace + "/"):
                opened.append(f"{event} {path}")

async def main():
    from nanobot_core import Nanobot

    sys.addaudithook(watch)
    async with Nanobot.from_config(home / "config.yaml", home=home) as bot:
        replies = [(await bot.run(calls)).reply, (await bot.run("help")).reply]
    print(json.dumps({"opened": opened, "replies": replies}))

asyncio.run(main())
"""
"""The agent in a process whose every opened path is written down: a name that is opened relative to
a directory is no absolute path."""


def run(home: Path, calls: str, **sections: Any) -> dict[str, Any]:
    home.mkdir(parents=True, exist_ok=True)
    config = {"logging": {"file": False}, "providers": {"x": {"api_key": "canary-key"}}, **sections}
    (home / "config.yaml").write_text(yaml.safe_dump(config))
    done = subprocess.run(
        [sys.executable, "-c", WATCHED, str(home), calls],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={"PATH": os.environ["PATH"], "HOME": str(home.parent), "NANOBOT_HOME": str(home)},
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_nothing_in_the_workspace_is_opened_by_its_path(tmp_path: Path) -> None:
    calls = [
        ("write_file", {"path": "a/b.txt", "content": "needle\n" * 4_000}),
        ("read_file", {"path": "a/b.txt", "limit": 4_000}),
        ("edit_file", {"path": "AGENTS.md", "old_text": "one", "new_text": "two"}),
        ("list_dir", {"path": ".", "recursive": True}),
        ("glob", {"pattern": "*"}),
        ("apply_patch", {"patch": "*** Begin Patch\n*** Delete File: a/b.txt\n*** End Patch"}),
    ]
    workspace = tmp_path / "home" / "workspace"
    workspace.mkdir(parents=True)
    (workspace / "AGENTS.md").write_text("rule one")
    script = " then ".join(f"{name} {json.dumps(arguments)}" for name, arguments in calls)

    found = run(tmp_path / "home", script, tools={"max_tool_result_chars": 1_000})

    assert "failed" not in found["replies"][0], found["replies"][0]
    assert (workspace / "AGENTS.md").read_text() == "rule two"
    assert list(workspace.glob(".nanobot/tool-results/*/*.txt"))
    assert found["opened"] == []


def _link_to_config(path: Path) -> None:
    path.symlink_to("../config.yaml")


def _endless(path: Path) -> None:
    path.symlink_to("/dev/zero")


def _large(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(1_500_000_000)


INSTEAD_OF_FILES = (_link_to_config, os.mkfifo, _endless, _large, Path.mkdir)
INSTEAD_OF_FOLDERS = (os.mkfifo, _endless, _large)


def pairs(names: Sequence[str], makers: Sequence[Callable[[Path], None]]) -> list[ParameterSet]:
    """Return all pairs; in the short form, each name and each maker comes once or twice."""
    found = []
    for (first, name), (second, make) in product(enumerate(names), enumerate(makers)):
        is_short = first % len(makers) == second % len(names)
        marks = () if is_short else (pytest.mark.long,)
        found.append(pytest.param(name, make, id=f"{name}-{make.__name__}", marks=marks))
    return found


@pytest.mark.parametrize(
    ("name", "make"),
    pairs(["AGENTS.md", "SOUL.md", "USER.md", "TOOLS.md"], INSTEAD_OF_FILES),
)
def test_turns_survive_something_else_in_place_of_instructions(
    tmp_path: Path, name: str, make: Callable[[Path], None]
) -> None:
    workspace = tmp_path / "home" / "workspace"
    workspace.mkdir(parents=True)
    make(workspace / name)

    found = run(tmp_path / "home", "help")

    assert "read_file" in found["replies"][1]


@pytest.mark.parametrize("name", [".nanobot", "memory", "sessions"])
def test_a_link_in_place_of_the_records_changes_nothing_elsewhere(
    tmp_path: Path, name: str
) -> None:
    outside = tmp_path / "outside"
    (outside / "tool-results" / "s").mkdir(parents=True)
    old = outside / "tool-results" / "s" / "old.txt"
    old.write_text("the owner's")
    os.utime(old, (0, 0))
    workspace = tmp_path / "home" / "workspace"
    workspace.mkdir(parents=True)
    (workspace / "big.txt").write_text("x" * 50_000)
    (workspace / name).symlink_to(outside)
    before = sorted(outside.rglob("*"))

    found = run(tmp_path / "home", 'read_file {"path": "big.txt"}')

    assert found["replies"][1]
    assert sorted(outside.rglob("*")) == before
    assert old.read_text() == "the owner's"


@pytest.mark.parametrize(
    ("name", "make"),
    pairs([".nanobot", "memory", "sessions", "skills", "guests"], INSTEAD_OF_FOLDERS),
)
def test_turns_survive_something_else_in_place_of_a_folder(
    tmp_path: Path, name: str, make: Callable[[Path], None]
) -> None:
    workspace = tmp_path / "home" / "workspace"
    workspace.mkdir(parents=True)
    (workspace / "big.txt").write_text("x" * 50_000)
    make(workspace / name)

    found = run(tmp_path / "home", 'read_file {"path": "big.txt"}')

    assert "xxx" in found["replies"][0]
    assert "read_file" in found["replies"][1]
