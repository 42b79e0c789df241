"""many_nanobot.py URL SESSIONS MESSAGES: messages a second through Nanobot.run."""

import asyncio
import os
import sys
import time

from nanobot_core import Nanobot
from nanobot_core.app.logging import configure_logging


async def talk(bot: Nanobot, session: str, messages: int) -> None:
    for _ in range(messages):
        outcome = await bot.run("hello", session=session)
        if outcome.stop_reason != "completed":
            raise SystemExit(outcome.error)


async def main(sessions: int, messages: int) -> None:
    bot = Nanobot.from_config()
    configure_logging(bot.loaded, level="WARNING")
    async with bot:
        await talk(bot, "bench:warm", 1)
        started_s = time.perf_counter()
        async with asyncio.TaskGroup() as group:
            for number in range(sessions):
                group.create_task(talk(bot, f"bench:{os.getpid()}:{number}", messages))
        print(sessions * messages / (time.perf_counter() - started_s))


asyncio.run(main(int(sys.argv[2]), int(sys.argv[3])))
