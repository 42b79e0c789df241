"""What the tests of this plugin share: a web server on the loopback, and calls of tools."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from nanobot_core import JsonValue, Tool, ToolOutput
from nanobot_core.net import NetworkPolicy
from nanobot_core.testing import FakePluginContext, call_in, output_text
from nanobot_web.web_fetch import WebFetchTool
from nanobot_web.web_search import WebSearchTool


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@dataclass(frozen=True, slots=True)
class Asked:
    """One request as it came in."""

    method: str
    path: str
    query: dict[str, list[str]]
    headers: dict[str, str]
    body: bytes


@dataclass(slots=True)
class WebServer:
    """Answers each path with bytes; other paths with 404."""

    pages: dict[str, Iterator[bytes]] = field(default_factory=dict)
    asked: list[Asked] = field(default_factory=list)
    port: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def put(self, path: str, *parts: bytes, endless: Iterable[bytes] = ()) -> str:
        """Answer `path` with `parts`, then with `endless`; return its address."""
        self.pages[path] = itertools.chain(parts, endless)
        return f"{self.url}{path}"

    def page(
        self,
        path: str,
        body: bytes | str = b"",
        content_type: str = "text/html",
        status: str = "200 OK",
        *more: str,
    ) -> str:
        """Answer `path` with a response of the right length; return its address."""
        content = body.encode() if isinstance(body, str) else body
        lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(content)}", *more]
        lines += [f"Content-Type: {content_type}"] if content_type else []
        return self.put(path, "\r\n".join(lines).encode() + b"\r\n\r\n" + content)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            first, *lines = head.strip().split("\r\n")
            headers = {
                name.lower(): value for name, value in (line.split(": ", 1) for line in lines)
            }
            body = await reader.readexactly(int(headers.get("content-length", 0)))
            method, target, _ = first.split(" ")
            parts = urlsplit(target)
            self.asked.append(Asked(method, parts.path, parse_qs(parts.query), headers, body))
            self.pages[parts.path], parts_now = itertools.tee(self.pages.get(parts.path, iter(())))
            for part in parts_now:
                writer.write(part)
                await writer.drain()
        writer.close()


@pytest.fixture
async def web(anyio_backend: str) -> AsyncIterator[WebServer]:
    found = WebServer()
    server = await asyncio.start_server(found.serve, "127.0.0.1", 0)
    found.port = server.sockets[0].getsockname()[1]
    async with server:
        yield found


class Bench:
    """Calls tools, each time in an application of its own."""

    def __init__(self, folder: Path, stack: AsyncExitStack) -> None:
        self._folder = folder
        self._stack = stack

    async def output(
        self,
        make: Callable[[FakePluginContext], Tool],
        arguments: Mapping[str, JsonValue],
        *,
        settings: dict[str, JsonValue] | None = None,
        environment: dict[str, str] | None = None,
        network: NetworkPolicy | None = None,
    ) -> ToolOutput:
        context = await self._stack.enter_async_context(
            FakePluginContext(
                self._folder,
                settings=settings,
                plugin_id="web",
                environment=environment,
                network=network,
            )
        )
        where = call_in(context.workspace)
        return await make(context).execute(where, dict(arguments))

    async def fetch(
        self, url: str, *, settings: dict[str, JsonValue] | None = None, **more: JsonValue
    ) -> dict[str, Any]:
        """Return the JSON object that `web_fetch` gives for `url`."""
        output = await self.output(
            WebFetchTool, {"url": url, **more}, settings={"fetch": settings or {}}
        )
        found: dict[str, Any] = json.loads(output_text(output))
        return found

    async def search(self, **settings: JsonValue) -> str:
        """Return what `web_search` gives for "some query"."""
        output = await self.output(
            WebSearchTool, {"query": "some query"}, settings={"search": settings}
        )
        return output_text(output)


@pytest.fixture
async def bench(anyio_backend: str, tmp_path: Path) -> AsyncIterator[Bench]:
    async with AsyncExitStack() as stack:
        yield Bench(tmp_path, stack)
