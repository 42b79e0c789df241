"""What the plugin gives, its settings, and the contract of its tools."""

from __future__ import annotations

import asyncio
import importlib
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from pydantic import ValidationError

from nanobot_core import JsonObject, LazyTool, Tool
from nanobot_core.testing import FakePluginContext, ToolContract, call_in, output_text
from nanobot_web import plugin
from nanobot_web.settings import WebSettings
from nanobot_web.web_fetch import WebFetchTool
from nanobot_web.web_search import WebSearchTool


class Page(BaseHTTPRequestHandler):
    """One page, which is a results page too."""

    def do_GET(self) -> None:
        body = b"<html><body><p>Some words of a page.</p></body></html>"
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.do_GET()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base's name
        pass


class Server(ThreadingHTTPServer):
    """Clients that go away in the middle are part of the contract."""

    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        pass


class _Contract(ToolContract):
    limit_s = 30.0
    tool_class: type[Tool]
    port = 0

    @pytest.fixture(autouse=True)
    def served(self) -> Iterator[None]:
        server = Server(("127.0.0.1", 0), Page)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        type(self).port = server.server_port
        self.sample_arguments = self.arguments(f"http://127.0.0.1:{server.server_port}")
        yield
        server.shutdown()
        thread.join()
        server.server_close()

    def arguments(self, url: str) -> JsonObject:
        raise NotImplementedError

    def make_context(self, tmp_path: Path) -> FakePluginContext:
        settings = {"search": {"base_url": f"http://127.0.0.1:{self.port}"}}
        return FakePluginContext(tmp_path, plugin_id="web", settings=settings)  # type: ignore[arg-type]  # nested JSON

    def make_tool(self, context: FakePluginContext) -> Tool:
        return self.tool_class(context)  # type: ignore[call-arg]  # both take it


class TestWebFetch(_Contract):
    tool_class = WebFetchTool

    def arguments(self, url: str) -> JsonObject:
        return {"url": url, "extract_mode": "text", "max_chars": "1000"}


class TestWebSearch(_Contract):
    tool_class = WebSearchTool

    def arguments(self, url: str) -> JsonObject:
        return {"query": "words", "count": "3"}


def test_every_tool_is_found_under_its_name(tmp_path: Path) -> None:
    for lazy in plugin.contribute_tools(FakePluginContext(tmp_path)):
        assert isinstance(lazy, LazyTool)
        module, _, name = lazy.factory.partition(":")

        assert getattr(importlib.import_module(module), name).name == lazy.name


def test_switched_off_there_are_not_tools(tmp_path: Path) -> None:
    context = FakePluginContext(tmp_path, settings={"enable": False})

    assert list(plugin.contribute_tools(context)) == []


def test_the_section_of_the_original_is_read() -> None:
    settings = WebSettings.model_validate(
        {
            "enable": True,
            "proxy": "",
            "userAgent": None,
            "search": {
                "provider": " Brave ",
                "apiKey": "k",
                "baseUrl": "",
                "maxResults": 7,
                "timeout": 12,
            },
        }
    )

    assert settings.proxy is None
    assert (settings.search.provider, settings.search.max_results) == ("brave", 7)
    assert settings.search.timeout_s == 12
    assert settings.search.api_key is not None
    assert repr(settings.search.api_key) != "k"


@pytest.mark.parametrize("proxy", ["ftp://user:secret@x", "secret", "socks5://", "http://"])
def test_a_proxy_that_is_none_is_refused_without_showing_it(proxy: str) -> None:
    with pytest.raises(ValidationError, match="socks5://host:1080") as caught:
        WebSettings.model_validate({"proxy": proxy})
    assert "secret" not in str(caught.value)


async def test_requests_go_through_the_owners_proxy(tmp_path: Path) -> None:
    lines: list[str] = []

    async def proxy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        lines.append(head.decode().splitlines()[0])
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 3\r\n\r\nyes")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(proxy, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    settings = {"proxy": f"http://127.0.0.1:{port}"}
    async with server, FakePluginContext(tmp_path, settings=settings) as context:
        tool = WebFetchTool(context)
        output = await tool.execute(call_in(context.workspace), {"url": "http://127.0.0.1:9/x"})

    assert lines == ["GET http://127.0.0.1:9/x HTTP/1.1"]
    assert "yes" in output_text(output)


def test_importing_the_entry_module_loads_neither_tools_nor_libraries() -> None:
    program = (
        "import sys, json; import nanobot_web.plugin; "
        "print(json.dumps([m for m in sys.modules if m.partition('.')[0] in "
        "('nanobot_web', 'pydantic', 'httpx', 'httpcore', 'trafilatura', 'lxml', 'pypdf')]))"
    )
    output = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, check=True, timeout=30
    ).stdout

    assert sorted(json.loads(output)) == [
        *("nanobot_web", "nanobot_web.plugin"),
    ]


def test_extraction_libraries_are_loaded_at_first_use_only() -> None:
    program = (
        "import sys; import nanobot_web.web_fetch, nanobot_web.web_search; "
        "print([m for m in ('trafilatura', 'lxml', 'pypdf') if m in sys.modules])"
    )
    output = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, check=True, text=True, timeout=30
    ).stdout

    assert output.strip() == "[]"
