"""One turn through the Python SDK, in the home that the environment names."""

import asyncio

from nanobot_core import Nanobot


async def main() -> None:
    async with Nanobot.from_config() as bot:
        outcome = await bot.run("hello")
    if outcome.error is not None:
        raise SystemExit(outcome.error)


asyncio.run(main())
