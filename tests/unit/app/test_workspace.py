"""What a start makes of a workspace that a command has prepared."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from nanobot_core.app.workspace import RECORDS, prepare_workspace
from nanobot_core.folder import Folder


def test_the_folders_of_records_exist_after_a_start(tmp_path: Path) -> None:
    prepare_workspace(Folder(tmp_path / "new" / "workspace"))

    assert sorted(path.name for path in (tmp_path / "new/workspace").iterdir()) == sorted(RECORDS)


@pytest.mark.parametrize("name", RECORDS)
@pytest.mark.parametrize(
    "make",
    [lambda path: path.symlink_to("../outside"), os.mkfifo, Path.touch],
    ids=["link", "pipe", "file"],
)
def test_something_else_is_moved_aside_and_kept(
    tmp_path: Path, name: str, make: Callable[[Path], None]
) -> None:
    outside, workspace = tmp_path / "outside", tmp_path / "workspace"
    outside.mkdir()
    workspace.mkdir()
    (workspace / f"{name}.moved-1").mkdir()
    make(workspace / name)

    prepare_workspace(Folder(workspace))

    assert (workspace / name).is_dir()
    assert not (workspace / name).is_symlink()
    assert os.path.lexists(workspace / f"{name}.moved-2")
    assert list(outside.iterdir()) == []


@pytest.mark.parametrize("name", RECORDS)
def test_folders_that_exist_stay_as_they_are(tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir()
    (tmp_path / name / "x").write_text("kept")

    prepare_workspace(Folder(tmp_path))

    assert (tmp_path / name / "x").read_text() == "kept"
