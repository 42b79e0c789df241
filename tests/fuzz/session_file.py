"""Session files: whatever happened to one, what is intact in it survives, in order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Final

from nanobot_core.contracts.store import Checkpoint, SessionState, StoredSession
from nanobot_core.messages import ImageBlock, Message, TextBlock, ToolCall
from nanobot_core.sessions.folder import SessionFolder, file_name
from nanobot_core.sessions.history import align, resume
from nanobot_core.sessions.records import Header, decode_line, encode_record
from nanobot_core.sessions.transcript import SessionFile
from tests.fuzz.choices import Choices, damaged, fresh_folder
from tests.reliability.test_histories import assert_legal

KEY: Final = "cli:direct"
NAME: Final = file_name(KEY)
START: Final = datetime(2026, 1, 1, tzinfo=UTC)
ALL: Final = 10_000
TOKENS: Final = (
    b'{"role": "user", "content": "', b'"}\n', b'{"_type": "metadata"', b'"message_count": ',
    b'"last_consolidated": ', b'"created_at": "', b'"updated_at": "', b'"metadata": {', b"1e999",
    b'"tool_calls": [{', b'"tool_call_id": ', b'"timestamp": "', b'"runtime_checkpoint": {',
    b"0001-01-01T00:00:00+14:00", b"9999-12-31T23:59:59", b"\\ud800", b"\xed\xa0\x80",
)  # fmt: skip


def fuzz_one(data: bytes) -> None:
    """Damage a session file, then load it, go on with it and compact it."""
    choices = Choices(data)
    base = choices.byte()
    content = choices.rest() if base == 0 else damaged(_BASES[base % len(_BASES)], choices)
    with fresh_folder() as folder:
        files = SessionFolder(folder, fsync=False)
        (folder / NAME).write_bytes(content)
        # The end alone first, as a turn loads it.
        end = _load(files, 2) if base >= 128 else None
        session = _load(files, ALL)
        if session is None:
            assert not content
            return
        stored = _stored(files)
        _check_kept(content, stored, session.messages)
        is_reported = session.repaired or (end and end.repaired)
        assert is_reported or session.state.last_consolidated or not _has_damage(content)
        _check_usable(session)
        assert _load(files, ALL) == _as_read_again(session)
        _check_going_on(files, session, stored)
        files.summaries()


def seeds() -> Iterator[bytes]:
    """Yield one run for each file to begin with, and some kinds of damage."""
    for number, base in enumerate(_BASES):
        yield bytes([number + 1]) + b"\x04\x20\x01\x07"
        yield b"\x00" + base
    yield b"\x00" + encode_record(Message(role="user", content="hello"))[:-9]
    yield b'\x00{"role": "user", "content": "a"}{"role": "user", "content": "b"}\n'


def _load(files: SessionFolder, count: int) -> StoredSession | None:
    return SessionFile(files, NAME, KEY, START).load(count)


def _stored(files: SessionFolder) -> list[Message]:
    records = SessionFile(files, NAME, KEY, START).read()
    return [record for record, _ in records if isinstance(record, Message)]


def _has_damage(content: bytes) -> bool:
    return None in _records(content)


def _records(content: bytes) -> list[Message | Header | None]:
    return [decode_line(line, START) for line in content.split(b"\n") if line.strip()]


def _check_kept(content: bytes, stored: list[Message], loaded: Sequence[Message]) -> None:
    """Whole lines are kept in their order, and the newest of them are loaded."""
    left = iter(stored)
    for record in _records(content):
        if isinstance(record, Message):
            assert any(record == one for one in left), "an intact message is lost or displaced"
    assert list(loaded) == stored[len(stored) - len(loaded) :]


def _check_usable(session: StoredSession) -> None:
    history = align(session.messages)
    assert_legal(history)
    assert align(history) == history
    texts = [message.text for message in history if message.role == "user"]
    for message in session.messages:
        if message.role == "user" and message.text.strip():
            assert any(message.text in text for text in texts)
        if message.inbound_id is not None:
            resume(session, message.inbound_id, lambda call: call.name == "look")


def _check_going_on(files: SessionFolder, session: StoredSession, stored: list[Message]) -> None:
    file = SessionFile(files, NAME, KEY, START)
    file.load(ALL)
    file._compact_from_bytes = 0
    expected = list(stored)
    for number in range(4):
        added = Message(role="user", content=f"and now {number}?")
        file.append([added] if number % 2 else [], session.state)
        expected += [added] if number % 2 else []
    again = _load(files, ALL)
    assert again is not None
    assert again.repaired == ()
    assert again.state == session.state
    assert _stored(files) == expected
    assert again.first_index == session.first_index
    assert again.messages[: len(session.messages)] == session.messages


def _as_read_again(session: StoredSession) -> StoredSession:
    return StoredSession(
        key=session.key,
        state=session.state,
        messages=session.messages,
        first_index=session.first_index,
    )


def _file(records: Sequence[Message | Header]) -> bytes:
    return b"".join(map(encode_record, records))


def _header(count: int | None, consolidated: int = 0, *, running: bool = False) -> Header:
    checkpoint = Checkpoint(turn_id="t", inbound_id="i1", iteration=1, running=("c1",))
    state = SessionState(
        created_at=START,
        updated_at=START,
        last_consolidated=consolidated,
        checkpoint=checkpoint if running else None,
        metadata={"title": "Zoë"},
    )
    return Header(key=KEY, state=state, message_count=count)


_CALL: Final = ToolCall("c1", "look", {"at": {"role": "user", "n": 1}})
_TURN: Final = [
    Message(role="user", content='say "a\\b"\n🙂', inbound_id="i1", timestamp=START),
    Message(role="assistant", tool_calls=(_CALL,), reasoning="hm"),
    Message(role="tool", content="seen", tool_call_id="c1", name="look", is_error=True),
    Message(role="assistant", content="done"),
    Message(role="user", content=(TextBlock("see"), ImageBlock("image/png", "", "a.png"))),
]
_BASES: Final = [
    _file([_header(0), *_TURN, _header(5)]),
    _file([_header(0), *_TURN[:2], _header(2, running=True)]),
    _file([_header(0), *_TURN[:3], _header(3, 2), *_TURN[3:], _header(5, 2)]),
    _file([_header(None), *_TURN]),
    b"",
]
