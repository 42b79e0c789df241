"""Folder: its content never leads out of it, hangs or fills the memory."""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from nanobot_core.folder import Folder, IrregularFile

APPEND = os.O_RDWR | os.O_APPEND | os.O_CREAT


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    folder = tmp_path / "outside"
    folder.mkdir()
    (folder / "key").write_text("canary")
    return folder


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    (tmp_path / "workspace").mkdir()
    return Folder(tmp_path / "workspace")


def _fifo(path: Path) -> None:
    os.mkfifo(path)


def _socket(path: Path) -> None:
    server = socket.socket(socket.AF_UNIX)
    server.bind(str(path))
    server.close()


def _link(path: Path) -> None:
    path.symlink_to("../outside/key")


def _zero(path: Path) -> None:
    path.symlink_to("/dev/zero")


@pytest.mark.parametrize("make", [_fifo, _socket, _link, _zero, Path.mkdir])
@pytest.mark.parametrize(
    "act",
    [
        lambda folder: folder.read("AGENTS.md", 100),
        lambda folder: os.close(folder.open("AGENTS.md", APPEND)),
        lambda folder: folder.replace("AGENTS.md", b"x"),
        lambda folder: folder.remove("AGENTS.md"),
    ],
    ids=["read", "append", "replace", "remove"],
)
def test_only_regular_files_are_used(
    folder: Folder,
    outside: Path,
    make: Callable[[Path], None],
    act: Callable[[Folder], object],
) -> None:
    make(folder.path / "AGENTS.md")

    with pytest.raises(OSError, match=r"AGENTS\.md|Is a directory|symbolic link|regular file"):
        act(folder)
    assert (outside / "key").read_text() == "canary"


@pytest.mark.parametrize(
    "act",
    [
        lambda folder: folder.read("sub/key", 100),
        lambda folder: os.close(folder.open("sub/new", APPEND)),
        lambda folder: folder.replace("sub/new", b"x"),
        lambda folder: folder.remove("sub/key"),
        lambda folder: folder.stat("sub/key"),
        lambda folder: folder.rename("sub/key", "taken"),
        lambda folder: folder.make("sub"),
        lambda folder: folder.make("sub/new"),
        lambda folder: folder.scan("sub"),
    ],
)
def test_a_link_in_place_of_a_folder_is_not_followed(
    folder: Folder, outside: Path, act: Callable[[Folder], object]
) -> None:
    (folder.path / "sub").symlink_to(outside)

    with pytest.raises(OSError, match=r"Not a directory|symbolic links|File exists"):
        act(folder)
    assert [entry.name for entry in outside.iterdir()] == ["key"]


@pytest.mark.parametrize("name", ["../outside/key", "/etc/passwd", "a/../../outside/key"])
def test_names_that_lead_out_are_refused(folder: Folder, outside: Path, name: str) -> None:
    with pytest.raises(OSError, match="does not name a place below the folder"):
        folder.read(name, 100)


def test_a_large_file_is_read_up_to_the_bound(folder: Folder) -> None:
    with (folder.path / "SOUL.md").open("wb") as file:
        file.truncate(1_500_000_000)

    assert folder.read("SOUL.md", 1_000) == bytes(1_000)


def test_files_are_written_and_removed(folder: Folder) -> None:
    folder.replace("a/b/c.txt", b"one", mode=0o600)
    folder.replace("a/b/c.txt", b"two")
    handle = folder.open("a/b/c.txt", APPEND)
    os.write(handle, b" three")
    os.close(handle)

    assert folder.read("a/b/c.txt", 100) == b"two three"
    assert stat.S_IMODE(folder.stat("a/b/c.txt").st_mode) == 0o600
    assert [entry.name for entry in folder.scan("a/b")] == ["c.txt"]
    folder.remove("a/b/c.txt")
    assert folder.scan("a/b") == []


def test_names_of_one_directory_are_looked_up_together(folder: Folder) -> None:
    folder.replace("a/x", b"xyz")
    (folder.path / "a/link").symlink_to("x")
    found = folder.stat_all(["a/x", "a/link", "a/missing"])
    assert found["a/x"].st_size == 3
    assert stat.S_ISLNK(found["a/link"].st_mode)
    assert "a/missing" not in found


def test_no_descriptor_is_left(folder: Folder) -> None:
    folder.make("a")
    before = os.open("/", os.O_RDONLY)
    os.close(before)
    for _ in range(3):
        folder.replace("a/x", b"x")
        folder.scan("a")
        with pytest.raises(FileNotFoundError):
            folder.read("b/x", 1)
        with pytest.raises(IrregularFile):
            folder.read("a", 1)
    after = os.open("/", os.O_RDONLY)
    os.close(after)
    assert after == before
