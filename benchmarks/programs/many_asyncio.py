"""many_asyncio.py URL SESSIONS MESSAGES: messages a second over plain asyncio streams."""

import asyncio
import json
import sys
import time
from urllib.parse import urlsplit

BODY = json.dumps(
    {"model": "bench", "messages": [{"role": "user", "content": "hello"}], "stream": True}
).encode()


async def talk(url: str, messages: int) -> None:
    parts = urlsplit(url)
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
    head = (
        f"POST {parts.path} HTTP/1.1\r\nhost: {parts.netloc}\r\ncontent-type: application/json\r\n"
        f"content-length: {len(BODY)}\r\n\r\n"
    )
    for _ in range(messages):
        writer.write(head.encode() + BODY)
        await reader.readuntil(b"\r\n0\r\n\r\n")
    writer.close()
    await writer.wait_closed()


async def main(url: str, sessions: int, messages: int) -> None:
    started_s = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for _ in range(sessions):
            group.create_task(talk(url, messages))
    print(sessions * messages / (time.perf_counter() - started_s))


asyncio.run(main(f"{sys.argv[1]}/chat/completions", int(sys.argv[2]), int(sys.argv[3])))
