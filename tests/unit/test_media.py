"""Files that people send: kept whole under safe names, or not at all."""

from __future__ import annotations

import asyncio
import errno
import os
import resource
import stat
import subprocess
import sys
import time
import unicodedata
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import example, given, strategies as st

from nanobot_core.media import MediaStore, MediaTooLarge, safe_name

DAY_S = 86_400


async def pieces(*parts: bytes) -> AsyncIterator[bytes]:
    for part in parts:
        yield part


@pytest.fixture
def store(tmp_path: Path) -> MediaStore:
    return MediaStore(tmp_path / "home" / "media", max_bytes=1_000_000)


def kept(store: MediaStore) -> list[Path]:
    return sorted(store.folder.rglob("*"))


@contextmanager
def largest_file(size: int) -> Iterator[None]:
    """Make the system refuse to write files beyond `size`, as a full disk does."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


async def test_a_file_is_kept_byte_for_byte_under_its_name(store: MediaStore) -> None:
    parts = [os.urandom(size) for size in (1, 0, 300_000, 7, 255_999, 1)]

    path = await store.save("report.pdf", pieces(*parts))

    assert path.read_bytes() == b"".join(parts)
    assert path.name == "report.pdf"
    assert path.is_absolute()
    assert path.parent.parent == store.folder


async def test_a_file_without_content_is_kept_as_such(store: MediaStore) -> None:
    assert (await store.save("empty", pieces())).read_bytes() == b""


async def test_files_of_one_name_do_not_touch_each_other(store: MediaStore) -> None:
    contents = [b"%d" % number * 1_000 for number in range(20)]

    async with asyncio.TaskGroup() as group:
        saves = [group.create_task(store.save("a.txt", pieces(each))) for each in contents]

    paths = [save.result() for save in saves]
    assert len(set(paths)) == len(contents)
    assert [path.read_bytes() for path in paths] == contents
    assert {path.name for path in paths} == {"a.txt"}


async def test_only_the_user_may_read_what_is_kept(store: MediaStore) -> None:
    before = os.umask(0)
    try:
        path = await store.save("a.txt", pieces(b"x"))
    finally:
        os.umask(before)

    modes = [stat.S_IMODE(each.stat().st_mode) for each in (store.folder, path.parent, path)]
    assert modes == [0o700, 0o700, 0o600]


async def test_a_file_of_the_largest_size_is_kept(store: MediaStore) -> None:
    path = await store.save("a", pieces(b"x" * 999_999, b"x"))
    assert path.stat().st_size == 1_000_000


async def test_a_larger_file_is_refused_while_it_comes_and_leaves_nothing(
    store: MediaStore,
) -> None:
    taken = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal taken
        while True:
            taken += 1
            yield b"x" * 300_000

    with pytest.raises(MediaTooLarge, match=r"'big\.bin' is larger than 1,000,000 bytes"):
        await store.save("../big.bin", endless())

    assert taken == 4
    assert kept(store) == []


async def test_a_caller_may_set_another_limit(store: MediaStore) -> None:
    path = await store.save("a", pieces(b"x" * 1_000_001), max_bytes=2_000_000)
    assert path.stat().st_size == 1_000_001
    with pytest.raises(MediaTooLarge):
        await store.save("a", pieces(b"xx"), max_bytes=1)


async def test_a_sender_that_fails_leaves_nothing(store: MediaStore) -> None:
    async def breaking() -> AsyncIterator[bytes]:
        yield b"x" * 300_000
        raise ConnectionResetError

    with pytest.raises(ConnectionResetError):
        await store.save("a", breaking())

    assert kept(store) == []


@pytest.mark.parametrize("size", [100_000, 700_000])
async def test_a_full_disk_is_told_and_leaves_nothing(store: MediaStore, size: int) -> None:
    with largest_file(65_536), pytest.raises(OSError, match="too large") as raised:
        await store.save("a", pieces(b"x" * size))

    assert raised.value.errno == errno.EFBIG
    assert kept(store) == []


async def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "media").write_text("a file is in the way")
    with pytest.raises(OSError, match="media"):
        await MediaStore(tmp_path / "media").save("a", pieces(b"x"))


@pytest.mark.parametrize("passes", range(12))
async def test_a_save_that_is_cancelled_while_it_begins_leaves_nothing(
    store: MediaStore, passes: int
) -> None:
    async with asyncio.TaskGroup() as group:
        save = group.create_task(store.save("a", _held(asyncio.Event())))
        for _ in range(passes):
            await asyncio.sleep(0)
        save.cancel()

    assert save.cancelled()
    assert not store.folder.exists() or kept(store) == []


async def test_a_save_that_is_cancelled_in_the_middle_leaves_nothing(store: MediaStore) -> None:
    reached = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        save = group.create_task(store.save("a", _held(reached)))
        await reached.wait()
        assert kept(store) != []
        save.cancel()

    assert save.cancelled()
    assert kept(store) == []


async def _held(reached: asyncio.Event) -> AsyncIterator[bytes]:
    yield b"x" * 300_000
    reached.set()
    await asyncio.Event().wait()


async def test_a_save_that_is_cancelled_twice_leaves_nothing(store: MediaStore) -> None:
    async with asyncio.TaskGroup() as group:
        save = group.create_task(store.save("a", pieces(b"x" * 900_000)))
        await asyncio.sleep(0)
        for _ in range(100):
            save.cancel()
            await asyncio.sleep(0)

    assert save.cancelled()
    assert not store.folder.exists() or kept(store) == []


def aged(path: Path, days: float) -> Path:
    instant = time.time() - days * DAY_S
    os.utime(path, (instant, instant))
    os.utime(path.parent, (instant, instant))
    return path


async def test_old_files_are_removed_with_their_folders(store: MediaStore) -> None:
    old = aged(await store.save("a.txt", pieces(b"x")), 8)
    young = aged(await store.save("a.txt", pieces(b"x")), 6)

    assert store.remove_older(7) == 1
    assert kept(store) == sorted([young.parent, young])
    assert not old.parent.exists()
    assert store.remove_older(7) == 0


def test_nothing_is_removed_where_nothing_was_kept(store: MediaStore) -> None:
    assert store.remove_older(7) == 0


def test_only_old_empty_folders_are_removed(store: MediaStore) -> None:
    fresh, crashed = store.folder / "fresh", store.folder / "crashed"
    fresh.mkdir(parents=True)
    crashed.mkdir()
    os.utime(crashed, (0, 0))

    assert store.remove_older(1) == 0
    assert kept(store) == [fresh]


async def test_removal_does_not_follow_links(store: MediaStore, tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    outside = aged_file(tmp_path / "outside" / "precious")
    entry = (await store.save("a", pieces(b"x"))).parent
    (store.folder / "link").symlink_to(tmp_path / "outside", target_is_directory=True)
    (entry / "link").symlink_to(outside)
    os.utime(entry / "link", (0, 0), follow_symlinks=False)

    assert store.remove_older(1) == 1
    assert outside.exists()
    assert (entry / "a").exists()


def aged_file(path: Path) -> Path:
    path.write_text("x")
    os.utime(path, (0, 0))
    return path


async def test_a_file_that_cannot_be_removed_stops_nothing(store: MediaStore) -> None:
    stuck = (await store.save("a", pieces(b"x"))).parent
    (stuck / "folder").mkdir()
    os.utime(stuck / "folder", (0, 0))
    others = [aged(await store.save("b", pieces(b"x")), 9) for _ in range(3)]

    assert store.remove_older(1) == len(others)
    assert (stuck / "a").exists()


@pytest.mark.parametrize(
    ("given_name", "expected"),
    [
        ("report.pdf", "report.pdf"),
        ("My Report (final).pdf", "My_Report_final.pdf"),
        ("Отчёт за май.docx", "Отчёт_за_май.docx"),
        ("हिन्दी.txt", "हिन्दी.txt"),
        ("e\u0301te\u0301.txt", "été.txt"),
        ("../../etc/passwd", "passwd"),
        ("C:\\Users\\me\\a.txt", "a.txt"),
        ("folder/", "folder"),
        ("..", "file"),
        ("", "file"),
        ("\0\n\r", "file"),
        ("🎉", "file"),
        ("🎉.png", "file.png"),
        (".bashrc", "file.bashrc"),
        ("-rf", "rf"),
        ("$(reboot).sh", "reboot.sh"),
        ("archive.tar.gz", "archive.tar.gz"),
        ("README", "README"),
        ("a.this-is-no-extension", "a.this-is-no-extension"),
        ("gpj\u202e.exe", "gpj.exe"),
        ("a\udcff.txt", "a.txt"),
        ("CON", "_CON"),
        ("nul.tar.gz", "_nul.tar.gz"),
        ("COM1.txt", "_COM1.txt"),
        ("console.log", "console.log"),
        ("x" * 500 + ".jpeg", "x" * 80 + ".jpeg"),
        ("語" * 500 + ".jpeg", "語" * 60 + ".jpeg"),
        ("a / b.txt", "b.txt"),
        ("file.", "file"),
    ],
)
def test_names_are_made_safe_and_stay_readable(given_name: str, expected: str) -> None:
    assert safe_name(given_name) == expected


ODD = st.text(st.sampled_from("aé語ि. /\\-_\0\u202e\udcff𝒳con~$'\"\n🎉")) | st.text()


@given(ODD)
@example("con")
@example("_con.")
@example("." * 300)
@example("a" * 79 + "..b" + "c" * 200)
def test_every_name_is_one_that_every_file_system_takes(name: str) -> None:
    safe = safe_name(name)

    assert safe == Path(safe).name
    assert safe not in {"", ".", ".."}
    assert not safe.startswith((".", "-"))
    assert not safe.endswith(".")
    assert len(safe) <= 92
    assert len(safe.encode()) <= 221
    assert all(c in "._-" or unicodedata.category(c)[0] in "LMN" for c in safe)
    assert safe_name(safe) == safe


@given(st.text("abcXYZ019_", min_size=1, max_size=60), st.text("abc019", min_size=1, max_size=10))
def test_plain_names_stay_what_they_are(stem: str, extension: str) -> None:
    wanted = f"{stem.strip('_') or 'file'}.{extension}"
    assert safe_name(f"{stem}.{extension}") in {wanted, f"_{wanted}"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("names")


@given(ODD)
def test_every_safe_name_can_be_created(folder: Path, name: str) -> None:
    path = folder / safe_name(name)
    path.write_bytes(b"x")
    path.unlink()


async def test_a_killed_process_leaves_at_most_what_removal_finds(tmp_path: Path) -> None:
    program = (
        "import asyncio, sys\n"
        "from pathlib import Path\n"
        "from nanobot_core.media import MediaStore\n"
        "async def slow():\n"
        "    yield b'x' * 300_000\n"
        "    print('reached', flush=True)\n"
        "    await asyncio.Event().wait()\n"
        "asyncio.run(MediaStore(Path(sys.argv[1])).save('a', slow()))\n"
    )
    store = MediaStore(tmp_path / "media")
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-c", program, str(store.folder), stdout=subprocess.PIPE
    )
    assert child.stdout is not None
    await child.stdout.readline()
    child.kill()
    await child.communicate()

    for path in kept(store):
        os.utime(path, (0, 0))
    assert store.remove_older(1) == 1
    assert kept(store) == []
