"""Old history moves to an archive, and nothing forgets it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest

from nanobot_core import HistorySpan, MemoryScope, Message
from nanobot_core.testing import FakeClock, FakePluginContext
from nanobot_memory.backend import FileMemory
from nanobot_memory.compaction import compact, compact_daily
from nanobot_memory.dream import dream
from nanobot_memory.files import Memories, MemoryFiles
from nanobot_memory.history import NewEntry
from nanobot_memory.plugin import contribute_jobs
from nanobot_memory.search import Index
from nanobot_memory.settings import MemorySettings

pytestmark = pytest.mark.anyio

AGED = MemorySettings(history_days=30, history_megabytes=0)
SMALL = MemorySettings(history_days=0, history_megabytes=0.01)
SCOPE = MemoryScope(session_key="cli:direct")

# It dies when the history is about to be replaced: after the first of the two steps.
CHILD = """
import os, signal, sys
from pathlib import Path
from nanobot_core import Folder
from nanobot_core.testing import FakeClock
from nanobot_memory.files import MemoryFiles

def replace(self, name, data, *, mode=None):
    if str(name).endswith("history.jsonl"):
        os.kill(os.getpid(), signal.SIGKILL)
    former(self, name, data, mode=mode)

former, Folder.replace = Folder.replace, replace
MemoryFiles(Path(sys.argv[1]), "", FakeClock()).move_to_archive({1, 2})
"""


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def files(tmp_path: Path, clock: FakeClock) -> MemoryFiles:
    return MemoryFiles(tmp_path / "workspace", "", clock)


def lines_of(files: MemoryFiles, name: str) -> list[int]:
    text = (files.root.path / "memory" / name).read_text("utf-8")
    return [json.loads(line)["cursor"] for line in text.splitlines()]


def dated(clock: FakeClock, days: int) -> NewEntry:
    return NewEntry(content="old", timestamp=f"{clock.now() - timedelta(days=days):%Y-%m-%d %H:%M}")


def test_entries_beyond_the_age_are_archived(files: MemoryFiles, clock: FakeClock) -> None:
    unreadable = NewEntry(content="from another program", timestamp="long ago")
    files.append([dated(clock, 40), unreadable, dated(clock, 20)])
    files.dream_cursor = 3

    assert compact(files, AGED, clock.now()) == 1
    assert lines_of(files, "history.jsonl") == [2, 3]
    assert lines_of(files, "history-archive.jsonl") == [1]
    assert compact(files, AGED, clock.now()) == 0


def test_beyond_the_size_only_what_dream_has_read_is_archived(
    files: MemoryFiles, clock: FakeClock
) -> None:
    files.append([NewEntry(content="x" * 950) for _ in range(20)])

    assert compact(files, SMALL, clock.now()) == 0
    files.dream_cursor = 5
    assert compact(files, SMALL, clock.now()) == 5
    files.dream_cursor = 20
    compact(files, SMALL, clock.now())

    assert 5_000 < files.history_stamp[1] < 10_000
    assert [entry.cursor for entry in files.all_entries()] == list(range(1, 21))
    assert files.all_entries()[-1] == files.entries()[-1]


def test_nothing_is_archived_when_both_limits_are_off(files: MemoryFiles, clock: FakeClock) -> None:
    files.append([dated(clock, 4_000)] * 100)
    files.dream_cursor = 100

    assert compact(files, MemorySettings(history_days=0, history_megabytes=0), clock.now()) == 0
    assert not files.root.path.joinpath("memory/history-archive.jsonl").exists()


def test_it_runs_once_a_day(files: MemoryFiles, clock: FakeClock) -> None:
    assert compact_daily(files, AGED, clock.now()) == 0
    assert not files.root.path.exists(), "a memory without history got files"
    files.append([dated(clock, 40)])

    assert compact_daily(files, AGED, clock.now()) == 1
    files.append([dated(clock, 40)])
    assert compact_daily(files, AGED, clock.now()) == 0
    assert compact_daily(files, AGED, clock.now() + timedelta(days=1)) == 1


def test_numbers_go_on_when_all_is_archived_and_the_counter_is_lost(
    files: MemoryFiles, clock: FakeClock
) -> None:
    files.append([dated(clock, 40), dated(clock, 40)])
    compact(files, AGED, clock.now())
    (files.root.path / "memory/.cursor").unlink()

    assert [entry.cursor for entry in files.append([NewEntry(content="new")])] == [3]


def test_archived_entries_are_found_and_can_be_forgotten(tmp_path: Path) -> None:
    context = FakePluginContext(tmp_path)
    files, index = Memories(context).files(), Index(context)
    files.append([NewEntry(content="- The dentist is on 4 May."), NewEntry(content="- Tea.")])
    before = index.search(files, "dentist", 5)

    files.move_to_archive({1})

    assert index.search(files, "dentist", 5) == before != []
    assert len(index.search(files, "tea", 5)) == 1
    assert files.remove(1)
    assert index.search(files, "dentist", 5) == []
    assert b"dentist" not in (files.root.path / "memory/history-archive.jsonl").read_bytes()


def test_a_kill_between_the_two_steps_loses_and_doubles_nothing(
    files: MemoryFiles, clock: FakeClock, tmp_path: Path
) -> None:
    span = NewEntry(content="- talked", session_key="cli:direct", first=0, last=9, digest="d")
    files.append([span, dated(clock, 40), NewEntry(content="- later")])
    files.dream_cursor = 2
    before = files.all_entries()

    killed = subprocess.run(
        [sys.executable, "-c", CHILD, str(files.root.path)], check=False, timeout=50
    )

    assert killed.returncode == -signal.SIGKILL
    assert lines_of(files, "history-archive.jsonl") == [1, 2]
    for again in (files, MemoryFiles(files.root.path, "", clock)):
        assert again.all_entries() == before
        assert again.append([span]) == before[:1]
        assert again.dream_cursor == 2
    context = FakePluginContext(tmp_path)
    assert len(Index(context).search(files, "talked", 5)) == 1
    files.move_to_archive({1, 2})
    assert lines_of(files, "history-archive.jsonl") == [1, 2]
    assert lines_of(files, "history.jsonl") == [3]
    assert files.all_entries() == before
    assert len(Index(context).search(files, "talked", 5)) == 1


async def test_a_span_that_comes_again_is_recognised_in_the_archive(tmp_path: Path) -> None:
    said = tuple(
        Message(role="assistant" if number % 2 else "user", content=f"message {number}")
        for number in range(40)
    )
    span = HistorySpan(scope=SCOPE, messages=said, first_index=0, tokens=(100,) * 40)
    async with FakePluginContext(tmp_path) as context:
        context.agent.answer = lambda task: "- talked"
        memory = FileMemory(context)
        first = await memory.consolidate(span, 2_000, must=True)
        files = context.shared(Memories).files()
        files.move_to_archive({entry.cursor for entry in files.entries()})
        calls = len(context.agent.tasks)

        assert await memory.consolidate(span, 2_000, must=True) == first
        assert len(context.agent.tasks) == calls
        assert files.entries() == []
        await memory.aclose()


async def test_the_job_archives_every_memory_even_without_dream(tmp_path: Path) -> None:
    clock = FakeClock()
    settings = MemorySettings.model_validate({"history_days": 30, "dream": {"every_hours": 0}})
    async with FakePluginContext(tmp_path, settings=settings, clock=clock) as context:
        memories = context.shared(Memories)
        for scope in ("", "sender/telegram:42"):
            memories.files(scope).append([dated(clock, 40), NewEntry(content="new")])
        (archive,) = (job for job in contribute_jobs(context) if job.schedule is not None)

        assert await archive.run() == "Archived 2 history entries."

    assert [entry.cursor for entry in memories.files().entries()] == [2]
    assert context.agent.tasks == []


async def test_dream_reads_what_was_archived_before_it_could(tmp_path: Path) -> None:
    clock = FakeClock()
    settings = MemorySettings.model_validate({"history_days": 30})
    async with FakePluginContext(tmp_path, settings=settings, clock=clock) as context:
        context.agent.answer = lambda _: "[SKIP]"
        files = context.shared(Memories).files()
        files.append([NewEntry(content="- a word long ago"), dated(clock, 40)])
        files.move_to_archive({1})

        await dream(context, files)

    assert "a word long ago" in context.agent.tasks[0].messages[-1].text
    assert files.dream_cursor == 2
    assert files.entries() == [], "Dream archives what is too old at its end"
    assert len(files.all_entries()) == 2
