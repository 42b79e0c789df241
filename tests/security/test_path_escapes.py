"""Ways out of the workspace that have been tried elsewhere, each refused (security, files)."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from nanobot_core import PathGuard, ToolDenied, ToolError, ToolInputError

CANARY = b"canary-of-the-outside"


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    folder = tmp_path.resolve() / "outside"
    folder.mkdir()
    (folder / "secret.txt").write_bytes(CANARY)
    return folder


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path.resolve() / "workspace"
    (folder / "sub").mkdir(parents=True)
    return folder


@pytest.fixture
def guard(workspace: Path) -> PathGuard:
    return PathGuard(workspace)


@pytest.mark.parametrize(
    "path",
    [
        "..",
        "../outside/secret.txt",
        "sub/../../outside/secret.txt",
        "./././../outside/secret.txt",
        "missing/../../outside/secret.txt",
        "..//outside/./secret.txt",
        "{outside}/secret.txt",
        "/{outside}/secret.txt",
        "//{outside}/secret.txt",
        "{workspace}-other/secret.txt",
        "{workspace}/../outside/secret.txt",
        "~/.ssh/id_ed25519",
        "/etc/shadow",
        "/",
    ],
)
def test_spelling_of_a_path_outside_is_refused(
    guard: PathGuard, workspace: Path, outside: Path, path: str
) -> None:
    text = path.format(outside=outside, workspace=workspace)

    for resolve in (guard.resolve_read, guard.resolve_write):
        with pytest.raises(ToolDenied):
            resolve(text)


@pytest.mark.parametrize(
    "path", ["sub\u2215..\u2215..\u2215outside", "\uff0e\uff0e/outside", "..\\outside", "%2e%2e/x"]
)
def test_look_alikes_of_dots_and_slashes_are_plain_names(
    guard: PathGuard, workspace: Path, path: str
) -> None:
    assert guard.resolve_read(path) == workspace / path


@pytest.mark.parametrize("target", ["secret.txt", ""])
def test_link_to_the_outside_is_refused(
    guard: PathGuard, workspace: Path, outside: Path, target: str
) -> None:
    (workspace / "link").symlink_to(outside / target)
    (workspace / "chain").symlink_to("link")

    for name in ("link", "chain", "link/new.txt", "chain/new.txt"):
        for resolve in (guard.resolve_read, guard.resolve_write):
            with pytest.raises(ToolError):
                guard.write_atomic(resolve(name), b"")
    assert (outside / "secret.txt").read_bytes() == CANARY
    assert not (outside / "new.txt").exists()


def test_link_to_a_missing_place_outside_is_refused(
    guard: PathGuard, workspace: Path, outside: Path
) -> None:
    (workspace / "link").symlink_to(outside / "not-yet")

    with pytest.raises(ToolDenied):
        guard.resolve_write("link")


def test_dots_behind_a_link_are_taken_from_its_target(
    guard: PathGuard, workspace: Path, outside: Path
) -> None:
    (outside / "deep").mkdir()
    (workspace / "link").symlink_to(outside / "deep")

    with pytest.raises(ToolDenied):
        guard.resolve_read("link/../secret.txt")


def test_circle_of_links_is_refused(guard: PathGuard, workspace: Path) -> None:
    (workspace / "a").symlink_to("b")
    (workspace / "b").symlink_to("a")

    with pytest.raises(ToolError):
        guard.open_read(guard.resolve_read("a"))


def test_link_put_in_place_after_the_check_is_not_followed(
    guard: PathGuard, workspace: Path, outside: Path
) -> None:
    checked = [guard.resolve_write(name) for name in ("name", "dir/secret.txt", "sub/new.txt")]
    (workspace / "name").symlink_to(outside / "secret.txt")
    (workspace / "dir").symlink_to(outside)
    (workspace / "sub").rmdir()
    (workspace / "sub").symlink_to(outside)

    for path in checked:
        for act in (guard.open_read, guard.remove, lambda path: guard.write_atomic(path, b"x")):
            with pytest.raises(ToolError):
                act(path)
    with pytest.raises(ToolError), guard.open_directory(workspace / "dir"):
        pass
    assert (outside / "secret.txt").read_bytes() == CANARY
    assert [path.name for path in outside.iterdir()] == ["secret.txt"]


@contextmanager
def _repeating(swap: Callable[[], None]) -> Iterator[None]:
    """Call `swap` over and over in a thread, as another process could."""
    stop = threading.Event()

    def repeat() -> None:
        while not stop.is_set():
            swap()

    thread = threading.Thread(target=repeat)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(5)


def test_reading_while_a_folder_is_swapped_for_a_link_never_reaches_the_outside(
    guard: PathGuard, workspace: Path, outside: Path
) -> None:
    folder, real, link = workspace / "sub", workspace / "real", workspace / "link"
    (folder / "secret.txt").write_bytes(b"inside")
    link.symlink_to(outside)

    def swap() -> None:
        folder.rename(real)
        link.rename(folder)
        folder.rename(link)
        real.rename(folder)

    with _repeating(swap):
        for _ in range(2_000):
            try:
                with guard.open_read(guard.resolve_read("sub/secret.txt")) as file:
                    assert file.read() == b"inside"
            except ToolError:
                continue


def test_writing_while_a_file_is_swapped_for_a_link_never_reaches_the_outside(
    guard: PathGuard, workspace: Path, outside: Path
) -> None:
    name, link, plain = workspace / "name", workspace / "link", workspace / "plain"
    name.write_bytes(b"")

    def swap() -> None:
        link.symlink_to(outside / "secret.txt")
        link.replace(name)
        plain.write_bytes(b"")
        plain.replace(name)

    with _repeating(swap):
        for _ in range(300):
            try:
                guard.write_atomic(guard.resolve_write("name"), b"inside")
            except ToolError:
                continue

    assert (outside / "secret.txt").read_bytes() == CANARY


def test_writing_a_hard_link_leaves_the_other_name_alone(
    guard: PathGuard, workspace: Path, outside: Path
) -> None:
    (workspace / "link.txt").hardlink_to(outside / "secret.txt")

    guard.write_atomic(guard.resolve_write("link.txt"), b"new")

    assert (outside / "secret.txt").read_bytes() == CANARY
    assert (workspace / "link.txt").read_bytes() == b"new"


@pytest.mark.parametrize("restricted", [True, False])
def test_hard_link_to_the_configuration_is_not_read(
    workspace: Path, outside: Path, restricted: bool
) -> None:
    (workspace / "harmless.txt").hardlink_to(outside / "secret.txt")
    guard = PathGuard(
        workspace,
        restricted=restricted,
        protected=[outside / "missing.yaml", outside / "secret.txt"],
    )

    with pytest.raises(ToolDenied, match="nanobot itself"):
        guard.open_read(guard.resolve_read("harmless.txt"))


@pytest.mark.parametrize("restricted", [True, False])
@pytest.mark.parametrize(
    "path",
    [
        "/dev/zero",
        "/dev/random",
        "/dev/stdin",
        "/dev/fd/0",
        "/dev/tty",
        "/proc/self/root/etc/passwd",
        "/proc/self/environ",
        "/proc/self/fd/0",
        "/proc/1/mem",
        "/proc/thread-self/cwd/x",
        "/proc/../proc/self/environ",
        "/sys/kernel/notes",
        "//dev/zero",
    ],
)
def test_devices_and_pseudo_files_are_refused(workspace: Path, path: str, restricted: bool) -> None:
    guard = PathGuard(workspace, restricted=restricted)

    for resolve in (guard.resolve_read, guard.resolve_write):
        with pytest.raises(ToolDenied):
            resolve(path)


def test_link_to_a_device_is_refused_when_unrestricted(workspace: Path) -> None:
    (workspace / "link").symlink_to("/dev/zero")

    with pytest.raises(ToolDenied):
        PathGuard(workspace, restricted=False).resolve_read("link")


def test_fifo_is_refused_without_waiting_for_a_writer(guard: PathGuard, workspace: Path) -> None:
    os.mkfifo(workspace / "fifo")

    for act in (guard.open_read, guard.remove, lambda path: guard.write_atomic(path, b"")):
        with pytest.raises(ToolInputError, match="not a regular file"):
            act(workspace / "fifo")


def test_socket_is_refused(
    guard: PathGuard, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(workspace)  # a socket's path is limited to about 100 characters
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("socket")

        with pytest.raises(ToolError):
            guard.open_read(workspace / "socket")


@pytest.mark.parametrize(
    "path", ["", "  ", "a\0b", "\0", "a" * 256, "é" * 128, "a/" * 2_049, "\ud800"]
)
def test_text_that_is_no_path_is_refused(guard: PathGuard, path: str) -> None:
    for resolve in (guard.resolve_read, guard.resolve_write):
        with pytest.raises(ToolInputError):
            resolve(path)


@pytest.mark.parametrize(
    "path",
    [
        "SESSIONS/a.jsonl",
        "Sessions/a.jsonl",
        "\uff53essions/a.jsonl",
        "se\u200bssions/a.jsonl",
        "\u017fessions/a.jsonl",
        "sessions./a.jsonl",
        "sessions /a.jsonl",
        "memory/.GIT/config",
        "memory/.g\u200cit/config",
        "memory/History.JSONL",
        "sub/../sessions/a.jsonl",
        ".Nanobot/x",
    ],
)
@pytest.mark.parametrize("restricted", [True, False])
def test_other_spellings_of_the_own_records_are_refused(
    workspace: Path, path: str, restricted: bool
) -> None:
    with pytest.raises(ToolDenied):
        PathGuard(workspace, restricted=restricted).resolve_write(path)


def test_link_to_the_own_records_is_refused(guard: PathGuard, workspace: Path) -> None:
    (workspace / "sessions").mkdir()
    (workspace / "notes").symlink_to("sessions")

    with pytest.raises(ToolDenied, match="own records"):
        guard.resolve_write("notes/cli.jsonl")


def test_opening_checks_again_what_was_not_resolved(guard: PathGuard, outside: Path) -> None:
    for act in (guard.open_read, guard.remove, lambda path: guard.write_atomic(path, b"")):
        with pytest.raises(ToolDenied):
            act(outside / "secret.txt")


def test_climbing_path_that_was_not_resolved_is_refused_at_opening(
    workspace: Path, outside: Path
) -> None:
    path = workspace / "sub" / ".." / ".." / "outside" / "secret.txt"

    with pytest.raises(ToolError):
        PathGuard(workspace).open_read(path)
