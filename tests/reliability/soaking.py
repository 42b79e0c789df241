"""What a gateway holds while it works for long: one line of JSON for each sample.

A process of its own, since what a test process holds says what ran in it before.
"""

from __future__ import annotations

import asyncio
import json
import sys
from dataclasses import asdict
from pathlib import Path

from loguru import logger

from tests.gateways import Platform, running, write_config
from tests.reliability.samples import sample

CHATS = 50
SAMPLES = 16


async def soak(folder: Path, messages: int) -> None:
    """Print a sample for each portion of `messages` that a gateway in `folder` has answered."""
    async with Platform() as platform:
        write_config(folder, platform)
        async with running(folder):
            # The first portion fills caches and starts threads.
            for number in range(SAMPLES + 1):
                await _answer(platform, messages // (SAMPLES + 1), number)
                await _settle()
                if number:
                    print(json.dumps(asdict(sample())), flush=True)  # noqa: T201


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
    """Wait until cancelled tasks have ended: until their number stays the same."""
    count, same = -1, 0
    while same < 10:
        await asyncio.sleep(0.01)
        now = len(asyncio.all_tasks())
        same = same + 1 if now == count else 0
        count = now


if __name__ == "__main__":
    # Tracebacks of turns that fail on purpose would take most of the time.
    logger.disable("nanobot_core")
    asyncio.run(soak(Path(sys.argv[1]), int(sys.argv[2])))
