"""The floor of one-shot: httpx_once.py BASE_URL makes one chat request and prints the answer."""

import asyncio
import sys

import httpx

BODY = {"model": "bench", "messages": [{"role": "user", "content": "hello"}], "stream": True}


async def main() -> None:
    async with httpx.AsyncClient(trust_env=False) as client:
        answer = await client.post(f"{sys.argv[1]}/chat/completions", json=BODY)
        print(len(answer.text))


asyncio.run(main())
