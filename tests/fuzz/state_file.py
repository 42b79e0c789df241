"""Small files of state in JSON: read, or reported as damaged, whatever they hold."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from nanobot_core.agent.always import AlwaysAllowed
from nanobot_core.app import approvals, owner
from nanobot_core.bus.entry import decode_inbound, decode_outbound, encode_inbound, encode_outbound
from nanobot_core.channels.pairing import _parse_book, _valid
from nanobot_core.testing import FakeClock
from tests.fuzz.choices import Choices, damaged, fresh_folder

TOKENS: Final = (
    b"null",
    b"true",
    b"[]",
    b"{}",
    b'""',
    b"[" * 2000,
    b"1e999",
    b"9" * 5000,
    b"\\ud800",
)


def fuzz_one(data: bytes) -> None:
    """Damage one of the files and read it."""
    choices = Choices(data)
    base, read = _READERS[choices.byte() % len(_READERS)]
    content = choices.rest() if choices.byte() & 1 else damaged(base, choices)
    with fresh_folder() as folder:
        path = folder / "state.json"
        path.write_bytes(content)
        read(path)


def seeds() -> Iterator[bytes]:
    """Yield each file as it is written, and one that is nested too deeply."""
    for number, (base, _) in enumerate(_READERS):
        yield bytes([number, 1]) + base
        yield bytes([number, 1]) + b"[" * 3000
        yield bytes([number, 1]) + b'{"a":' * 700


def _read_questions(path: Path) -> None:
    for question in approvals._read(path).values():
        assert isinstance(question.id, str)
        assert question.allowed in (None, True, False)
        assert question.expires_at.tzinfo is not None


def _read_book(path: Path) -> None:
    with suppress(ValueError):
        _valid(_parse_book(path.read_bytes()), FakeClock().now())


def _read_message(path: Path) -> None:
    text = path.read_text("utf-8", "replace")
    with suppress(ValueError):
        inbound = decode_inbound(text)
        assert decode_inbound(encode_inbound(inbound)) == inbound
    with suppress(ValueError):
        outbound = decode_outbound(text)
        assert decode_outbound(encode_outbound(outbound)) == outbound


_READERS: Final[list[tuple[bytes, Callable[[Path], object]]]] = [
    (b'["telegram", "1"]', owner._read),
    (b'[{"tool": "exec", "subject": "ls -la"}]', lambda path: AlwaysAllowed(path).read()),
    (
        (
            b'{"approved": {"telegram": {"1": "Ann"}}, "pending": [{"channel": "telegram",'
            b' "sender_id": "2", "chat_id": "2", "code": "ABCD",'
            b' "expires_at": "2026-01-01T00:00:00+00:00"}]}'
        ),
        _read_book,
    ),
    (
        (
            b'{"channel":"test","sender_id":"a","chat_id":"b","content":"c","metadata":{"a":[1]},'
            b'"timestamp":"2026-01-01T00:00:00+00:00","buttons":[[["x","y"]]],"media":["z"]}'
        ),
        _read_message,
    ),
    (
        (
            b'[{"id": "q1", "session_key": "cli:direct", "call_id": "c1", "content": "exec ls",'
            b' "expires_at": "2026-01-01T00:00:00+00:00", "allowed": true, "by": "Ann"}]'
        ),
        _read_questions,
    ),
]
