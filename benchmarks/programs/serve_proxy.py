"""serve_proxy.py URL FILE: pass requests on to the model service at URL; FILE gets the address."""

import asyncio
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.routing import Route


async def main(url: str, file: Path) -> None:
    limits = httpx.Limits(max_connections=None)
    async with httpx.AsyncClient(trust_env=False, limits=limits, timeout=60) as client:

        async def chat(request: Request) -> StreamingResponse:
            body = await request.body()

            async def pieces() -> AsyncIterator[bytes]:
                async with client.stream("POST", url, content=body) as answer:
                    async for piece in answer.aiter_bytes():
                        yield piece

            return StreamingResponse(pieces(), media_type="text/event-stream")

        app = Starlette(routes=[Route("/v1/chat/completions", chat, methods=["POST"])])
        server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="critical"))
        serving = asyncio.create_task(server.serve())
        while not server.started:  # noqa: ASYNC110 - uvicorn has no event for it
            await asyncio.sleep(0.01)
        port = server.servers[0].sockets[0].getsockname()[1]
        file.write_text(f"http://127.0.0.1:{port}", "utf-8")  # noqa: ASYNC240 - once, before any request
        print("ready", file=sys.stderr, flush=True)
        await serving


asyncio.run(main(f"{sys.argv[1]}/chat/completions", Path(sys.argv[2])))
