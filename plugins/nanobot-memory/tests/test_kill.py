"""A process that is killed at any moment of consolidation: each message is in the history once."""

from __future__ import annotations

import asyncio
import itertools
import random
import signal
import sys
from pathlib import Path

import pytest

from nanobot_core.testing import FakeClock
from nanobot_memory.files import MemoryFiles

pytestmark = pytest.mark.anyio

# It plays the core: it marks what was taken up after the call has returned.
CHILD = """
import asyncio, os, sys
from pathlib import Path
from nanobot_core import HistorySpan, MemoryScope, Message
from nanobot_core.testing import FakePluginContext
from nanobot_memory.backend import FileMemory

MESSAGES = 200

def messages(first):
    return tuple(
        Message(role="assistant" if number % 2 else "user", content=f"message {number}")
        for number in range(first, first + MESSAGES)
    )

async def main(folder, rounds):
    mark = folder / "mark"
    async with FakePluginContext(folder) as context:
        context.agent.answer = lambda task: "- " + task.messages[-1].text.split("User: ")[1][:30]
        memory = FileMemory(context)
        await memory.context(MemoryScope(session_key="cli:direct"))
        for number in range(rounds):
            print("round", flush=True)
            first = int(mark.read_text()) if mark.exists() else 0
            span = HistorySpan(
                scope=MemoryScope(session_key="cli:direct"), messages=messages(first),
                first_index=first, tokens=(100,) * MESSAGES,
            )
            if number % 3 == 2:
                await memory.archive(span)
                taken = MESSAGES
            else:
                taken = (await memory.consolidate(span, 8_000, must=number % 2 == 0)).messages
            print("taken", flush=True)
            new = folder / "mark.new"
            new.write_text(str(first + taken))
            new.replace(mark)
        await context.settle()
        await memory.aclose()

asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2])))
"""


async def run_child(folder: Path, rounds: int, kill_after: int | None) -> None:
    """Run a child to its end, or kill it after that many lines, while it goes on working."""
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-c", CHILD, str(folder), str(rounds), stdout=asyncio.subprocess.PIPE
    )
    assert child.stdout is not None
    try:
        async with asyncio.timeout(50):
            if kill_after is None:
                await child.stdout.read()
                assert await child.wait() == 0
            else:
                for _ in range(kill_after):
                    assert await child.stdout.readline()
    finally:
        if child.returncode is None:
            child.send_signal(signal.SIGKILL)
        await child.wait()


def check(folder: Path) -> None:
    """Assert that the entries cover each message once, and that numbers rise."""
    entries = MemoryFiles(folder / "workspace", "", FakeClock()).entries()
    numbers = [entry.cursor for entry in entries]
    assert numbers == sorted(set(numbers))
    spans = sorted((entry.first or 0, entry.last or 0) for entry in entries)
    assert spans[0][0] == 0
    assert all(end == first for (_, end), (first, _) in itertools.pairwise(spans))
    assert spans[-1][1] >= int((folder / "mark").read_text("utf-8"))
    raw = (folder / "workspace/memory/.cursor").read_text("utf-8")
    assert int(raw) == numbers[-1]


async def survive(folder: Path, kills: int) -> None:
    rng = random.Random(kills)
    for _ in range(kills):
        await run_child(folder, 100_000, rng.randint(1, 40))
    await run_child(folder, 3, None)
    check(folder)


@pytest.mark.timeout(300)
async def test_a_killed_process_loses_and_doubles_no_entry(tmp_path: Path) -> None:
    await survive(tmp_path, 8)


@pytest.mark.long
@pytest.mark.timeout(1_800)
async def test_a_hundred_killed_processes_lose_and_double_no_entry(tmp_path: Path) -> None:
    await survive(tmp_path, 100)
