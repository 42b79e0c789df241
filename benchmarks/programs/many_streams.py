"""many_streams.py URL KEY CLIENTS REQUESTS: requests a second, ms to first word and to the end."""

import asyncio
import statistics
import sys
import time

import httpx

BODY = {"model": "nanobot", "messages": [{"role": "user", "content": "hello"}], "stream": True}


async def ask(client: httpx.AsyncClient, url: str) -> tuple[float, float]:
    started_s, first_s = time.perf_counter(), 0.0
    async with client.stream("POST", url, json=BODY) as answer:
        answer.raise_for_status()
        async for _ in answer.aiter_bytes():
            first_s = first_s or time.perf_counter()
    return first_s - started_s, time.perf_counter() - started_s


async def main(url: str, key: str, clients: int, requests: int) -> None:
    limits = httpx.Limits(max_connections=None)
    found: list[tuple[float, float]] = []
    left = iter(range(requests))
    async with httpx.AsyncClient(
        trust_env=False, limits=limits, timeout=60, headers={"authorization": f"Bearer {key}"}
    ) as client:

        async def work() -> None:
            found.extend([await ask(client, url) for _ in left])

        started_s = time.perf_counter()
        async with asyncio.TaskGroup() as group:
            for _ in range(clients):
                group.create_task(work())
        rate = requests / (time.perf_counter() - started_s)
    first_ms, whole_ms = (statistics.median(side) * 1e3 for side in zip(*found, strict=True))
    print(rate, first_ms, whole_ms)


asyncio.run(main(f"{sys.argv[1]}/v1/chat/completions", sys.argv[2], *map(int, sys.argv[3:])))
