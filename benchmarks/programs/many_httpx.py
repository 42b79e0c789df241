"""many_httpx.py URL SESSIONS MESSAGES: messages a second through one httpx client."""

import asyncio
import sys
import time

import httpx

BODY = {"model": "bench", "messages": [{"role": "user", "content": "hello"}], "stream": True}


async def talk(client: httpx.AsyncClient, url: str, messages: int) -> None:
    for _ in range(messages):
        answer = await client.post(url, json=BODY)
        answer.raise_for_status()


async def main(url: str, sessions: int, messages: int) -> None:
    limits = httpx.Limits(max_connections=None)
    async with httpx.AsyncClient(trust_env=False, limits=limits, timeout=60) as client:
        await talk(client, url, 1)
        started_s = time.perf_counter()
        async with asyncio.TaskGroup() as group:
            for _ in range(sessions):
                group.create_task(talk(client, url, messages))
        print(sessions * messages / (time.perf_counter() - started_s))


asyncio.run(main(f"{sys.argv[1]}/chat/completions", int(sys.argv[2]), int(sys.argv[3])))
