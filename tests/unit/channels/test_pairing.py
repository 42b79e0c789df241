"""Strangers whom the owner lets in."""

from __future__ import annotations

import secrets
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from loguru import logger

from nanobot_core.channels.pairing import CODE_CHARS, LETTERS, MAX_PENDING, PairingStore
from nanobot_core.testing import FakeClock
from tests.unit.channels.conftest import inbound

pytestmark = pytest.mark.anyio

APPROVER = """
import sys
from pathlib import Path
from nanobot_core.channels.pairing import PairingStore
from nanobot_core.clock import SystemClock
from nanobot_core.messages import InboundMessage
store, who = PairingStore(Path(sys.argv[1]), SystemClock()), sys.argv[2]
message = InboundMessage(channel="test", sender_id=who, chat_id=who, content="")
for number in range(5):
    asked = store.request(InboundMessage(
        channel="test", sender_id=f"{who}-{number}", chat_id="c", content=""))
    assert asked is not None
    assert store.approve(asked.code) == asked
"""


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def store(tmp_path: Path, clock: FakeClock) -> PairingStore:
    return PairingStore(tmp_path / "gateway" / "pairing.json", clock)


def code_of(store: PairingStore, sender: str = "7|Ann") -> str:
    asked = store.request(inbound(sender_id=sender))
    assert asked is not None
    return asked.code


def test_a_code_lets_its_sender_in_once(store: PairingStore) -> None:
    code = code_of(store)
    assert store.approved("test") == frozenset()
    asked = store.approve(f" {code.lower()} ")
    assert asked is not None
    assert (asked.sender_id, asked.channel) == ("7|Ann", "test")
    assert store.approved("test") == {"7"}
    assert store.approved("other") == frozenset()
    assert store.everyone() == [("test", "7|Ann")]
    assert store.revoke("test", "7")
    assert store.approve(code) is None
    assert store.approved("test") == frozenset()


def test_codes_are_long_and_unlike_each_other(store: PairingStore) -> None:
    codes = {code_of(store, str(number)) for number in range(MAX_PENDING)}
    assert len(codes) == MAX_PENDING
    assert all(len(code) == CODE_CHARS and set(code) <= set(LETTERS) for code in codes)
    assert len(LETTERS) ** CODE_CHARS >= 2**40


async def test_a_code_expires(store: PairingStore, clock: FakeClock) -> None:
    code = code_of(store)
    await clock.advance(3_599)
    assert [asked.code for asked in store.pending()] == [code]
    await clock.advance(1)
    assert store.pending() == ()
    assert store.approve(code) is None
    assert code_of(store) != code


def test_a_sender_has_one_code_at_a_time_and_strangers_have_few(store: PairingStore) -> None:
    code_of(store)
    assert store.request(inbound(sender_id="7|Other name")) is None
    for number in range(MAX_PENDING - 1):
        code_of(store, f"s{number}")
    assert store.request(inbound(sender_id="late")) is None
    assert len(store.pending()) == MAX_PENDING


@pytest.mark.parametrize("guess", ["", "AAAAAAAA", "ÄÖÜ", "\ud800", "A" * 10_000])
def test_a_guess_lets_nobody_in(store: PairingStore, guess: str) -> None:
    code_of(store)
    assert store.approve(guess.encode("utf-8", "replace").decode()) is None
    assert store.approved("test") == frozenset()


def test_codes_are_compared_in_constant_time(
    store: PairingStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    codes = [code_of(store, str(number)) for number in range(3)]
    compared: list[bytes] = []
    real = secrets.compare_digest

    def compare(one: bytes, other: bytes) -> bool:
        compared.append(one)
        return real(one, other)

    monkeypatch.setattr(secrets, "compare_digest", compare)
    assert store.approve(codes[0]) is not None
    assert compared == [code.encode() for code in codes], "the first hit does not end it"


def test_another_process_is_heard_at_once(store: PairingStore, tmp_path: Path) -> None:
    other = PairingStore(tmp_path / "gateway" / "pairing.json", FakeClock())
    for _ in range(20):
        assert store.approve(code_of(other)) is not None
        assert other.approved("test") == store.approved("test") == {"7"}
        assert other.revoke("test", "7|Ann")
        assert not other.revoke("test", "7|Ann")
        assert store.approved("test") == other.approved("test") == frozenset()


def test_processes_side_by_side_lose_nothing(store: PairingStore, tmp_path: Path) -> None:
    file = tmp_path / "gateway" / "pairing.json"

    def approve(who: str) -> None:
        command = [sys.executable, "-c", APPROVER, str(file), who]
        subprocess.run(command, check=True, timeout=50)

    with ThreadPoolExecutor() as pool:
        list(pool.map(approve, "abc"))
    wanted = {f"{who}-{number}" for who in "abc" for number in range(5)}
    assert store.approved("test") == wanted


def test_threads_side_by_side_lose_nothing(store: PairingStore) -> None:
    def approve(number: int) -> None:
        assert store.approve(code_of(store, str(number))) is not None
        assert str(number) in store.approved("test")

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(approve, range(20)))
    assert store.approved("test") == {str(number) for number in range(20)}


def test_only_the_owner_can_read_the_file(store: PairingStore, tmp_path: Path) -> None:
    code_of(store)
    file = tmp_path / "gateway" / "pairing.json"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700


@pytest.mark.parametrize(
    "damaged",
    [
        b"",
        b"{",
        b"[]",
        b"\xff",
        b"[" * 5_000,
        b'{"approved": {}}',
        b'{"approved": {"test": "7"}, "pending": []}',
        b'{"approved": {}, "pending": [{"code": "A"}]}',
        (
            b'{"approved": {}, "pending": [{"code": "A", "channel": "test", "sender_id": "7",'
            b' "chat_id": "7", "expires_at": "2999-01-01"}]}'
        ),
    ],
)
def test_a_damaged_file_lets_nobody_in_and_is_kept(
    store: PairingStore, tmp_path: Path, damaged: bytes
) -> None:
    told: list[str] = []
    sink = logger.add(told.append, format="{level} {message}")
    code_of(store)
    file = tmp_path / "gateway" / "pairing.json"
    for number in (1, 2):
        file.write_bytes(damaged)
        assert store.approved("test") == frozenset()
        kept = file.with_name(f"pairing.json.corrupt-{number}")
        assert kept.read_bytes() == damaged
        assert told.pop().startswith("ERROR")
        assert told == []
        assert store.approve(code_of(store)) is not None
        assert store.approved("test") == {"7"}
    logger.remove(sink)
