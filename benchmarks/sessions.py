"""The same turn in sessions of several lengths: time, and bytes read and written.

Memory has taken up all but the newest messages, so that the model is sent the same window.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from benchmarks.measure import Goal, Row, compare, interleave_async, single
from benchmarks.server import model_server, nanobot_home, open_agent
from nanobot_core import Message, Nanobot, SessionState

SIZES = (100, 1_000, 10_000, 100_000)
WINDOW = 50
ROUNDS = 15
BATCH = 500
SAME = Goal(1.2)

Turn = dict[str, float]
"""Cost of one turn: ``wall`` and ``cpu`` in ms; ``read`` from and ``written`` to files in KB."""


def rows(scale: int) -> Iterator[Row]:
    """Compare all sizes; the shortest session is the floor of the others."""
    opening, found = asyncio.run(_measure(ROUNDS * scale))
    for size, first, turns in zip(SIZES, opening, found, strict=True):
        title = f"session of {size:,}"
        yield single(f"{title}, opened, wall", "ms", [first["wall"]])
        yield single(f"{title}, opened, read", "KB", [first["read"]])
        floor = found[0]
        goal = SAME if turns is not floor else None
        for what, unit in (("wall", "ms"), ("cpu", "ms"), ("written", "KB")):
            yield compare(
                f"{title}, {what}",
                unit,
                [turn[what] for turn in turns],
                [turn[what] for turn in floor],
                goal,
            )


async def _measure(rounds: int) -> tuple[list[Turn], tuple[list[Turn], ...]]:
    """Return the turns that opened each session, and those that followed in it."""
    with model_server() as server, nanobot_home(server.url) as home:
        async with open_agent(home) as bot:
            for size in SIZES:
                await _fill(bot, _key(size), size)
        # A new agent, which has not read the files.
        async with open_agent(home) as bot:
            await _turn(bot, "bench:warm")
            opening = [await _turn(bot, _key(size)) for size in SIZES]
            found = await interleave_async(
                rounds, *(partial(_turn, bot, _key(size)) for size in SIZES)
            )
    return opening, found


def _key(size: int) -> str:
    return f"bench:{size}"


async def _fill(bot: Nanobot, key: str, size: int) -> None:
    now = datetime.now(UTC)
    state = SessionState(created_at=now, updated_at=now, last_consolidated=size - WINDOW)
    messages = [
        Message(
            role="assistant" if number % 2 else "user",
            content=f"This is message {number:06} of a long conversation about nothing much.",
            timestamp=now,
        )
        for number in range(size)
    ]
    for start in range(0, size, BATCH):
        await bot.sessions.append(key, messages[start : start + BATCH], state)


async def _turn(bot: Nanobot, key: str) -> Turn:
    read, written = _file_bytes()
    started_s, cpu_s = time.perf_counter(), time.process_time()
    outcome = await bot.run("hello", session=key)
    wall_s, cpu_s = time.perf_counter() - started_s, time.process_time() - cpu_s
    read_after, written_after = _file_bytes()
    if outcome.stop_reason != "completed":
        raise RuntimeError(outcome.error or outcome.stop_reason)
    return {
        "wall": wall_s * 1e3,
        "cpu": cpu_s * 1e3,
        "read": (read_after - read) / 1e3,
        "written": (written_after - written) / 1e3,
    }


def _file_bytes() -> tuple[int, int]:
    """Return bytes read from and written to files so far; sockets are not included."""
    lines = Path("/proc/self/io").read_text("ascii").splitlines()
    counts = dict(line.split(": ") for line in lines)
    return int(counts["rchar"]), int(counts["wchar"])
