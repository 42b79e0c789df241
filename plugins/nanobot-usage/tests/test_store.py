from __future__ import annotations

import os
import signal
import sqlite3
import stat
import subprocess
import sys
import tempfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from threading import Barrier
from typing import get_args

import pytest
from hypothesis import given, settings, strategies as st

from nanobot_usage.spent import Spent
from nanobot_usage.store import FILE_NAME, Call, Grouping, StoreTooNewError, UsageStore

LIMIT_S = 20.0
SINCE = "2000-01-01"
calls = st.lists(
    st.builds(
        Call,
        day=st.sampled_from(["2025-01-01", "2025-01-02"]),
        model=st.sampled_from(["a", "b/c"]),
        session=st.text(max_size=3),
        source=st.sampled_from(["chat", "cron"]),
        plugin=st.sampled_from(["p", "q"]),
        prompt_tokens=st.integers(0, 10**9),
        completion_tokens=st.integers(0, 10**9),
        cached_tokens=st.integers(0, 10**9),
        reasoning_tokens=st.integers(0, 10**9),
        nano_usd=st.none() | st.integers(0, 10**12),
    ),
    max_size=12,
)


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_no_one_else_may_read_the_record(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        for _ in range(2):
            with closing(UsageStore(tmp_path)) as store:
                store.add([Call(day="2025-01-01", model="a", session="", source="", plugin="")])
                files = list(tmp_path.iterdir())
                assert len(files) == 3
                assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}
            (tmp_path / FILE_NAME).chmod(0o644)  # as earlier releases made it
    finally:
        os.umask(before)


@settings(max_examples=40)
@given(calls)
def test_every_sum_is_the_sum_of_what_was_added(recorded: list[Call]) -> None:
    with (
        tempfile.TemporaryDirectory() as folder,
        closing(UsageStore(Path(folder))) as store,
    ):
        store.add(recorded[:5])
        for call in recorded[5:]:
            store.add([call])

        whole = sum((call.spent for call in recorded), Spent())
        for by in get_args(Grouping):
            expected: Counter[str] = Counter(getattr(call, by) for call in recorded)
            lines = store.lines(by, SINCE)
            assert {line.key: line.calls for line in lines} == expected
            assert sum((line.spent for line in lines), Spent()) == whole
            assert sum(line.cached_tokens for line in lines) == sum(
                call.cached_tokens for call in recorded
            )
            assert sum(line.unpriced_calls for line in lines) == sum(
                call.nano_usd is None for call in recorded
            )
        for day in {call.day for call in recorded}:
            of_day = [call.spent for call in recorded if call.day == day]
            assert store.total("day", day) == sum(of_day, Spent())
        for session in {call.session for call in recorded}:
            of_session = [call.spent for call in recorded if call.session == session]
            assert store.total("session", session) == sum(of_session, Spent())


def call(**changes: object) -> Call:
    facts = {"day": "2025-01-01", "model": "m", "session": "s", "source": "chat", "plugin": "p"}
    return Call(**{"prompt_tokens": 10, "nano_usd": 5, **facts, **changes})  # type: ignore[arg-type]  # fields by name


def test_only_days_from_the_first_on_are_summed(tmp_path: Path) -> None:
    with closing(UsageStore(tmp_path)) as store:
        for day in ("2025-01-01", "2025-01-02", "2025-01-03"):
            store.add([call(day=day)])

        assert [line.key for line in store.lines("day", "2025-01-02")] == [
            "2025-01-02",
            "2025-01-03",
        ]


def test_the_dearest_line_comes_first(tmp_path: Path) -> None:
    with closing(UsageStore(tmp_path)) as store:
        store.add([call(model="cheap", prompt_tokens=900, nano_usd=1)])
        store.add([call(model="dear", prompt_tokens=1, nano_usd=2)])

        assert [line.key for line in store.lines("model", SINCE)] == ["dear", "cheap"]


def test_a_warning_is_the_first_one_once_for_all_processes(tmp_path: Path) -> None:
    with closing(UsageStore(tmp_path)) as one, closing(UsageStore(tmp_path)) as other:
        one.add([call()])

        assert one.mark_warned("day", "2025-01-01")
        assert not other.mark_warned("day", "2025-01-01")
        assert other.mark_warned("day", "2025-01-02")
        assert other.total("day", "2025-01-01") == Spent(10, 5)


def test_a_file_of_a_later_release_is_left_alone(tmp_path: Path) -> None:
    UsageStore(tmp_path).close()
    with closing(sqlite3.connect(tmp_path / FILE_NAME)) as connection:
        connection.execute("PRAGMA user_version = 99")

    with pytest.raises(StoreTooNewError, match="upgrade nanobot-usage"):
        UsageStore(tmp_path)


def test_a_file_that_is_not_a_database_is_refused(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).write_bytes(b"not a database" * 100)

    with pytest.raises(sqlite3.DatabaseError):
        UsageStore(tmp_path)


def test_an_addition_that_fails_leaves_nothing_half_done(tmp_path: Path) -> None:
    with closing(UsageStore(tmp_path)) as store:
        with pytest.raises(sqlite3.IntegrityError):
            store.add([call(), call(session=None)])
        store.add([call()])

        assert store.total("day", "2025-01-01") == Spent(10, 5)
        assert [line.calls for line in store.lines("day", SINCE)] == [1]


WRITER = """
import sys
from pathlib import Path
from threading import Barrier
from nanobot_usage.store import Call, UsageStore
store = UsageStore(Path(sys.argv[1]))
number = 0
while True:
    store.add([Call(day="2025-01-01", model="m", session="s", source="chat", plugin="p",
                    prompt_tokens=1, nano_usd=1)])
    number += 1
    print(number, flush=True)
"""


def test_a_killed_writer_leaves_every_call_that_it_reported(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, str(tmp_path)], stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        reported = 0
        while reported < 20:
            reported = int(child.stdout.readline())
        os.kill(child.pid, signal.SIGKILL)
        rest = child.stdout.read().split()
        child.wait(LIMIT_S)
    reported = int(rest[-1]) if rest else reported

    with closing(UsageStore(tmp_path)) as store:
        (line,) = store.lines("day", SINCE)
        total = store.total("day", "2025-01-01")

    assert line.calls in (reported, reported + 1)
    assert total == line.spent == Spent(line.calls, line.calls)


def test_many_can_open_a_new_file_at_once(tmp_path: Path) -> None:
    def open_together(folder: Path, start: Barrier) -> None:
        start.wait(LIMIT_S)
        UsageStore(folder).close()

    with ThreadPoolExecutor(8) as pool:
        for number in range(60):
            folder, start = tmp_path / str(number), Barrier(8)
            folder.mkdir()
            for opened in [pool.submit(open_together, folder, start) for _ in range(8)]:
                opened.result(LIMIT_S)


def test_two_processes_add_up(tmp_path: Path) -> None:
    code = WRITER.replace("while True:", "for _ in range(30):")
    children = [
        subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.DEVNULL)
        for _ in range(2)
    ]
    assert [child.wait(LIMIT_S) for child in children] == [0, 0]

    with closing(UsageStore(tmp_path)) as store:
        assert store.total("session", "s") == Spent(60, 60)
