"""Servers of tools that die, fall silent and come back, beside an agent that lives on.

Time is a clock that stands still until a test moves it: ten minutes without a server take as long
as the attempts to reach it, and each of them is counted.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, TypeAlias
from uuid import uuid4

import pytest

from nanobot_core import Nanobot
from nanobot_core.config.loading import load_config
from nanobot_core.plugins.catalogue import Catalogue
from nanobot_core.plugins.index import load_installed
from nanobot_core.testing import FakeClock
from tests.gateways import until

for _needed in ("nanobot-mcp", "nanobot-offline"):
    try:
        version(_needed)
    except PackageNotFoundError:
        pytest.skip(f"{_needed} is not installed", allow_module_level=True)

psutil = pytest.importorskip("psutil")

pytestmark = pytest.mark.anyio

LIMIT_S = 50.0
AWAY_S = 600.0
BACK_S = 90.0
FEWEST_ATTEMPTS, MOST_ATTEMPTS = 10, 16
"""In ten minutes: six with growing pauses in the first one, then one a minute, and one to spare."""

PROGRAM = '''\
"""A server whose starts are written down, and which ends at once unless a file is there."""

import json, os, sys
from pathlib import Path

starts, up = map(Path, sys.argv[1:])
with starts.open("a") as file:
    file.write(f"{os.getpid()}\\n")
if not up.exists():
    sys.exit(3)
for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message:
        continue
    answer = {"jsonrpc": "2.0", "id": message["id"]}
    method, given = message["method"], message.get("params", {})
    if method == "initialize":
        answer["result"] = {
            "protocolVersion": given["protocolVersion"],
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "program", "version": "1"},
        }
    elif method == "tools/list":
        schema = {"type": "object", "properties": {}}
        answer["result"] = {
            "tools": [{"name": name, "inputSchema": schema} for name in ("hang", "who")]
        }
    elif method == "tools/call" and given["name"] == "who":
        answer["result"] = {"content": [{"type": "text", "text": f"pid {os.getpid()}"}]}
    elif method == "tools/call":
        continue
    else:
        answer["error"] = {"code": -32601, "message": "no such method"}
    print(json.dumps(answer), flush=True)
'''


class Program:
    """A server on standard input and output.

    Attributes:
        settings: how an agent starts it.
    """

    def __init__(self, folder: Path, *, is_up: bool = True) -> None:
        folder.mkdir()
        self._starts, self._up = folder / "starts", folder / "up"
        file = folder / "server.py"
        file.write_text(PROGRAM)
        arguments = [str(file), str(self._starts), str(self._up)]
        self.settings: dict[str, Any] = {"command": sys.executable, "args": arguments}
        if is_up:
            self._up.touch()

    @property
    def pids(self) -> list[int]:
        """Of all processes so far."""
        text = self._starts.read_text() if self._starts.exists() else ""
        return [int(line) for line in text.splitlines()]

    def kill(self) -> None:
        os.kill(self.pids[-1], signal.SIGKILL)

    async def go(self) -> None:
        """Be away from now on."""
        self._up.unlink()
        self.kill()

    async def come(self) -> None:
        self._up.touch()

    @property
    def attempts(self) -> int:
        return len(self.pids)

    async def close(self) -> None:
        pass


class Service:
    """A server over streamable HTTP in its simplest form: JSON answers, sessions, silent streams.

    Attributes:
        status: what every request is answered with, or 0 to serve.
        attempts: how many sessions clients have asked for, in vain or not.
    """

    def __init__(self, status: int = 0) -> None:
        self.status = status
        self.attempts = 0
        self._sessions: set[str] = set()
        self._writers: set[asyncio.StreamWriter] = set()
        self._server: asyncio.Server | None = None
        # The port is the service's also while nobody listens there.
        self._place = socket.socket()
        self._place.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        self._place.bind(("127.0.0.1", 0))
        self._port: int = self._place.getsockname()[1]

    @property
    def settings(self) -> dict[str, Any]:
        return {"url": f"http://127.0.0.1:{self._port}/mcp"}

    async def come(self) -> None:
        """Serve; one that was away knows no session any more."""
        self.status = 0
        if self._server is None:
            self._server = await asyncio.start_server(
                self._serve, "127.0.0.1", self._port, reuse_port=True
            )

    async def go(self) -> None:
        """Refuse all connections from now on."""
        server, self._server = self._server, None
        if server is not None:
            server.close()
        self._sessions.clear()
        await self.drop()
        if server is not None:
            await server.wait_closed()

    async def drop(self) -> None:
        """End the connections, as a proxy does with those on which nothing moves."""
        for writer in self._writers:
            writer.close()
        await self.quiet()

    async def quiet(self) -> None:
        """Wait until nobody is connected."""
        await until(lambda: not self._writers)

    async def close(self) -> None:
        await self.go()
        self._place.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                await self._answer(head.decode("latin-1").split("\r\n"), reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # the client has gone, or `drop` was called
        finally:
            writer.close()
            self._writers.discard(writer)

    async def _answer(
        self, head: list[str], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        method = head[0].partition(" ")[0]
        headers = {
            name.lower(): value.strip()
            for name, _, value in (line.partition(":") for line in head[1:])
        }
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        message = json.loads(body) if body else {}
        session = headers.get("mcp-session-id", "")
        is_first = message.get("method") == "initialize"
        self.attempts += is_first
        if self.status:
            status, result = self.status, b""
        elif method == "GET":
            # Nothing is ever said on this stream, which ends with its connection.
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n")
            await writer.drain()
            return
        elif method == "DELETE":
            status, result = 200, b""
        elif is_first:
            session = uuid4().hex
            self._sessions.add(session)
            status, result = 200, self._result(message)
        elif message["method"] == "server/discover":
            status, result = 400, b""
        elif session not in self._sessions:
            status, result = 404, b""
        else:
            status, result = (200, self._result(message)) if "id" in message else (202, b"")
        writer.write(
            f"HTTP/1.1 {status} X\r\nContent-Type: application/json\r\n"
            f"Mcp-Session-Id: {session}\r\nContent-Length: {len(result)}\r\n\r\n".encode()
            + result
        )
        await writer.drain()

    def _result(self, message: dict[str, Any]) -> bytes:
        results = {
            "initialize": {
                "protocolVersion": message.get("params", {}).get("protocolVersion"),
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "service", "version": "1"},
            },
            "tools/list": {
                "tools": [{"name": "who", "inputSchema": {"type": "object", "properties": {}}}]
            },
            "tools/call": {"content": [{"type": "text", "text": "the service"}]},
        }
        record = {"jsonrpc": "2.0", "id": message["id"], "result": results[message["method"]]}
        return json.dumps(record).encode()


Server: TypeAlias = Program | Service


class PacedClock(FakeClock):
    """A clock that is moved in steps between which everything may take the time it takes."""

    async def move(self, seconds: float, done: Callable[[], bool] = lambda: False) -> None:
        """Move on while somebody sleeps, until `done` holds or the time is over."""
        end_s = self.monotonic_s() + seconds
        while self.monotonic_s() < end_s:
            # An attempt under way is waited for: its end is a sleep, or what the test waits for.
            await until(lambda: bool(self.sleeper_count) or done(), LIMIT_S)
            if done():
                return
            await self.advance(1)


@dataclass(frozen=True, slots=True)
class Agent:
    """A running agent that calls the tool that a message names."""

    bot: Nanobot
    clock: PacedClock

    async def call(self, name: str) -> str:
        """Call a tool in a separate turn and return the result for the model."""
        outcome = await self.bot.run(f"{name} {{}}")
        assert outcome.error is None
        assert outcome.tools_used == (name,)
        return str(outcome.reply)

    @property
    def tools(self) -> list[str]:
        return sorted(tool.name for tool in self.bot.tools.get_definitions())


@asynccontextmanager
async def agent(tmp_path: Path, **servers: Server) -> AsyncIterator[Agent]:
    """Run an agent with these servers; afterwards, nothing of it may be left."""
    await asyncio.to_thread(int)  # the executor is the loop's, and stays
    home, clock = tmp_path / "home", PacedClock()
    values: dict[str, Any] = {
        "agents.defaults.provider": "offline",
        "agents.defaults.workspace": str(tmp_path / "workspace"),
        "tools.mcp_servers": {name: server.settings for name, server in servers.items()},
        "tools.mcp.startup_grace_s": 20,
    }
    loaded = load_config(None, environ={}, overrides=values, home=home)
    installed = [item for item in load_installed(home / "cache") if item.id in {"mcp", "offline"}]
    catalogue = Catalogue(installed, loaded.settings.plugins)
    environ = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    bot = Nanobot(loaded, clock=clock, environ=environ, catalogue=catalogue)
    before = await _possessions(*servers.values())
    try:
        async with asyncio.timeout(LIMIT_S):
            async with bot:
                yield Agent(bot, clock)
            assert await _possessions(*servers.values()) == before
    finally:
        for server in servers.values():
            await server.close()


async def _possessions(*servers: Server) -> dict[str, Any]:
    for server in servers:
        if isinstance(server, Service):
            await server.quiet()
    await asyncio.sleep(0)
    process = psutil.Process()
    return {
        "children": sorted(child.pid for child in process.children(recursive=True)),
        "tasks": sorted(task.get_name() for task in asyncio.all_tasks()),
    }


STEADY = ["mcp_steady_hang", "mcp_steady_who"]


async def test_a_killed_server_is_started_again_while_nobody_calls_it(tmp_path: Path) -> None:
    steady, other = Program(tmp_path / "steady"), Program(tmp_path / "other")
    async with agent(tmp_path, steady=steady, other=other) as it:
        told = await it.call("mcp_other_who")
        assert f"pid {other.pids[0]}" in told
        tools = it.tools
        other.kill()
        await it.clock.move(BACK_S, lambda: len(other.pids) == 2)
        assert len(other.pids) == 2
        assert it.tools == tools

        assert f"pid {other.pids[1]}" in await it.call("mcp_other_who")
        assert f"pid {steady.pids[0]}" in await it.call("mcp_steady_who")
    assert (len(steady.pids), len(other.pids)) == (1, 2)


async def test_an_idle_connection_that_was_ended_is_not_noticed_in_the_next_turn(
    tmp_path: Path,
) -> None:
    steady, far = Program(tmp_path / "steady"), Service()
    await far.come()
    async with agent(tmp_path, steady=steady, far=far) as it:
        assert "the service" in await it.call("mcp_far_who")
        tools = it.tools
        await it.clock.advance(3600)
        await far.drop()

        assert "the service" in await it.call("mcp_far_who")
        assert it.tools == tools
        assert f"pid {steady.pids[0]}" in await it.call("mcp_steady_who")
    assert far.attempts <= 2


@pytest.mark.parametrize("kind", ["its process ends", "refused", "HTTP 530"])
async def test_ten_minutes_away_cost_few_attempts_and_the_tools_are_back_soon(
    tmp_path: Path, kind: str
) -> None:
    steady = Program(tmp_path / "steady")
    far: Server = Program(tmp_path / "far") if kind == "its process ends" else Service()
    await far.come()
    async with agent(tmp_path, steady=steady, far=far) as it:
        await it.call("mcp_far_who")
        tools = it.tools
        await _leave(far, kind)
        assert "MCP server 'far'" in await it.call("mcp_far_who")
        attempts, began_s = far.attempts, it.clock.monotonic_s()
        pauses = _count_pauses(it.clock)
        await it.clock.move(AWAY_S)
        assert it.clock.monotonic_s() - began_s >= AWAY_S
        assert FEWEST_ATTEMPTS <= len(pauses) <= MOST_ATTEMPTS, pauses
        assert far.attempts - attempts <= MOST_ATTEMPTS
        assert "cannot be reached" in await it.call("mcp_far_who")
        assert it.tools == tools
        assert f"pid {steady.pids[0]}" in await it.call("mcp_steady_who")

        await until(lambda: bool(it.clock.sleeper_count))
        attempts, gone_s = far.attempts, it.clock.monotonic_s()
        await far.come()
        await it.clock.move(BACK_S, lambda: far.attempts > attempts)
        assert it.clock.monotonic_s() - gone_s < BACK_S
        assert far.attempts == attempts + 1
        told = await it.call("mcp_far_who")
        assert "the service" in told or f"pid {far.pids[-1]}" in told  # type: ignore[union-attr]  # a program
        assert far.attempts == attempts + 1, "it was back before it was called"
    assert len(steady.pids) == 1


async def _leave(server: Server, kind: str) -> None:
    if kind == "HTTP 530":
        assert isinstance(server, Service)
        server.status = 530
        await server.drop()
    else:
        await server.go()


def _count_pauses(clock: PacedClock) -> list[float]:
    """Write down from now on how long somebody sleeps on `clock`."""
    found: list[float] = []
    sleep = clock.sleep

    async def noted(delay_s: float) -> None:
        found.append(delay_s)
        await sleep(delay_s)

    clock.sleep = noted  # type: ignore[method-assign]  # the test's own clock
    return found


@pytest.mark.parametrize("kind", ["its process ends", "refused", "HTTP 530"])
async def test_a_server_that_is_not_up_at_the_start_brings_its_tools_when_it_is(
    tmp_path: Path, kind: str
) -> None:
    steady = Program(tmp_path / "steady")
    far: Server = (
        Service(530) if kind != "its process ends" else Program(tmp_path / "far", is_up=False)
    )
    if kind == "HTTP 530":
        await far.come()
        await _leave(far, kind)
    async with agent(tmp_path, steady=steady, far=far) as it:
        told = await it.call("mcp_steady_who")
        assert f"pid {steady.pids[0]}" in told
        assert it.tools == ["mcp_far_connect", *STEADY]
        assert "MCP server 'far' cannot be reached" in await it.call("mcp_far_connect")
        await it.clock.move(120)
        await until(lambda: bool(it.clock.sleeper_count))
        gone_s = it.clock.monotonic_s()
        await far.come()
        await it.clock.move(BACK_S, lambda: "mcp_far_who" in it.bot.tools)

        assert it.clock.monotonic_s() - gone_s < BACK_S
        assert it.tools[-2:] == STEADY
        assert "mcp_far_who" in it.tools
        assert "mcp_far_connect" not in it.tools
        await it.call("mcp_far_who")
    assert len(steady.pids) == 1


async def test_a_call_without_an_answer_takes_no_tools_and_no_server_along(tmp_path: Path) -> None:
    steady, other = Program(tmp_path / "steady"), Program(tmp_path / "other")
    other.settings["tool_timeout_s"] = 3
    async with agent(tmp_path, steady=steady, other=other) as it:
        await it.call("mcp_other_who")
        tools = it.tools
        assert tools == ["mcp_other_hang", "mcp_other_who", *STEADY]

        assert "did not answer within 3 seconds" in await it.call("mcp_other_hang")

        assert it.tools == tools
        assert f"pid {steady.pids[0]}" in await it.call("mcp_steady_who")
        assert f"pid {other.pids[0]}" in await it.call("mcp_other_who")
    assert (len(steady.pids), len(other.pids)) == (1, 1)
