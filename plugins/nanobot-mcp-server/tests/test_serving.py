"""Tools that are served to the SDK's own client, by real processes."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp import ClientSession, MCPError
from mcp_types import CallToolResult, TextContent

from nanobot_core.testing import GatewayProcess

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]
LIMIT_S = 30.0
Connect = Callable[..., AbstractAsyncContextManager[ClientSession]]
Configure = Callable[..., None]
HTTP: dict[str, Any] = (
    {"plugins": ["http"], "tools": {"serve_mcp": {"http": True}}}
    if find_spec("nanobot_http")
    else {}
)


async def until(holds: Callable[[], bool]) -> None:
    """Wait for what happens in another process."""
    async with asyncio.timeout(LIMIT_S):
        while not holds():  # noqa: ASYNC110 - nothing here can be awaited
            await asyncio.sleep(0.02)


async def called(session: ClientSession, name: str, **arguments: Any) -> tuple[str, bool]:
    """Call a tool; return the text and whether it is an error."""
    async with asyncio.timeout(LIMIT_S):
        result = await session.call_tool(name, arguments)
    assert isinstance(result, CallToolResult)
    (content,) = result.content
    assert isinstance(content, TextContent)
    return content.text, bool(result.is_error)


async def listed(session: ClientSession) -> set[str]:
    return {each.name for each in (await session.list_tools()).tools}


async def test_listed_tools_are_served_and_no_others(
    home: Path, configure: Configure, connect: Connect
) -> None:
    configure(home, "note", "lo*", **HTTP)
    async with connect(home) as session:
        tools = {each.name: each for each in (await session.list_tools()).tools}
        assert set(tools) == {"note", "look", "long_text"}
        assert tools["note"].input_schema["required"] == ["word"]
        reading = {name: each.annotations for name, each in tools.items()}
        hints = {name: each.read_only_hint for name, each in reading.items() if each}
        assert hints == {"look": True, "note": False, "long_text": False}
        assert await called(session, "note", word="once") == ("noted once", False)
        for name in ("fail", "invented", "served/fail", ""):
            with pytest.raises(MCPError, match="there is no such tool"):
                await called(session, name)

    assert (home / "workspace" / "notes.txt").read_text() == "once\n"


async def test_wrong_arguments_and_failures_are_results(
    home: Path, configure: Configure, connect: Connect
) -> None:
    configure(home, "note", "fail", **HTTP)
    async with connect(home) as session:
        for arguments in ({}, {"word": ["a"]}, {"word": "a", "times": "many"}):
            text, is_error = await called(session, "note", **arguments)
            assert is_error
            assert "word" in text or "times" in text
        text, is_error = await called(session, "fail")
        assert is_error
        assert "Traceback" not in text

    assert not (home / "workspace" / "notes.txt").exists()


async def test_results_are_bounded(home: Path, configure: Configure, stdio: Connect) -> None:
    configure(home, "long_text", tools={"serve_mcp": {"max_result_chars": 500}})
    async with stdio(home) as session:
        text, _ = await called(session, "long_text", chars=5_000)

    assert len(text) < 600  # with a note about what is left out
    assert text.startswith("xxx")


async def test_secrets_of_the_configuration_are_masked(
    home: Path, configure: Configure, stdio: Connect
) -> None:
    pytest.importorskip("nanobot_files")
    configure(home, "read_file", "note", plugins=["files"])
    async with stdio(home) as session:
        text, is_error = await called(session, "read_file", path=str(home / "config.yaml"))
        assert is_error
        assert "secret-of-the-gateway" not in text
        text, _ = await called(session, "note", word="secret-of-the-gateway-in-these-tests")
        assert "secret-of-the-gateway" not in text


async def test_guests_rights_serve_what_guests_may_use(
    home: Path, configure: Configure, stdio: Connect
) -> None:
    tools = {"serve_mcp": {"rights": "guest"}, "guests": {"allow": ["look"]}}
    configure(home, "*", tools=tools)
    async with stdio(home) as session:
        assert await listed(session) == {"look"}
        with pytest.raises(MCPError, match="no such tool"):
            await called(session, "note", word="no")


async def test_tools_that_the_owner_denies_stay_denied(
    home: Path, configure: Configure, stdio: Connect
) -> None:
    rules = [{"tool": "note", "action": "deny"}]
    configure(home, "*", tools={"deny": ["fail"], "approval": rules})
    async with stdio(home) as session:
        assert await listed(session) == {"note", "look", "long_text", "wait", "shout"}
        text, is_error = await called(session, "note", word="no")

    assert is_error
    assert "denied by the owner's rules" in text


async def test_without_a_gateway_a_call_that_needs_approval_is_refused(
    home: Path, configure: Configure, stdio: Connect
) -> None:
    configure(home, "note", tools={"approval": [{"tool": "note", "action": "ask"}]}, owner=["7"])
    async with stdio(home) as session:
        text, is_error = await called(session, "note", word="no")

    assert is_error
    assert "not approved" in text
    assert not (home / "workspace" / "notes.txt").exists()


async def test_in_a_gateway_the_owner_is_asked_in_a_chat(
    home: Path, configure: Configure, http: Connect
) -> None:
    paper = home / "paper"
    paper.mkdir(parents=True)
    configure(
        home,
        "note",
        plugins=["http"],
        tools={"serve_mcp": {"http": True}, "approval": [{"tool": "note", "action": "ask"}]},
        owner=["7"],
        channels={"paper": {"enabled": True, "folder": str(paper), "allow_from": ["*"]}},
    )

    def said(text: str) -> list[str]:
        """Return what was sent with `text` in it."""
        file = paper / "out"
        lines = file.read_text().splitlines() if file.exists() else []
        return [json.loads(line) for line in lines if text in line]

    def is_asked(times: int) -> bool:
        return len(said("Run note?")) == times

    def write(name: str, text: str) -> None:
        (paper / name).write_text(text)
        (paper / name).rename(paper / f"in-{name}")

    async with GatewayProcess(home), http(home) as session, asyncio.TaskGroup() as group:
        write("hello", "/help")
        await until(lambda: bool(said("Commands:")))
        for count, answer in enumerate(("deny", "approve"), 1):
            calling = group.create_task(called(session, "note", word="once"))
            await until(partial(is_asked, count))
            question = said("Run note?")[-1]
            assert "program by mcp: Run note?" in question
            number = question.rpartition("/deny ")[2].rstrip(".")
            write(answer, f"/{answer} {number}")
            _, is_error = await calling
            assert is_error is (answer == "deny")
            assert (home / "workspace" / "notes.txt").exists() is (answer == "approve")


async def test_a_cancelled_call_is_ended(
    home: Path, configure: Configure, connect: Connect
) -> None:
    configure(home, "wait", "look", **HTTP)
    waiting = home / "workspace" / "waiting"
    async with connect(home) as session:
        task = asyncio.create_task(session.call_tool("wait", {}))
        await until(waiting.exists)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await until(lambda: not waiting.exists())
        assert await called(session, "look") == ("nothing is here", False)


async def test_standard_output_has_the_protocol_only(
    home: Path, configure: Configure, stdio: Connect
) -> None:
    configure(home, "shout")
    async with stdio(home) as session:
        assert await called(session, "shout") == ("shouted", False)


def test_an_empty_list_is_an_error_that_says_so(
    home: Path, configure: Configure, environ: dict[str, str]
) -> None:
    configure(home)
    done = subprocess.run(
        [sys.executable, "-m", "nanobot_core", "serve-mcp"],
        env=environ,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert "no tool is served; list names or patterns under tools.serve_mcp.allow" in done.stderr


async def test_the_route_needs_the_secret_and_the_setting(
    home: Path, configure: Configure, address: Callable[[Path], Awaitable[str]]
) -> None:
    configure(home, "look", plugins=["http"])
    async with GatewayProcess(home):
        url = f"{await address(home)}/mcp"
        async with httpx2.AsyncClient(trust_env=False) as client:
            headers = {"Authorization": "Bearer secret-of-the-gateway-in-these-tests"}
            answer = await client.post(url, headers=headers, json={})
            assert (answer.status_code, "tools.serve_mcp.http" in answer.text) == (404, True)
            answer = await client.post(url, json={})
            assert answer.status_code == 401


def test_a_gateway_imports_the_sdk_for_the_first_request_only(tmp_path: Path) -> None:
    """It takes 26 MB, and most gateways serve no tools."""
    program = """
import asyncio, pathlib, sys
from nanobot_core.testing import FakePluginContext
from nanobot_mcp_server import http, settings

async def main(folder):
    section = settings.McpServerSettings(http=True, allow=("look",))
    async with FakePluginContext(folder, plugin_id="mcp-server", settings=section) as ctx:
        service = asyncio.create_task(http.make_service(ctx).run())
        await asyncio.sleep(0)
        before = "mcp" in sys.modules
        sent = []
        async def receive():
            return {"type": "http.request", "body": b"{}", "more_body": False}
        async def send(message):
            sent.append(message["type"])
        scope = {"type": "http", "method": "POST", "path": "/mcp", "headers": []}
        await http.build_app(ctx)(scope, receive, send)
        print(before, "mcp" in sys.modules, sent[0], service.done())
        service.cancel()

asyncio.run(main(pathlib.Path(sys.argv[1])))
"""
    command = [sys.executable, "-c", program, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=True)
    assert done.stdout.split() == ["False", "True", "http.response.start", "False"]


async def test_nanobot_mcp_uses_what_is_served(
    home: Path, configure: Configure, environ: dict[str, str], tmp_path: Path
) -> None:
    pytest.importorskip("nanobot_mcp")
    configure(home, "note", "look")
    other = tmp_path / "other"
    other.mkdir()
    server = {
        "command": sys.executable,
        "args": ["-m", "nanobot_core", "serve-mcp"],
        "env": environ,
    }
    (other / "config.yaml").write_text(json.dumps({"tools": {"mcp_servers": {"bot": server}}}))
    command = [sys.executable, "-m", "nanobot_core", "mcp", "call", "mcp_bot_note"]
    process = await asyncio.create_subprocess_exec(
        *command,
        '{"word": "far"}',
        env={**environ, "NANOBOT_HOME": str(other)},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(LIMIT_S):
        output, _ = await process.communicate()

    assert b"noted far" in output
    assert (home / "workspace" / "notes.txt").read_text() == "far\n"
