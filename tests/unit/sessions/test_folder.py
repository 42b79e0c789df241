"""What has the name of a session file and is none: no link is followed, nothing hangs."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import stat
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from nanobot_core.contracts.store import SessionState
from nanobot_core.errors import SessionError
from nanobot_core.messages import Message
from nanobot_core.sessions import transcript
from nanobot_core.sessions.folder import file_name, original_file_names
from nanobot_core.sessions.jsonl import JsonlSessionStore

START = datetime(2026, 1, 1, tzinfo=UTC)
STATE = SessionState(created_at=START, updated_at=START)
KEY = "cli:direct"
ALL = 1_000_000
LINES = '{"_type":"metadata","key":"cli:direct"}\n{"role":"user","content":"mine"}\n'

pytestmark = pytest.mark.anyio


def user(text: str) -> Message:
    return Message(role="user", content=text)


async def texts(store: JsonlSessionStore) -> list[str]:
    return [message.text async for message in store.read(KEY)]


def _link_to_file(place: Path) -> None:
    (place.parent / "secret").write_text(LINES)
    place.symlink_to("secret")


def _link_to_nothing(place: Path) -> None:
    place.symlink_to("absent")


def _link_to_device(place: Path) -> None:
    place.symlink_to("/dev/zero")


def _fifo(place: Path) -> None:
    os.mkfifo(place)


def _socket(place: Path) -> None:
    folder = os.open(place.parent, os.O_RDONLY)  # for an address that is short enough
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(f"/proc/self/fd/{folder}/{place.name}")
    os.close(folder)


def _folder(place: Path) -> None:
    place.mkdir()
    (place / "file").touch()


KINDS = [_link_to_file, _link_to_nothing, _link_to_device, _fifo, _socket, _folder]


@pytest.mark.parametrize("put", KINDS)
@pytest.mark.parametrize("name", [file_name(KEY), *original_file_names(KEY)])
async def test_it_is_set_aside_and_reported_and_the_session_works(
    tmp_path: Path, put: Callable[[Path], None], name: str
) -> None:
    place = tmp_path / name
    put(place)
    outside = {path: path.read_bytes() for path in tmp_path.iterdir() if path.name == "secret"}
    kind = stat.S_IFMT(place.lstat().st_mode)
    store = JsonlSessionStore(tmp_path)
    async with asyncio.timeout(5):
        assert await store.summaries() == []
        if name == file_name(KEY):
            with pytest.raises(SessionError, match="not a regular file"):
                await texts(store)
            session = await store.load(KEY, ALL)
            assert session is not None
            assert session.messages == ()
            (finding,) = session.repaired
            kept = tmp_path / f"{place.name}.corrupt-1"
            assert kept.name in finding
            assert stat.S_IFMT(kept.lstat().st_mode) == kind
        await store.append(KEY, [user("hello")], STATE)
        assert await texts(store) == ["hello"]
        assert (tmp_path / file_name(KEY)).is_file()
        assert await store.delete(KEY)
    assert outside == {path: path.read_bytes() for path in outside}


async def test_a_link_that_takes_a_files_place_is_not_written_through(tmp_path: Path) -> None:
    store = JsonlSessionStore(tmp_path)
    await store.append(KEY, [user("a")], STATE)
    place, target = tmp_path / file_name(KEY), tmp_path / "target"
    target.write_text("keep me")
    place.unlink()
    place.symlink_to(target)
    with pytest.raises(SessionError, match="not a regular file"):
        await store.append(KEY, [user("b")], STATE)
    await store.append(KEY, [user("c")], STATE)
    assert await texts(store) == ["c"]
    assert target.read_text() == "keep me"


async def test_a_link_in_the_place_of_the_temporary_file_is_not_written_through(
    tmp_path: Path,
) -> None:
    place, target = tmp_path / file_name(KEY), tmp_path / "target"
    place.write_text(LINES + "damage\n")
    target.write_text("keep me")
    place.with_name(f"{place.name}.tmp").symlink_to(target)
    assert await JsonlSessionStore(tmp_path).load(KEY, ALL) is not None
    assert target.read_text() == "keep me"
    assert not place.is_symlink()


async def test_a_link_is_not_migrated_and_only_itself_deleted(tmp_path: Path) -> None:
    old, new, target = tmp_path / "old", tmp_path / "new", tmp_path / "target"
    old.mkdir()
    target.write_text(LINES)
    (old / original_file_names(KEY)[0]).symlink_to(target)
    store = JsonlSessionStore(new, legacy_folders=[old])
    assert await store.summaries() == []
    assert await store.load(KEY, ALL) is None
    new.mkdir()
    (new / file_name(KEY)).symlink_to(target)
    assert await store.delete(KEY)
    assert target.read_text() == LINES
    assert list(new.iterdir()) == []


@pytest.fixture
def small_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transcript, "MAX_LINE_BYTES", 256 * 1024)
    monkeypatch.setattr(transcript, "MAX_REPAIR_BYTES", 4 * 1024 * 1024)


@pytest.mark.usefixtures("small_limits")
@pytest.mark.parametrize("end", ["", "\n"])
async def test_a_line_that_is_too_long_is_left_out_and_the_rest_is_kept(
    tmp_path: Path, end: str
) -> None:
    place = tmp_path / file_name(KEY)
    long = json.dumps({"role": "user", "content": "x" * 1_000_000})
    after = '{"role":"user","content":"after"}\n' if end else ""
    place.write_text(LINES + long + end + after)
    former = place.read_bytes()
    store = JsonlSessionStore(tmp_path)
    expected = ["mine", "after"] if end else ["mine"]
    assert await texts(store) == expected
    session = await store.load(KEY, ALL)
    assert session is not None
    assert len(session.repaired) == 1
    assert [message.text for message in session.messages] == expected
    assert (tmp_path / f"{place.name}.corrupt-1").read_bytes() == former


@pytest.mark.usefixtures("small_limits")
async def test_a_line_as_long_as_a_disk_is_not_read_to_its_end(tmp_path: Path) -> None:
    place = tmp_path / file_name(KEY)
    place.write_text(LINES)
    os.truncate(place, 1 << 40)  # takes no room, and hours to read
    store = JsonlSessionStore(tmp_path)
    async with asyncio.timeout(30):
        assert await texts(store) == ["mine"]
        assert [one.key for one in await store.summaries()] == [KEY]
        session = await store.load(KEY, ALL)
        assert session is not None
        assert session.messages == ()
        assert "it is damaged and has 1099511627776 bytes" in session.repaired[0]
        await store.append(KEY, [user("again")], STATE)
    assert await texts(store) == ["again"]
