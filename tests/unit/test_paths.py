"""What PathGuard allows, how it opens and how it writes."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from nanobot_core import PathGuard, ToolDenied, ToolFailed, ToolInputError


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path.resolve() / "workspace"
    folder.mkdir()
    return folder


def test_relative_path_is_taken_from_the_workspace(workspace: Path) -> None:
    assert PathGuard(workspace).resolve_read("a/b.txt") == workspace / "a/b.txt"


def test_tilde_means_the_home_folder(
    workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))

    guard = PathGuard(workspace, read_roots=[tmp_path])

    assert guard.resolve_read("~/notes.txt") == tmp_path.resolve() / "notes.txt"
    assert guard.resolve_read("~notes.txt") == workspace / "~notes.txt"


def test_link_inside_the_workspace_is_followed(workspace: Path) -> None:
    (workspace / "real.txt").write_text("content")
    (workspace / "link.txt").symlink_to("real.txt")
    guard = PathGuard(workspace)

    with guard.open_read(guard.resolve_read("link.txt")) as file:
        assert file.read() == b"content"


def test_workspace_that_is_itself_reached_by_a_link_is_usable(
    workspace: Path, tmp_path: Path
) -> None:
    link = tmp_path / "link"
    link.symlink_to(workspace)

    assert PathGuard(link).resolve_write("a.txt") == workspace / "a.txt"


def test_read_root_may_be_read_and_not_written(workspace: Path, tmp_path: Path) -> None:
    skills = tmp_path.resolve() / "skills"
    guard = PathGuard(workspace, read_roots=[skills])

    assert guard.resolve_read(f"{skills}/a.md") == skills / "a.md"
    with pytest.raises(ToolDenied, match="outside the allowed folders"):
        guard.resolve_write(f"{skills}/a.md")


def test_write_root_may_be_read_and_written(workspace: Path, tmp_path: Path) -> None:
    shared = tmp_path.resolve() / "shared"
    guard = PathGuard(workspace, write_roots=[shared])

    assert guard.resolve_read(f"{shared}/a.md") == shared / "a.md"
    assert guard.resolve_write(f"{shared}/a.md") == shared / "a.md"


def test_paths_outside_need_an_approval(workspace: Path, tmp_path: Path) -> None:
    guard = PathGuard(workspace, restricted=False)
    outside = tmp_path.resolve() / "x.txt"

    assert guard.judge("write", str(outside)) == (outside, True)
    assert guard.judge("write", "x.txt") == (workspace / "x.txt", False)
    with pytest.raises(ToolDenied, match="has not approved"):
        guard.resolve_write(str(outside))
    assert guard.granting([outside]).resolve_write(str(outside)) == outside


def test_an_approval_is_for_the_path_that_was_judged(workspace: Path, tmp_path: Path) -> None:
    """A link that is exchanged after the owner's yes leads to a refusal."""
    harmless, secret = tmp_path.resolve() / "harmless", tmp_path.resolve() / "secret"
    harmless.write_text("harmless")
    secret.write_text("canary")
    (workspace / "link").symlink_to(harmless)
    guard = PathGuard(workspace, restricted=False)

    judged = guard.judge("read", "link")
    (workspace / "link").unlink()
    (workspace / "link").symlink_to(secret)

    assert judged == (harmless, True)
    with pytest.raises(ToolDenied, match="has not approved"):
        guard.granting([judged.path]).resolve_read("link")


def test_an_approved_folder_opens_what_is_below_it_but_nothing_closed(
    workspace: Path, tmp_path: Path
) -> None:
    home = tmp_path.resolve() / "home"
    guard = PathGuard(workspace, restricted=False, protected=[home]).granting([tmp_path.resolve()])

    assert guard.resolve_read(f"{tmp_path}/x") == tmp_path.resolve() / "x"
    for text in (f"{home}", f"{home}/gateway/pairing.json", f"{tmp_path}/HOME/x"):
        with pytest.raises(ToolDenied, match="nanobot itself"):
            guard.resolve_read(text)


def test_workspace_and_media_stay_open_inside_nanobots_folder(tmp_path: Path) -> None:
    home = tmp_path.resolve() / "home"
    guard = PathGuard(home / "workspace", protected=[home], unlisted=home / "media")

    assert guard.resolve_write("a.txt") == home / "workspace/a.txt"
    assert guard.resolve_read(f"{home}/media/x7f/voice.ogg") == home / "media/x7f/voice.ogg"
    for closed in ("config.yaml", "gateway/owner.json", "plugins/x", "cache", "logs/a.log", ".env"):
        for access in ("read", "write"):
            with pytest.raises(ToolDenied, match="nanobot itself"):
                guard.judge(access, f"{home}/{closed}")


def test_nanobots_folder_is_closed_inside_the_workspace_too(workspace: Path) -> None:
    guard = PathGuard(workspace, protected=[workspace / "home"])

    with pytest.raises(ToolDenied, match="nanobot itself"):
        guard.resolve_read("home/config.yaml")


def test_media_are_read_by_those_who_know_their_path_and_not_listed(
    workspace: Path, tmp_path: Path
) -> None:
    media = tmp_path.resolve() / "media"
    (media / "x7f").mkdir(parents=True)
    (media / "x7f" / "voice.ogg").write_bytes(b"OggS")
    guard = PathGuard(workspace, unlisted=media)

    with guard.open_read(guard.resolve_read(f"{media}/x7f/voice.ogg")) as file:
        assert file.read() == b"OggS"
    with pytest.raises(ToolDenied), guard.open_directory(media):
        pass
    with pytest.raises(ToolDenied):
        guard.resolve_write(f"{media}/x7f/voice.ogg")


def test_guarded_files_are_written_with_an_approval_only(workspace: Path, tmp_path: Path) -> None:
    own = workspace / "guests" / "ann"
    steering = [workspace / "AGENTS.md", workspace / "skills"]
    guard = PathGuard(own, guarded=steering)

    assert guard.judge("write", f"{workspace}/AGENTS.md").needs_approval
    assert guard.judge("write", f"{workspace}/Skills/x/SKILL.md").needs_approval
    assert not guard.judge("write", "AGENTS.md").needs_approval
    for text in (f"{workspace}/other.md", f"{tmp_path}/x"):
        with pytest.raises(ToolDenied, match="outside the allowed folders"):
            guard.judge("write", text)
    with pytest.raises(ToolDenied, match="outside the allowed folders"):
        guard.judge("read", f"{workspace}/AGENTS.md")


@pytest.mark.parametrize("path", [".git", ".git/config", "a/.git/hooks/pre-commit", "b/.GIT/x"])
def test_git_files_are_not_written(workspace: Path, path: str) -> None:
    """git runs what its configuration and hooks name."""
    with pytest.raises(ToolDenied, match="use git itself"):
        PathGuard(workspace).resolve_write(path)


def test_refusal_names_the_path_and_the_allowed_folders(workspace: Path) -> None:
    with pytest.raises(ToolDenied) as caught:
        PathGuard(workspace).resolve_read("/etc/passwd")

    assert "'/etc/passwd'" in str(caught.value)
    assert str(workspace) in str(caught.value)


def test_refusal_shows_control_characters_escaped_and_long_paths_cut(workspace: Path) -> None:
    with pytest.raises(ToolDenied) as caught:
        PathGuard(workspace).resolve_read("/outside/\x1b[31m/" + "a/" * 200)

    assert "\x1b" not in str(caught.value)
    assert len(str(caught.value)) < 600


@pytest.mark.parametrize("restricted", [True, False])
@pytest.mark.parametrize(
    "path",
    [
        "sessions/cli.jsonl",
        "memory/history.jsonl",
        "memory/.cursor",
        "memory/.dream_cursor",
        "memory/scopes/chat-1/MEMORY.md",
        ".nanobot/state.json",
        ".nanobot/tool-results/s/1.txt",
        "sessions",
    ],
)
def test_own_records_of_the_agent_are_not_written(
    workspace: Path, path: str, restricted: bool
) -> None:
    with pytest.raises(ToolDenied, match="own records"):
        PathGuard(workspace, restricted=restricted).resolve_write(path)


def test_memory_files_for_people_are_writable(workspace: Path) -> None:
    guard = PathGuard(workspace)

    for name in ("memory/MEMORY.md", "memory/history.md", "session.md", "a/sessions/b"):
        assert guard.resolve_write(name) == workspace / name


def test_sessions_are_read_with_an_approval_only(workspace: Path) -> None:
    guard = PathGuard(workspace, restricted=False)

    assert guard.judge("read", "sessions/cli.jsonl").needs_approval
    assert guard.judge("read", "Sessions").needs_approval
    assert not guard.may_read(workspace / "sessions/cli.jsonl")
    with pytest.raises(ToolDenied, match="other conversations"):
        PathGuard(workspace).judge("read", "sessions/cli.jsonl")


def test_of_the_hidden_folder_only_what_was_opened_is_read(workspace: Path) -> None:
    guard = PathGuard(workspace, read_roots=[workspace / ".nanobot/tool-results/own"])

    assert guard.may_read(workspace / ".nanobot/tool-results/own/1.txt")
    for name in (".nanobot/tool-results/other/1.txt", ".nanobot/journal.db", ".nanobot"):
        with pytest.raises(ToolDenied, match="belongs to nanobot"):
            guard.resolve_read(name)
    with pytest.raises(ToolDenied, match="own records"):
        guard.resolve_write(".nanobot/tool-results/own/1.txt")


def test_protected_file_is_neither_read_nor_written(workspace: Path, tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    config.write_text("key: canary")
    guard = PathGuard(workspace, restricted=False, protected=[config])

    for resolve in (guard.resolve_read, guard.resolve_write):
        with pytest.raises(ToolDenied, match="nanobot itself"):
            resolve(str(config))


def test_missing_file_is_told_with_its_path(workspace: Path) -> None:
    guard = PathGuard(workspace)

    with pytest.raises(ToolInputError, match=r"gone\.txt.*no such file"):
        guard.open_read(guard.resolve_read("gone.txt"))


def test_folder_is_no_file(workspace: Path) -> None:
    (workspace / "folder").mkdir()
    guard = PathGuard(workspace)
    path = guard.resolve_write("folder")

    for act in (guard.open_read, guard.remove, lambda path: guard.write_atomic(path, b"")):
        with pytest.raises(ToolInputError, match="it is a folder"):
            act(path)


def test_file_is_no_folder(workspace: Path) -> None:
    (workspace / "file").write_text("")
    guard = PathGuard(workspace)

    with pytest.raises(ToolInputError, match="no folder"):
        guard.write_atomic(guard.resolve_write("file/below.txt"), b"")
    with (
        pytest.raises(ToolInputError, match="no folder"),
        guard.open_directory(workspace / "file"),
    ):
        pass


def test_opened_folder_lists_its_entries(workspace: Path) -> None:
    (workspace / "a").write_text("")
    guard = PathGuard(workspace)

    with guard.open_directory(workspace) as handle, os.scandir(handle) as entries:
        assert [entry.name for entry in entries] == ["a"]


def test_root_folder_can_be_opened_when_unrestricted(workspace: Path) -> None:
    with PathGuard(workspace, read_roots=[Path("/")]).open_directory(Path("/")) as handle:
        assert os.path.samestat(os.fstat(handle), Path("/").stat())


def test_closed_folder_leaves_no_descriptor(workspace: Path) -> None:
    guard = PathGuard(workspace)
    with guard.open_directory(workspace) as first:
        pass
    with guard.open_directory(workspace) as second:
        pass

    assert first == second


def test_write_makes_folders_and_content(workspace: Path) -> None:
    guard = PathGuard(workspace)

    guard.write_atomic(guard.resolve_write("a/b/c.txt"), b"content")

    assert (workspace / "a/b/c.txt").read_bytes() == b"content"
    assert [path.name for path in (workspace / "a/b").iterdir()] == ["c.txt"]


def test_write_keeps_the_mode_and_drops_setuid(workspace: Path) -> None:
    script = workspace / "run.sh"
    script.write_text("old")
    script.chmod(0o4754)

    PathGuard(workspace).write_atomic(script, b"new")

    assert stat.S_IMODE(script.stat().st_mode) == 0o754
    assert script.read_bytes() == b"new"


def test_write_takes_the_mode_it_is_given(workspace: Path) -> None:
    PathGuard(workspace).write_atomic(workspace / "run.sh", b"", mode=0o750)

    assert stat.S_IMODE((workspace / "run.sh").stat().st_mode) == 0o750


def test_new_file_follows_the_umask(workspace: Path) -> None:
    former = os.umask(0o027)
    try:
        PathGuard(workspace).write_atomic(workspace / "new.txt", b"")
    finally:
        os.umask(former)

    assert stat.S_IMODE((workspace / "new.txt").stat().st_mode) == 0o640


def test_failed_write_leaves_the_former_content_and_nothing_else(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (workspace / "a.txt").write_text("former")

    def full(_handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ToolFailed, match="No space left"):
        PathGuard(workspace).write_atomic(workspace / "a.txt", b"new")

    assert (workspace / "a.txt").read_text() == "former"
    assert [path.name for path in workspace.iterdir()] == ["a.txt"]


def test_read_only_file_is_not_replaced(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (workspace / "a.txt").write_text("former")
    # The tests may run as root, whom no permission stops.
    monkeypatch.setattr(os, "access", lambda *_args, **_options: False)

    with pytest.raises(ToolInputError, match="does not permit"):
        PathGuard(workspace).write_atomic(workspace / "a.txt", b"new")

    assert (workspace / "a.txt").read_text() == "former"


def test_remove_takes_the_file_away(workspace: Path) -> None:
    (workspace / "a.txt").write_text("")

    PathGuard(workspace).remove(workspace / "a.txt")

    assert not (workspace / "a.txt").exists()


@given(st.binary(max_size=2_000))
def test_what_is_written_is_read_again(
    tmp_path_factory: pytest.TempPathFactory, data: bytes
) -> None:
    guard = PathGuard(tmp_path_factory.mktemp("w"))
    path = guard.resolve_write("file")

    guard.write_atomic(path, data)

    with guard.open_read(path) as file:
        assert file.read() == data


@given(st.text(max_size=60))
def test_any_text_is_resolved_inside_or_refused(
    tmp_path_factory: pytest.TempPathFactory, text: str
) -> None:
    workspace = tmp_path_factory.getbasetemp().resolve()

    try:
        path = PathGuard(workspace).resolve_read(text)
    except (ToolDenied, ToolInputError):
        return
    assert path.is_relative_to(workspace)
