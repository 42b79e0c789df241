"""A server on asyncio alone: says on stderr that it is ready and waits."""

import asyncio
import sys


async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.close()


async def main() -> None:
    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        print("ready", file=sys.stderr, flush=True)
        await server.serve_forever()


asyncio.run(main())
