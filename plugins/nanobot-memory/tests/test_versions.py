"""Versions of the memory files in a git repository of their own."""

from __future__ import annotations

import os
import subprocess
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from nanobot_core import OWNERS_MEMORY, Folder
from nanobot_core.testing import FakeClock
from nanobot_memory.batch import DreamState, FileChange, Pending, load_state, save_pending
from nanobot_memory.files import MemoryFiles
from nanobot_memory.merge import merge
from nanobot_memory.repository import DREAM, PERSON, Repository
from nanobot_memory.versions import apply, finish_pending, keep_edits, restore, show_log

NOW = datetime(2026, 3, 1, 9, 30, tzinfo=UTC)


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    path = tmp_path / "workspace"
    (path / "memory").mkdir(parents=True)
    (path / "USER.md").write_text("# User\n\n- Name: Ada\n- Lives in Bonn\n", "utf-8")
    (path / "memory" / "MEMORY.md").write_text("# Memory\n", "utf-8")
    return path


@pytest.fixture
def files(workspace: Path) -> MemoryFiles:
    return MemoryFiles(workspace, OWNERS_MEMORY, FakeClock())


def change(files: MemoryFiles, path: str, after: bytes, entries: str = "1-2") -> str | None:
    before = (files.root.path / path).read_bytes()
    message = f"dream: {NOW:%Y-%m-%d %H:%M}, 1 change(s)\n\nDream-Entries: {entries}\n"
    changes = {path: FileChange(before=before, after=after)}
    return apply(
        files, Pending(changes=changes, message=message, cursor=2, state=DreamState()), NOW
    )


def fsck(workspace: Path) -> str:
    done = subprocess.run(
        ["git", "-C", workspace / "memory", "fsck", "--strict", "--full"],
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )
    assert done.returncode == 0, done.stderr
    return done.stderr


def test_edits_of_a_person_are_committed_first_and_as_theirs(
    files: MemoryFiles, workspace: Path
) -> None:
    keep_edits(files, NOW)
    (workspace / "USER.md").write_text("# User\n\n- Name: Ada Lovelace\n- Lives in Bonn\n", "utf-8")

    change(files, "memory/MEMORY.md", b"# Memory\n- fact\n")

    newest, edit, first = Repository(files.root).log(10)
    assert (newest.author, newest.files) == (DREAM, ("memory/MEMORY.md",))
    assert (edit.author, edit.files) == (PERSON, ("USER.md",))
    assert first.author == PERSON
    assert fsck(workspace) == ""


def test_nothing_is_committed_without_a_change_of_content(files: MemoryFiles) -> None:
    assert keep_edits(files, NOW) is not None
    assert keep_edits(files, NOW) is None
    assert change(files, "USER.md", (files.root.path / "USER.md").read_bytes()) is None


def test_line_endings_and_bytes_stay(files: MemoryFiles, workspace: Path) -> None:
    (workspace / "USER.md").write_bytes(b"a\r\nb\xff\r\n")

    change(files, "USER.md", b"a\r\nb\xff\r\nc\r\n")

    assert (workspace / "USER.md").read_bytes() == b"a\r\nb\xff\r\nc\r\n"
    assert Repository(files.root).last()["USER.md"] == b"a\r\nb\xff\r\nc\r\n"


def test_the_log_shows_the_real_diff(files: MemoryFiles) -> None:
    made = change(files, "memory/MEMORY.md", b"# Memory\n- A ~~~ fence\n")

    assert made is not None
    shown = show_log(files, made[:7])
    assert "+- A ~~~ fence" in shown
    assert "\n~~~~diff\n" in shown
    assert f"`{made[:7]}`" in show_log(files)


def test_a_restore_keeps_later_changes_of_other_lines_and_files(
    files: MemoryFiles, workspace: Path
) -> None:
    text = (workspace / "USER.md").read_bytes()
    made = change(files, "USER.md", text.replace(b"Bonn", b"Porto"), entries="3-9")
    change(files, "memory/MEMORY.md", b"# Memory\n- later\n")
    (workspace / "USER.md").write_bytes((workspace / "USER.md").read_bytes() + b"- Has a dog\n")

    assert made is not None
    report = restore(files, made[:7], NOW)

    assert "Reverted" in report
    assert "/dream retry" in report
    assert (workspace / "USER.md").read_bytes() == text + b"- Has a dog\n"
    assert (workspace / "memory" / "MEMORY.md").read_bytes() == b"# Memory\n- later\n"
    assert [(each.first, each.last) for each in load_state(files).aside] == [(3, 9)]
    assert fsck(workspace) == ""


def test_a_restore_of_lines_that_were_changed_since_is_refused(
    files: MemoryFiles, workspace: Path
) -> None:
    made = change(files, "USER.md", b"# User\n\n- Name: Ada\n- Lives in Porto\n")
    (workspace / "USER.md").write_bytes(b"# User\n\n- Name: Ada\n- Lives in Rome\n")

    assert made is not None
    assert "changed in the same lines" in restore(files, made, NOW)
    assert (workspace / "USER.md").read_bytes() == b"# User\n\n- Name: Ada\n- Lives in Rome\n"


def test_without_a_name_the_newest_change_of_dream_is_restored(
    files: MemoryFiles, workspace: Path
) -> None:
    change(files, "memory/MEMORY.md", b"# Memory\n- one\n")
    change(files, "memory/MEMORY.md", b"# Memory\n- one\n- two\n")

    restore(files, "", NOW)

    assert (workspace / "memory" / "MEMORY.md").read_bytes() == b"# Memory\n- one\n"


@pytest.mark.parametrize("name", ["zzzz", "12", "deadbeef", "../../x", "HEAD"])
def test_an_unknown_version_is_reported(files: MemoryFiles, name: str) -> None:
    change(files, "memory/MEMORY.md", b"# Memory\n- one\n")

    assert "does not exist" in show_log(files, name)
    assert "Nothing was reverted" in restore(files, name, NOW)


def test_a_person_may_edit_while_dream_works(files: MemoryFiles, workspace: Path) -> None:
    before = (workspace / "USER.md").read_bytes()
    changes = {"USER.md": FileChange(before=before, after=before.replace(b"Bonn", b"Porto"))}
    (workspace / "USER.md").write_bytes(before + b"- Has a dog\n")

    apply(files, Pending(changes=changes, message="dream", cursor=1, state=DreamState()), NOW)

    now = (workspace / "USER.md").read_bytes()
    assert now == before.replace(b"Bonn", b"Porto") + b"- Has a dog\n"
    assert Repository(files.root).log(2)[1].author == PERSON


@pytest.mark.parametrize("is_written", [False, True])
def test_a_change_that_a_kill_interrupted_is_finished_once(
    files: MemoryFiles, workspace: Path, is_written: bool
) -> None:
    keep_edits(files, NOW)
    change_ = FileChange(before=b"# Memory\n", after=b"# Memory\n- fact\n")
    pending = Pending(
        changes={"memory/MEMORY.md": change_}, message="dream", cursor=7, state=DreamState()
    )
    save_pending(files, pending)
    if is_written:
        (workspace / "memory" / "MEMORY.md").write_bytes(b"# Memory\n- fact\n")

    finish_pending(files, NOW)
    finish_pending(files, NOW)

    assert (workspace / "memory" / "MEMORY.md").read_bytes() == b"# Memory\n- fact\n"
    assert files.dream_cursor == 7
    assert [each.author for each in Repository(files.root).log(10)] == [DREAM, PERSON]


def test_it_works_inside_another_repository_and_runs_no_hook(
    files: MemoryFiles, workspace: Path, tmp_path: Path
) -> None:
    subprocess.run(["git", "init", "-q", tmp_path], check=True, timeout=30)
    keep_edits(files, NOW)
    hooks = workspace / "memory" / ".git" / "hooks"
    hooks.mkdir()
    for name in ("pre-commit", "post-commit", "reference-transaction"):
        (hooks / name).write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n", "utf-8")
        (hooks / name).chmod(0o755)
    config = workspace / "memory" / ".git" / "config"
    config.write_text(f"{config.read_text()}[core]\n\tfsmonitor = touch {tmp_path}/ran\n")

    change(files, "memory/MEMORY.md", b"# Memory\n- fact\n")

    assert len(Repository(files.root).log(10)) == 2
    assert not (tmp_path / "ran").exists()
    assert not (tmp_path / ".git" / "refs" / "heads" / "main").exists()


def test_versions_survive_a_garbage_collection_of_git(files: MemoryFiles, workspace: Path) -> None:
    made = change(files, "memory/MEMORY.md", b"# Memory\n- fact\n")
    subprocess.run(["git", "-C", workspace / "memory", "gc", "-q"], check=True, timeout=30)

    change(files, "memory/MEMORY.md", b"# Memory\n- fact\n- other\n")

    assert made in [each.id for each in Repository(files.root).log(10)]
    fsck(workspace)


@pytest.mark.parametrize("place", ["objects", "objects/pack", "."])
def test_a_planted_link_is_refused(
    files: MemoryFiles, workspace: Path, tmp_path: Path, place: str
) -> None:
    keep_edits(files, NOW)
    target = tmp_path / "elsewhere"
    target.mkdir()
    planted = workspace / "memory" / ".git" / place / "link"
    planted.parent.mkdir(exist_ok=True)
    planted.symlink_to(target)

    with pytest.raises(OSError, match="link"):
        change(files, "memory/MEMORY.md", b"# Memory\n- fact\n")
    assert list(target.iterdir()) == []


@pytest.mark.parametrize("kind", ["link", "fifo", "folder"])
def test_what_is_not_a_regular_file_is_refused(
    files: MemoryFiles, workspace: Path, tmp_path: Path, kind: str
) -> None:
    path = workspace / "memory" / "MEMORY.md"
    path.unlink()
    if kind == "link":
        (tmp_path / "config.yaml").write_text("secret", "utf-8")
        path.symlink_to(tmp_path / "config.yaml")
    elif kind == "fifo":
        os.mkfifo(path)
    else:
        path.mkdir()

    with pytest.raises(OSError, match=r"not a regular file|Not a directory"):
        keep_edits(files, NOW)


def test_a_damaged_repository_is_kept_aside(files: MemoryFiles, workspace: Path) -> None:
    keep_edits(files, NOW)
    (workspace / "memory" / ".git" / "refs" / "heads" / "main").write_text("a" * 40)

    change(files, "memory/MEMORY.md", b"# Memory\n- fact\n")

    assert (workspace / "memory" / ".git.corrupt-1").is_dir()
    assert [each.author for each in Repository(files.root).log(10)] == [DREAM, PERSON]
    fsck(workspace)


lines = st.lists(st.sampled_from("abcd"), max_size=6).map(
    lambda each: "".join(f"{x}\n" for x in each)
)


@given(lines, lines)
def test_a_merge_without_a_second_change_is_the_change(base: str, ours: str) -> None:
    assert merge(base, ours, base) == ours
    assert merge(base, base, ours) == ours
    assert merge(base, ours, ours) == ours


@given(lines, lines, lines, lines)
def test_changes_on_either_side_of_a_line_are_both_kept(
    top: str, bottom: str, new_top: str, new_bottom: str
) -> None:
    middle = "----\n====\n"

    merged = merge(top + middle + bottom, new_top + middle + bottom, top + middle + new_bottom)

    assert merged == new_top + middle + new_bottom


def test_repository_needs_no_git_program(
    files: MemoryFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")

    assert keep_edits(files, NOW) is not None
    assert Repository(Folder(files.root.path)).log(1)[0].author == PERSON
