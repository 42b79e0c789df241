"""Nothing opens files of the workspace by their path."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rules.checks.sample import write_tree
from tests.rules.checks.workspace import ALLOWED, workspace_findings

HERE = "nanobot_core/agent/sample.py"


def test_the_workspace_is_opened_through_one_door(repository: Path) -> None:
    assert workspace_findings(repository) == []


def test_exceptions_exist(repository: Path) -> None:
    assert [name for name in ALLOWED if not (repository / name).is_file()] == []


@pytest.mark.parametrize(
    "line",
    [
        "(self._workspace / 'AGENTS.md').read_text()",
        "(workspace / 'a' / 'b').stat()",
        "open(ctx.workspace / 'x')",
        "os.scandir(context.workspace)",
        "shutil.rmtree(loaded.workspace.resolve() / 'x')",
        "(self.workspace / 'x').open('rb')",
        "folder = loaded.workspace / 'sessions'; folder.glob('*.jsonl')",
        "self._workspace.path.joinpath('x').unlink()",
        "(workspace / 'x').replace(other)",
    ],
)
def test_a_path_below_the_workspace_is_named(tmp_path: Path, line: str) -> None:
    text = f"def f(self, workspace, ctx, loaded, context):\n    {line}\n"

    (found,) = workspace_findings(write_tree(tmp_path, {HERE: text}))

    assert found.startswith(f"{HERE}:2: ")


@pytest.mark.parametrize(
    "line",
    [
        "self._workspace.read('AGENTS.md', 100)",
        "workspace.replace('x', b'')",
        "workspace.stat('x')",
        "(data_dir / 'x').read_text()",
        "guard.open_read(path)",
    ],
)
def test_the_door_itself_is_allowed(tmp_path: Path, line: str) -> None:
    text = f"def f(self, workspace, data_dir, guard, path):\n    {line}\n"

    assert workspace_findings(write_tree(tmp_path, {HERE: text})) == []
