"""A gateway that works for long: what it holds does not grow. Counts are compared, not times."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from loguru import logger

from tests.gateways import Platform, running, write_config

pytestmark = pytest.mark.anyio
CHATS = 50
SAMPLES = 16
LARGEST_MB = 150.0
GROWN_MB = 6.0
"""What sessions, caches and the allocator may take between the first and the last quarter."""


@dataclass(frozen=True)
class Sample:
    """What the process holds while nothing is being done."""

    rss_mb: float
    tasks: int
    threads: int
    handles: int


def sample() -> Sample:
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return Sample(
        rss_mb=pages * os.sysconf("SC_PAGE_SIZE") / 1e6,
        tasks=len(asyncio.all_tasks()),
        threads=threading.active_count(),
        handles=len(os.listdir("/proc/self/fd")),  # noqa: PTH208 - without an open iterator
    )


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """Tracebacks of turns that fail on purpose would take most of the time."""
    logger.disable("nanobot_core")
    yield
    logger.enable("nanobot_core")


async def soak(folder: Path, messages: int) -> None:
    samples: list[Sample] = []
    async with Platform() as platform:
        write_config(folder, platform)
        async with running(folder):
            for number in range(SAMPLES + 1):
                await _answer(platform, messages // (SAMPLES + 1), number)
                await _settle()
                samples.append(sample())
    logger.info("{} to {}", samples[1], samples[-1])
    # The first one fills caches and starts threads.
    first, last = samples[1 : 1 + SAMPLES // 4], samples[-SAMPLES // 4 :]
    assert max(one.rss_mb for one in samples) < LARGEST_MB
    assert max(one.tasks for one in last) <= max(one.tasks for one in first)
    assert max(one.handles for one in last) <= max(one.handles for one in first)
    assert max(one.threads for one in last) <= max(one.threads for one in first) + 1
    assert min(one.rss_mb for one in last) - min(one.rss_mb for one in first) < GROWN_MB


async def _answer(platform: Platform, count: int, number: int) -> None:
    """Have messages of all chats answered side by side; a few fail, stop or call tools."""

    async def talk(chat: str, texts: list[str]) -> None:
        for text in texts:
            before = len(platform.texts(chat))
            await platform.say(text, chat=chat)
            await platform.until(lambda before=before: len(platform.texts(chat)) > before)  # type: ignore[misc]  # defaults of a lambda have no types

    kinds = ["say hello", "fail", 'call wait_beside {"seconds": 0}', "/help", "say more"]
    async with asyncio.TaskGroup() as group:
        for chat in range(CHATS):
            texts = [kinds[(number + one) % len(kinds)] for one in range(count // CHATS)]
            group.create_task(talk(str(chat), texts))
    # A new conversation, so that what is held does not grow with the history.
    async with asyncio.TaskGroup() as group:
        for chat in range(CHATS):
            group.create_task(talk(str(chat), ["/new"]))
    platform.sent.clear()
    platform.stored.clear()


async def _settle() -> None:
    """Let tasks end that were told to: until their number stays."""
    count, same = -1, 0
    while same < 10:
        await asyncio.sleep(0.01)
        now = len(asyncio.all_tasks())
        same = same + 1 if now == count else 0
        count = now


@pytest.mark.timeout(240)
async def test_what_a_gateway_holds_does_not_grow(tmp_path: Path) -> None:
    await soak(tmp_path, 2_000)


@pytest.mark.long
@pytest.mark.timeout(1800)
async def test_what_a_gateway_holds_does_not_grow_over_twenty_thousand(tmp_path: Path) -> None:
    await soak(tmp_path, 20_000)
