"""Real servers, and a hub that is connected to them."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, TypeVar

import psutil
import pytest
from pydantic import BaseModel

from nanobot_core import Clock, SystemClock, ToolContext, ToolResult
from nanobot_core.testing import FakePluginContext
from nanobot_mcp.hub import Hub
from nanobot_mcp.settings import CopiedServers, McpSettings, OwnServers
from nanobot_mcp.tool import ConnectTool, McpTool

HERE = Path(__file__).resolve().parent
LIMIT_S = 40.0
NPM_VERSION = "2026.8.31"
NPM_PACKAGES = ("server-everything", "server-filesystem")
INSTALL_LIMIT_S = 300
UNREACHABLE = ("ENOTFOUND", "EAI_AGAIN", "ECONNREFUSED", "ECONNRESET", "ETIMEDOUT", "ENETUNREACH")
"""What npm prints without a network; see the errors of Node.js's ``dns`` and ``net``."""
ModelT = TypeVar("ModelT", bound=BaseModel)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def raw(*mode: str, **settings: Any) -> dict[str, Any]:
    """The settings of a server that misbehaves on request."""
    return {"command": sys.executable, "args": [str(HERE / "raw_server.py"), *mode], **settings}


def sdk(**settings: Any) -> dict[str, Any]:
    """The settings of a well-behaved server on standard input and output."""
    return {"command": sys.executable, "args": [str(HERE / "sdk_server.py"), "stdio"], **settings}


class McpContext(FakePluginContext):
    """A context with the plugin's three sections; the first turn waits for new servers."""

    def __init__(
        self,
        tmp_path: Path,
        own: Mapping[str, Any] | None = None,
        copied: Mapping[str, Any] | None = None,
        clock: Clock | None = None,
        **limits: Any,
    ) -> None:
        names = ("HOME", "LANG", "PATH", "TERM")
        environment = {name: os.environ[name] for name in names if name in os.environ}
        clock = clock or SystemClock()
        super().__init__(tmp_path, plugin_id="mcp", environment=environment, clock=clock)
        self._sections: tuple[BaseModel, ...] = (
            McpSettings.model_validate({"startup_grace_s": 20, **limits}),
            OwnServers.model_validate(own or {}),
            CopiedServers.model_validate(copied or {}),
        )

    def settings(self, model: type[ModelT]) -> ModelT:
        return next(found for found in self._sections if isinstance(found, model))


class Bench:
    """A hub in an entered context, and what a host would do with it."""

    def __init__(self, context: McpContext) -> None:
        self.context = context
        self.hub = context.shared(Hub)
        self.told: list[str] = []

    async def begin(self) -> None:
        """Do what the host does before the first turn that may use tools."""
        await self.hub.prepare()
        async with asyncio.timeout(LIMIT_S):
            await asyncio.to_thread(self.hub.begin)

    @property
    def names(self) -> list[str]:
        """Names of published tools."""
        return sorted(tool.name for tool in self._published if isinstance(tool, McpTool))

    @property
    def stand_ins(self) -> list[ConnectTool]:
        """Published tools that connect a server."""
        return [tool for tool in self._published if isinstance(tool, ConnectTool)]

    @property
    def _published(self) -> Sequence[object]:
        published = self.context.tools.published
        return published[-1] if published else ()

    def tool(self, name: str) -> McpTool:
        for tool in self._published:
            if isinstance(tool, McpTool) and tool.name == name:
                return tool
        raise AssertionError(f"{name} is not among {self.names}")

    async def call(self, name: str, /, **given: Any) -> ToolResult:
        async with asyncio.timeout(LIMIT_S):
            return await self.tool(name).execute(self.call_context(), given)

    async def text(self, name: str, /, **given: Any) -> str:
        content = (await self.call(name, **given)).content
        assert isinstance(content, str)
        return content

    def call_context(self) -> ToolContext:
        async def progress(text: str) -> None:
            self.told.append(text)

        return ToolContext(
            session_key="cli:a",
            turn_id="turn",
            call_id="call",
            workspace=self.context.workspace,
            files=self.context.files,
            progress=progress,
        )

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until `condition` holds."""
        async with asyncio.timeout(LIMIT_S):
            while not condition():  # noqa: ASYNC110 - conditions of any kind
                await asyncio.sleep(0.01)

    def log(self, server: str) -> str:
        """Return what the server has written to standard error so far."""
        file = self.context.data_dir / "logs" / f"{server}.log"
        return file.read_text("utf-8") if file.exists() else ""


Connect = Callable[..., AbstractAsyncContextManager[Bench]]


@pytest.fixture
def connect(tmp_path: Path) -> Connect:
    """Connect servers: ``connect({"raw": raw()}, max_message_bytes=…)``.

    On leaving, no child process, task or open file of the connections may be left.
    """

    @asynccontextmanager
    async def connect(
        own: Mapping[str, Any] | None = None, *, begin: bool = True, **options: Any
    ) -> AsyncIterator[Bench]:
        # What the SDK opens once and keeps must not be counted.
        import nanobot_mcp.http
        import nanobot_mcp.link  # noqa: F401

        await asyncio.to_thread(int)
        before = _possessions()
        context = McpContext(tmp_path, own, **options)
        async with context:
            bench = Bench(context)
            try:
                if begin:
                    await bench.begin()
                yield bench
            finally:
                await bench.hub.close()
        async with asyncio.timeout(5):  # sockets are closed by the next turns of the loop
            while _possessions() != before:  # noqa: ASYNC110 - what the system counts
                await asyncio.sleep(0.01)

    return connect


def _possessions() -> dict[str, Any]:
    process = psutil.Process()
    return {
        "children": sorted(child.pid for child in process.children(recursive=True)),
        "files": process.num_fds(),
        "tasks": len(asyncio.all_tasks()),
    }


Running = Callable[[], int]


@pytest.fixture
def running() -> Running:
    """Counts the children that run ``raw_server.py``."""

    def count() -> int:
        children = psutil.Process().children(recursive=True)
        return sum(any("raw_server.py" in word for word in child.cmdline()) for child in children)

    return count


Serve = Callable[..., str]


@pytest.fixture(scope="session")
def serve() -> Iterator[Serve]:
    """Give the address of the SDK's server over HTTP: ``serve("sse")``, ``serve("http", "b")``.

    One of each name is started in a run, since it takes seconds.
    """
    children: list[subprocess.Popen[str]] = []
    addresses: dict[tuple[str, str], str] = {}

    def serve(kind: str, name: str = "") -> str:
        if (kind, name) not in addresses:
            command = [sys.executable, str(HERE / "sdk_server.py"), kind]
            child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
            children.append(child)
            assert child.stdout is not None
            addresses[kind, name] = child.stdout.readline().strip()
        return addresses[kind, name]

    yield serve
    for child in children:
        child.kill()
        child.communicate()


@pytest.fixture(scope="session")
def node_modules(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The reference servers of npm; installed once and kept in pytest's cache."""
    npm = shutil.which("npm")
    if npm is None or shutil.which("node") is None:
        pytest.skip("npm and node are not on PATH; install Node.js to test the servers of npm")
    kept = getattr(request.config, "cache", None)  # absent without pytest's plugin for it
    cache: Path = kept.mkdir("nanobot-mcp-npm") if kept else tmp_path_factory.mktemp("npm")
    folder = cache / NPM_VERSION
    if not folder.exists():
        fresh = Path(tempfile.mkdtemp(dir=cache))
        try:
            _install(npm, fresh)
            # Another worker may have been faster, which is as good.
            with suppress(OSError):
                fresh.rename(folder)
        finally:
            shutil.rmtree(fresh, ignore_errors=True)
    return folder / "node_modules"


def _install(npm: str, folder: Path) -> None:
    wanted = [f"@modelcontextprotocol/{name}@{NPM_VERSION}" for name in NPM_PACKAGES]
    options = ("--no-audit", "--no-fund", "--no-save", "--prefix", str(folder))
    done = subprocess.run(
        [npm, "install", *options, *wanted],
        capture_output=True,
        text=True,
        timeout=INSTALL_LIMIT_S,
        check=False,
    )
    if done.returncode:
        told = done.stderr.strip()[-300:]
        if any(f"code {code}" in done.stderr for code in UNREACHABLE):
            pytest.skip(f"npm cannot reach its registry: {told}")
        pytest.fail(f"npm cannot install the servers: {told}")


class Page(BaseHTTPRequestHandler):
    def log_message(self, *args: Any) -> None:
        pass

    def do_GET(self) -> None:
        body = b"<html><body><h1>Title</h1><p>Some words to read.</p></body></html>"
        self.send_response(404 if self.path == "/robots.txt" else 200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@pytest.fixture
def page() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Page)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}/"
    server.shutdown()
    thread.join()
    server.server_close()
