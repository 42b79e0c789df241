"""Damage in the queue's files: what is whole is saved, what is lost is reported."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

from nanobot_core.bus.entry import INBOUND, Taken, inbound_entry, outbound_entry, outbound_queue
from nanobot_core.bus.file import QueueFile
from nanobot_core.bus.ledger import Ledger
from nanobot_core.bus.transaction import Operation, Transactions
from nanobot_core.errors import BusError
from nanobot_core.testing.bus import inbound, outbound
from tests.fuzz.choices import Choices, damaged, fresh_folder

NOW_US: Final = 1_800_000_000_000_000
NAME: Final = "bus.sqlite"
QUEUES: Final = (INBOUND, outbound_queue("test"))
TOKENS: Final = (b"SQLite format 3\x00", b"\x37\x7f\x06\x82", b"nb-wal-1", b"\x0d\x00", b"\x05\x00")
_FILES: Final = ("", "-wal", "-mark", "-wal")
_MARKED: Final = 2


def fuzz_one(data: bytes) -> None:
    """Damage the files of a queue, then open it twice."""
    choices = Choices(data)
    shape = choices.byte()
    files = dict(_bases()[shape % len(_bases())])
    chosen = _FILES[shape // 8 % len(_FILES)]
    if chosen not in files:
        chosen = ""
    is_removed = shape >= 224 and chosen
    if is_removed:
        del files[chosen]
    else:
        files[chosen] = damaged(files[chosen], choices)
    with fresh_folder() as folder:
        path = folder / NAME
        for suffix, content in files.items():
            path.with_name(NAME + suffix).write_bytes(content)
        try:
            found, repaired = _open(path)
        except BusError as error:
            reason = str(error)
            assert "has version" in reason
            assert path.read_bytes() == files[""]
            return
        if not found and not repaired and not any(files.values()):
            return
        kept = {text for text in _texts() if text.encode() in b"".join(files.values())}
        is_noted = chosen != "-mark"
        assert repaired or not is_noted or kept <= set(found), f"lost: {kept - set(found)}"
        assert len(found) == len(set(found)), "a message is there twice"
        assert _open(path) == (found, ())


def seeds() -> Iterator[bytes]:
    """Yield one run for each state of the queue and each of its files."""
    for shape in range(32):
        yield bytes([shape, 4, 100, 20, 3])
        yield bytes([shape, 6, 0, 16, 30])
    yield bytes([240])


def _open(path: Path) -> tuple[list[str], tuple[str, ...]]:
    """Return the messages in a queue in order, and what was reported; the queue stays as it is."""
    file = QueueFile(path)
    transactions = file.open()
    try:
        found = _do(transactions, _read_all)
        assert isinstance(found, list)
        return found, file.repaired
    finally:
        transactions.close()
        file.unlock()


def _read_all(ledger: Ledger) -> list[str]:
    counts = ledger.counts.by_queue.copy()
    found: list[str] = []
    for queue in QUEUES:
        taken: list[Taken] = []
        lost = counts[queue]
        while (one := ledger.take(queue, NOW_US)[0]) is not None:
            taken.append(one)
            found.append(one.payload)
            lost -= 1
            ledger.acknowledge(one.number, one.attempt, (), NOW_US)
        assert lost == 0, f"{lost} messages are counted and never handed out"
    ledger.dead_letters(100)  # whatever they contain, they can be listed
    found += [text for (text,) in ledger._database.execute("SELECT payload FROM dead")]
    raise _Undo(found)


class _Undo(Exception):
    """Takes a result out of a transaction that is not to change anything."""

    def __init__(self, found: list[str]) -> None:
        super().__init__()
        self.found = found


def _do(transactions: Transactions, work: object) -> object:
    assert callable(work)
    ((result, failure),) = transactions.run([Operation(work)])
    if isinstance(failure, _Undo):
        return failure.found
    if failure is not None:
        raise failure
    return result


@cache
def _texts() -> frozenset[str]:
    return frozenset(entry.payload for entry in (*_INBOUND, *_OUTBOUND))


_INBOUND: Final = [
    inbound_entry(inbound(f"in {number} {'x' * 40 * number}", str(number % 3), key=f"k{number}"))
    for number in range(12)
]
_OUTBOUND: Final = [
    outbound_entry(outbound(f"out {number}", str(number % 2))) for number in range(4)
]


@cache
def _bases() -> tuple[dict[str, bytes], ...]:
    """Return the files of queues in several states, by what follows their name."""
    return _all_in_log(), _all_in_file(), _half()


def _all_in_log() -> dict[str, bytes]:
    with fresh_folder() as folder:
        file = QueueFile(folder / NAME)
        transactions = file.open()
        _fill(transactions, 0, 12)
        files = _files_in(folder)
        transactions.close()
        file.unlock()
        return files


def _all_in_file() -> dict[str, bytes]:
    with fresh_folder() as folder:
        file = QueueFile(folder / NAME)
        transactions = file.open()
        _fill(transactions, 0, 12)
        transactions.close()
        file.unlock()
        return _files_in(folder)


def _half() -> dict[str, bytes]:
    with fresh_folder() as folder:
        file = QueueFile(folder / NAME)
        transactions = file.open()
        _fill(transactions, 0, 6)
        transactions.close()
        file.unlock()
        file = QueueFile(folder / NAME)
        transactions = file.open()
        _fill(transactions, 6, 12)
        files = _files_in(folder)
        transactions.close()
        file.unlock()
        return files


def _files_in(folder: Path) -> dict[str, bytes]:
    with fresh_folder() as copy:
        shutil.copytree(folder, copy, dirs_exist_ok=True)
        found = {path.name.removeprefix(NAME): path.read_bytes() for path in copy.iterdir()}
    return {suffix: found[suffix] for suffix in ("", "-wal", "-mark") if suffix in found}


def _fill(transactions: Transactions, start: int, end: int) -> None:
    for number in range(start, end):
        entry = _INBOUND[number]
        _do(transactions, lambda ledger, entry=entry: ledger.publish(entry, NOW_US))
    if start == 0:
        for reply in _OUTBOUND:
            _do(transactions, lambda ledger, reply=reply: ledger.publish(reply, NOW_US))
        _do(transactions, _bury_one)
        _do(transactions, lambda ledger: ledger.take(INBOUND, NOW_US))


def _bury_one(ledger: Ledger) -> None:
    taken, _ = ledger.take(QUEUES[1], NOW_US)
    assert taken is not None
    ledger.bury(taken.number, taken.attempt, "tried", NOW_US)
