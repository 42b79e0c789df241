"""The JSONL store beyond the contract: cost, damage, failing disks, files of the original."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

import pytest

from nanobot_core.contracts.store import SessionState, SessionStore
from nanobot_core.errors import SessionError
from nanobot_core.messages import JsonObject, Message, ToolCall
from nanobot_core.sessions import jsonl, transcript
from nanobot_core.sessions.folder import file_name
from nanobot_core.sessions.history import OUTCOME_UNKNOWN, align
from nanobot_core.sessions.jsonl import JsonlSessionStore
from nanobot_core.testing.session_store import SessionStoreContract

START = datetime(2026, 1, 1, tzinfo=UTC)
STATE = SessionState(created_at=START, updated_at=START)
KEY = "cli:direct"
ALL = 1_000_000


class TestJsonlSessionStore(SessionStoreContract):
    def store(self, tmp_path: Path) -> SessionStore:
        return JsonlSessionStore(tmp_path)


def path_in(folder: Path) -> Path:
    return folder / file_name(KEY)


def user(text: str) -> Message:
    return Message(role="user", content=text)


async def texts(store: SessionStore, key: str = KEY) -> list[str]:
    return [message.text async for message in store.read(key)]


async def stored(folder: Path, *contents: str) -> Path:
    await JsonlSessionStore(folder).append(KEY, [user(text) for text in contents], STATE)
    return path_in(folder)


def bytes_of(operation: str) -> int:
    """Bytes that this process has read (``rchar``) or written (``wchar``) through system calls."""
    lines = Path("/proc/self/io").read_text(encoding="ascii").splitlines()
    return int(dict(line.split(": ") for line in lines)[operation])


def history_file(folder: Path, count: int) -> None:
    header = {
        "_type": "metadata",
        "key": KEY,
        "created_at": START.isoformat(),
        "updated_at": START.isoformat(),
        "message_count": 0,
    }
    line = json.dumps({"role": "user", "content": "x" * 1000}) + "\n"
    with path_in(folder).open("w", encoding="utf-8") as file:
        file.write(json.dumps(header) + "\n")
        for _ in range(count):
            file.write(line)
        file.write(json.dumps({**header, "message_count": count}) + "\n")


@pytest.mark.anyio
@pytest.mark.skipif(sys.platform != "linux", reason="counts bytes in /proc")
async def test_load_and_append_cost_the_same_however_long_the_session_is(tmp_path: Path) -> None:
    read, written = set(), set()
    for count in (100, 1_000, 10_000, 100_000):
        history_file(tmp_path, count)
        store = JsonlSessionStore(tmp_path)
        before = bytes_of("rchar")
        session = await store.load(KEY, 50)
        read.add((bytes_of("rchar") - before) // 10_000)
        assert session is not None
        assert (len(session.messages), session.first_index) == (50, count - 50)
        before = bytes_of("wchar")
        await store.append(KEY, [user("y")], STATE)
        written.add((bytes_of("wchar") - before) // 100)
        assert path_in(tmp_path).stat().st_size > count * 1000
    assert len(read) == 1
    assert len(written) == 1


@pytest.mark.anyio
async def test_a_file_of_the_original_loads_unchanged_and_is_extended(tmp_path: Path) -> None:
    path = tmp_path / "telegram_12345.jsonl"
    lines = [
        {
            "_type": "metadata",
            "key": "telegram:12345",
            "created_at": "2026-02-03T04:05:06.789",
            "updated_at": "2026-02-03T04:06:06",
            "metadata": {"title": "t"},
            "last_consolidated": 1,
        },
        {"role": "user", "content": "old", "timestamp": "2026-02-03T04:05:06"},
        {"role": "user", "content": "read", "timestamp": "2026-02-03T04:05:07"},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}
            ],
        },
        {"role": "tool", "tool_call_id": "c", "name": "f", "content": "done"},
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    before = path.read_bytes()
    session = await JsonlSessionStore(tmp_path).load("telegram:12345", ALL)
    assert session is not None
    assert (session.repaired, session.first_index) == ((), 1)
    assert session.state.metadata == {"title": "t"}
    assert session.state.created_at.tzinfo is not None
    assert session.messages[0].timestamp is not None
    assert session.messages[0].timestamp.tzinfo is not None
    assert session.messages[1].tool_calls == (ToolCall("c", "f", {"a": 1}),)
    assert path.read_bytes() == before

    store = JsonlSessionStore(tmp_path)
    await store.append("telegram:12345", [user("new")], session.state)
    assert path.read_bytes().startswith(before)
    again = await JsonlSessionStore(tmp_path).load("telegram:12345", 2)
    assert again is not None
    assert (again.messages[-1].text, again.first_index) == ("new", 3)
    assert [one.key for one in await store.summaries()] == ["telegram:12345"]


@pytest.mark.anyio
@pytest.mark.skipif(sys.platform != "linux", reason="counts bytes in /proc")
async def test_unchanged_metadata_is_not_written_with_each_message(tmp_path: Path) -> None:
    notes: JsonObject = {"summary": "s" * 10_000}
    store, state = JsonlSessionStore(tmp_path), replace(STATE, metadata=notes)
    for number in range(200):
        await store.append(KEY, [user(str(number))], state)
    assert path_in(tmp_path).stat().st_size < 200 * 500 + 7 * 10_000
    again = await JsonlSessionStore(tmp_path).load(KEY, 3)
    assert again is not None
    assert (again.state.metadata, again.first_index) == (notes, 197)
    await store.append(KEY, [user("x" * 1_000)] * 1_000, state)
    before = bytes_of("rchar")
    assert await JsonlSessionStore(tmp_path).load(KEY, 3) is not None
    assert bytes_of("rchar") - before < 200_000
    changed = replace(STATE, metadata={"summary": "new"})
    await store.append(KEY, [user("x")], changed)
    await store.append(KEY, [user("y")], changed)
    latest = await JsonlSessionStore(tmp_path).load(KEY, 1)
    assert latest is not None
    assert latest.state.metadata == {"summary": "new"}


@pytest.mark.anyio
async def test_damage_to_the_line_with_the_metadata_costs_only_that_change(tmp_path: Path) -> None:
    store = JsonlSessionStore(tmp_path)
    for notes in ("old", "old", "new", "new"):
        await store.append(KEY, [user(notes)], replace(STATE, metadata={"title": notes}))
    path = path_in(tmp_path)
    assert path.read_bytes().count(b'"metadata": null') == 2
    path.write_bytes(path.read_bytes().replace(b'{"title": "new"}', b'{"title" "new"}'))
    session = await JsonlSessionStore(tmp_path).load(KEY, ALL)
    assert session is not None
    assert session.state.metadata == {"title": "old"}
    assert [message.text for message in session.messages] == ["old", "old", "new", "new"]
    assert session.repaired


@pytest.mark.anyio
async def test_a_name_of_the_original_is_not_taken_for_another_key(tmp_path: Path) -> None:
    (tmp_path / "a_b.jsonl").write_text(
        '{"_type":"metadata","key":"a:b"}\n{"role":"user","content":"x"}\n'
    )
    store = JsonlSessionStore(tmp_path)
    assert await store.load("a_b", ALL) is None
    await store.append("a_b", [user("y")], STATE)
    assert await texts(store, "a:b") == ["x"]
    assert await texts(store, "a_b") == ["y"]


@pytest.mark.anyio
async def test_a_session_of_the_legacy_folder_moves_once(tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    old.mkdir()
    (old / "cli_direct.jsonl").write_text(
        '{"_type":"metadata","key":"cli:direct"}\n{"role":"user","content":"x"}\n'
    )
    store = JsonlSessionStore(new, legacy_folders=[old])
    assert [one.key for one in await store.summaries()] == [KEY]
    assert await texts(store) == ["x"]
    assert list(old.iterdir()) == []
    assert [path.name for path in new.iterdir()] == [file_name(KEY)]
    await store.append(KEY, [user("y")], STATE)
    assert await texts(JsonlSessionStore(new, legacy_folders=[old])) == ["x", "y"]


@pytest.mark.anyio
async def test_a_session_whose_first_line_is_unreadable_is_listed_by_its_file(
    tmp_path: Path,
) -> None:
    (tmp_path / "cli_x.jsonl").write_text("?\n")
    (tmp_path / "empty.jsonl").write_text("")
    assert [one.key for one in await JsonlSessionStore(tmp_path).summaries()] == ["cli:x"]


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("end", "kept", "told"),
    [
        (b'{"role": "user", "content": "hel', ["a", "hel"], 1),
        (b'{"role": "user", "content": "caf\\u00e', ["a", "caf\\u00e"], 1),
        (b'{"role": "user", "conte', ["a"], 1),
        (b'{"role": "user", "content": "whole"}', ["a", "whole"], 0),
        (b"\0\0\0\0", ["a"], 1),
    ],
)
async def test_a_torn_last_line_gives_its_text_and_is_repaired_once(
    tmp_path: Path, end: bytes, kept: list[str], told: int
) -> None:
    path = await stored(tmp_path, "a")
    with path.open("ab") as file:
        file.write(end)
    store = JsonlSessionStore(tmp_path)
    session = await store.load(KEY, ALL)
    assert session is not None
    assert [message.text for message in session.messages] == kept
    assert len(session.repaired) == told
    await store.append(KEY, [user("z")], STATE)
    again = await JsonlSessionStore(tmp_path).load(KEY, ALL)
    assert again is not None
    assert again.repaired == ()
    assert [message.text for message in again.messages] == [*kept, "z"]
    assert [one.name for one in tmp_path.iterdir()] == [path.name]


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("damaged", "kept"),
    [
        (b"garbage", []),
        (b'{"role": "user", "content": "bad \\x escape"}', ["bad \\x escape"]),
        (b'{"role": "user", "content": "half{"role": "user", "content": "next"}', ["half", "next"]),
        (b'\0\0\0{"role": "user", "content": "after"}', ["after"]),
        (b'{"role": "user", "content": "byte \xff"}', ["byte \ufffd"]),
        (b'{"role": "user", "content": [{"text": 1]}', []),
        (b'{"content": "nobody said this"}', []),
        (b'{"role": "us', []),
    ],
)
async def test_a_damaged_line_in_the_middle_is_repaired_and_the_file_kept_aside(
    tmp_path: Path, damaged: bytes, kept: list[str]
) -> None:
    path = await stored(tmp_path, "a", "b")
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([lines[0], lines[1], damaged + b"\n", lines[2]]))
    former = path.read_bytes()
    assert await texts(JsonlSessionStore(tmp_path)) == ["a", *kept, "b"]
    assert path.read_bytes() == former

    session = await JsonlSessionStore(tmp_path).load(KEY, ALL)
    assert session is not None
    assert [message.text for message in session.messages] == ["a", *kept, "b"]
    assert len(session.repaired) == 1
    aside = tmp_path / f"{path.name}.corrupt-1"
    assert aside.read_bytes() == former
    assert aside.name in session.repaired[0]
    again = await JsonlSessionStore(tmp_path).load(KEY, ALL)
    assert again is not None
    assert (again.repaired, again.messages) == ((), session.messages)

    path.write_bytes(former)
    store = JsonlSessionStore(tmp_path)
    await store.append(KEY, [user("c")], STATE)
    assert await texts(store) == ["a", *kept, "b", "c"]
    assert await store.delete(KEY)
    assert [one.name for one in tmp_path.iterdir()] == []


@pytest.mark.anyio
async def test_lost_lines_never_hide_a_message_that_is_not_consolidated(tmp_path: Path) -> None:
    store = JsonlSessionStore(tmp_path)
    await store.append(KEY, [user(str(number)) for number in range(10)], STATE)
    state = SessionState(created_at=START, updated_at=START, last_consolidated=8)
    await store.append(KEY, [], state)
    path = path_in(tmp_path)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:1] + lines[6:]))
    # Little is read, and what is read fits: nothing is repaired before more is asked for.
    newest = await JsonlSessionStore(tmp_path).load(KEY, 1)
    assert newest is not None
    assert [message.text for message in newest.messages] == ["9"]
    path.write_bytes(b"".join([*lines[6:-1], lines[-1]]))
    path.write_bytes(path.read_bytes() + b"?\n")
    session = await JsonlSessionStore(tmp_path).load(KEY, ALL)
    assert session is not None
    assert [message.text for message in session.messages] == ["8", "9"]
    assert session.state.last_consolidated == 3


@pytest.mark.anyio
async def test_a_file_without_any_state_gets_one(tmp_path: Path) -> None:
    path_in(tmp_path).write_bytes(
        b'{"role": "user", "content": "a"}\n{"role": "user", "content": "b'
    )
    session = await JsonlSessionStore(tmp_path).load(KEY, ALL)
    assert session is not None
    assert [message.text for message in session.messages] == ["a", "b"]
    path_in(tmp_path).write_bytes(b'{"role": "user", "content": "b')
    session = await JsonlSessionStore(tmp_path).load(KEY, ALL)
    assert session is not None
    assert [message.text for message in session.messages] == ["b"]


@pytest.mark.anyio
async def test_superseded_states_are_left_behind_and_nothing_else_changes(tmp_path: Path) -> None:
    store = JsonlSessionStore(tmp_path, fsync=False)
    sizes = []
    for number in range(60):
        large = replace(STATE, metadata={"notes": f"{number:06}" * 17_000})
        await store.append(KEY, [user(str(number))], large)
        sizes.append(path_in(tmp_path).stat().st_size)
    assert max(sizes) < 3_000_000
    assert sum(later < earlier for earlier, later in pairwise(sizes)) < 10
    session = await JsonlSessionStore(tmp_path).load(KEY, 5)
    assert session is not None
    assert (session.repaired, session.first_index, session.state) == ((), 55, large)
    assert await texts(store) == [str(number) for number in range(60)]
    assert [one.name for one in tmp_path.iterdir()] == [path_in(tmp_path).name]


@pytest.mark.anyio
async def test_a_file_with_a_damaged_old_line_is_not_compacted(tmp_path: Path) -> None:
    """Guards against a silent loss: loading does not read what memory has taken up."""
    path = await stored(tmp_path, *map(str, range(40)))
    state = SessionState(
        created_at=START,
        updated_at=START,
        last_consolidated=35,
        metadata={"notes": "n" * 500_000},
    )
    await JsonlSessionStore(tmp_path, fsync=False).append(KEY, [], state)
    lines = path.read_bytes().splitlines(keepends=True)
    lines[2] = b"#" + lines[2]
    path.write_bytes(b"".join(lines))
    store = JsonlSessionStore(tmp_path, fsync=False)
    for number in range(6):
        state = replace(state, metadata={"notes": f"{number:06}" * 83_000})
        await store.append(KEY, [user(f"later {number}")], state)
    assert lines[2] in path.read_bytes()
    session = await JsonlSessionStore(tmp_path, fsync=False).load(KEY, 8)
    assert session is not None
    assert session.first_index == 38
    assert [message.text for message in session.messages][-6:] == [f"later {n}" for n in range(6)]


@pytest.mark.anyio
@pytest.mark.parametrize(
    "line",
    [
        '{{"role": "user", "content": "hi", "x": {}}}\n',
        '{{"role": "user", "content": "hi", "x": {}}}{{"role": "user"}}\n',
        '{{"_type": "metadata", "metadata": {{"x": {}}}}}\n{{"role": "user", "content": "hi"}}\n',
    ],
)
async def test_lines_that_can_be_read_and_not_written_are_damage(tmp_path: Path, line: str) -> None:
    """Guards against a RecursionError each time that the session is loaded or written."""
    for depth in range(950, 1000, 3):
        folder = tmp_path / str(depth)
        folder.mkdir()
        path_in(folder).write_text(line.format("[" * depth + "]" * depth), "utf-8")
        store = JsonlSessionStore(folder, fsync=False)
        session = await store.load(KEY, 10)
        assert session is not None
        await store.append(KEY, [user("ho")], session.state)
        again = await JsonlSessionStore(folder, fsync=False).load(KEY, 10)
        assert again is not None
        assert [one.text for one in again.messages if one.text] == ["hi", "ho"]
        assert again.repaired == ()


@pytest.mark.anyio
async def test_failing_compaction_does_not_fail_the_append(
    tmp_path: Path,
) -> None:
    store = JsonlSessionStore(tmp_path, fsync=False)
    (tmp_path / (file_name(KEY) + ".tmp")).mkdir(parents=True)
    for number in range(6):
        large = replace(STATE, metadata={"notes": f"{number:06}" * 83_000})
        await store.append(KEY, [user(str(number))], large)
    assert await texts(store) == [str(number) for number in range(6)]


@pytest.mark.anyio
async def test_a_cancelled_append_is_finished_before_the_next_begins(tmp_path: Path) -> None:
    store = JsonlSessionStore(tmp_path)
    async with asyncio.timeout(5):
        async with asyncio.TaskGroup() as tasks:
            first = tasks.create_task(store.append(KEY, [user("first")], STATE))
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            first.cancel()
            await store.append(KEY, [user("second")], STATE)
        assert first.cancelled()
        session = await JsonlSessionStore(tmp_path).load(KEY, ALL)
    assert session is not None
    assert session.repaired == ()
    assert [message.text for message in session.messages][-1] == "second"


@pytest.mark.anyio
async def test_a_transcript_may_be_read_while_it_grows(tmp_path: Path) -> None:
    store = JsonlSessionStore(tmp_path, fsync=False)
    await store.append(KEY, [user(str(number)) for number in range(600)], STATE)
    seen: list[str] = []
    async for message in store.read(KEY):
        if not seen:
            await store.append(KEY, [user("late")], STATE)
        seen.append(message.text)
    assert seen == [str(number) for number in range(600)]


@pytest.mark.anyio
async def test_a_medium_that_fails_is_a_session_error(tmp_path: Path) -> None:
    folder = tmp_path / "file"
    folder.write_text("no folder")
    store = JsonlSessionStore(folder)
    with pytest.raises(SessionError, match="cli:direct"):
        await store.append(KEY, [user("a")], STATE)
    path_in(tmp_path).mkdir()
    with pytest.raises(SessionError, match="not a regular file"):
        await texts(JsonlSessionStore(tmp_path))


@pytest.mark.anyio
async def test_what_is_not_plain_data_is_refused_and_nothing_is_stored(tmp_path: Path) -> None:
    store = JsonlSessionStore(tmp_path)
    await store.append(KEY, [user("a")], STATE)
    odd = Message(role="user", content="b", extra={"x": float("nan")})
    with pytest.raises(SessionError, match="plain data"):
        await store.append(KEY, [user("b"), odd], STATE)
    await store.append(KEY, [user("c")], STATE)
    session = await store.load(KEY, ALL)
    assert session is not None
    assert [message.text for message in session.messages] == ["a", "c"]
    assert session.repaired == ()


@pytest.mark.anyio
async def test_a_transcript_that_becomes_unreadable_is_a_session_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = JsonlSessionStore(tmp_path, fsync=False)
    await store.append(KEY, [user(str(number)) for number in range(600)], STATE)
    seen: list[str] = []

    def fail(line: bytes, default_time: datetime) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    async def read_on() -> None:
        async for message in store.read(KEY):
            seen.append(message.text)
            monkeypatch.setattr(transcript, "decode_line", fail)

    with pytest.raises(SessionError, match="read"):
        await read_on()
    assert len(seen) < 600


@pytest.mark.anyio
async def test_files_beyond_those_remembered_are_looked_at_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jsonl, "_KNOWN_FILES", 2)
    store = JsonlSessionStore(tmp_path, fsync=False)
    for _ in range(2):
        for key in ("a", "b", "c"):
            await store.append(key, [user(key)], STATE)
    for key in ("a", "b", "c"):
        session = await store.load(key, ALL)
        assert session is not None
        assert session.repaired == ()
        assert [message.text for message in session.messages] == [key, key]


WRITER = """
import asyncio, resource, signal, sys
from datetime import UTC, datetime
from pathlib import Path
from nanobot_core.contracts.store import SessionState
from nanobot_core.errors import SessionError
from nanobot_core.messages import Message
from nanobot_core.sessions.history import OUTCOME_UNKNOWN, align
from nanobot_core.sessions.jsonl import JsonlSessionStore

async def main(folder, limit):
    store = JsonlSessionStore(Path(folder))
    state = SessionState(created_at=datetime.now(UTC), updated_at=datetime.now(UTC))
    path = next(Path(folder).glob("*.jsonl"))
    former = path.read_bytes()
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
    try:
        await store.append("cli:direct", [Message(role="user", content="x" * 100_000)], state)
    except SessionError as error:
        assert path.read_bytes() == former
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
        await store.append("cli:direct", [Message(role="user", content="room again")], state)
        print("refused:", error)

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
asyncio.run(main(sys.argv[1], int(sys.argv[2])))
"""


@pytest.mark.anyio
@pytest.mark.parametrize("room", [0, 1, 50_000])
async def test_a_full_disk_refuses_the_message_and_leaves_the_file_whole(
    tmp_path: Path, room: int
) -> None:
    path = await stored(tmp_path, "a", "b")
    limit = str(path.stat().st_size + room)
    command = [sys.executable, "-c", WRITER, str(tmp_path), limit]
    done = await asyncio.to_thread(
        subprocess.run, command, capture_output=True, text=True, timeout=30, check=False
    )
    assert done.stdout.startswith("refused: session 'cli:direct'"), done.stderr
    session = await JsonlSessionStore(tmp_path).load(KEY, ALL)
    assert session is not None
    assert session.repaired == ()
    assert [message.text for message in session.messages] == ["a", "b", "room again"]


async def test_progress_of_a_turn_that_nanobot_ai_was_running_is_adopted_once(
    tmp_path: Path,
) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    reply = {"role": "assistant", "content": "I look.", "tool_calls": [call, {**call, "id": "c2"}]}
    result = {"role": "tool", "tool_call_id": "c1", "name": "look", "content": "seen"}
    checkpoint = {
        "phase": "awaiting_tools",
        "iteration": 1,
        "assistant_message": {**reply, "timestamp": "2026-01-01T00:00:01"},
        "completed_tool_results": [result],
        "pending_tool_calls": [{**call, "id": "c2"}],
    }
    header = {
        "_type": "metadata",
        "key": KEY,
        "created_at": "2026-01-01T00:00:00",
        "metadata": {"title": "t", "pending_user_turn": True, "runtime_checkpoint": checkpoint},
    }
    lines = [header, {"role": "user", "content": "look"}, reply]
    path_in(tmp_path).write_text("".join(json.dumps(line) + "\n" for line in lines))
    for _ in range(2):
        session = await JsonlSessionStore(tmp_path).load(KEY, ALL)
        assert session is not None
        assert [message.text for message in session.messages] == ["look", "I look.", "seen"]
        assert (session.state.metadata, session.repaired) == ({"title": "t"}, ())
        assert align(session.messages)[-1].text == OUTCOME_UNKNOWN


@pytest.mark.anyio
async def test_a_store_without_a_way_to_one_session_looks_for_it_among_all(tmp_path: Path) -> None:
    store = JsonlSessionStore(tmp_path)
    await store.append("cli:a", [user("a")], STATE)
    assert await SessionStore.summary(store, "cli:a") == await store.summary("cli:a") is not None
    assert await SessionStore.summary(store, "cli:b") is None
