"""When a server is connected, and what it offers before."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from nanobot_core import ToolFailed
from nanobot_core.testing import FakeClock
from nanobot_mcp.hub import HEAD_START_S

if TYPE_CHECKING:
    from conftest import Bench, Connect, Running

HERE = Path(__file__).resolve().parent


def raw(*mode: str, **settings: Any) -> dict[str, Any]:
    return {"command": sys.executable, "args": [str(HERE / "raw_server.py"), *mode], **settings}


async def connect_by_call(bench: Bench) -> str:
    """Call the only tool that connects a server."""
    (stand_in,) = bench.stand_ins
    async with asyncio.timeout(40):
        return await stand_in.execute(bench.call_context(), {})


@pytest.mark.anyio
async def test_a_new_server_is_connected_without_a_call_once_the_turn_has_had_its_start(
    connect: Connect, running: Running
) -> None:
    clock = FakeClock()
    async with connect({"raw": raw()}, startup_grace_s=0, clock=clock) as bench:
        await clock.wait_for_sleepers()
        assert running() == 0

        await clock.advance(HEAD_START_S)
        await bench.until(lambda: "mcp_raw_echo" in bench.names)

        assert bench.stand_ins == []


@pytest.mark.anyio
async def test_a_known_server_is_started_by_a_call_of_its_tool_and_not_before(
    connect: Connect, running: Running
) -> None:
    async with connect({"raw": raw()}):
        pass
    clock = FakeClock()
    async with connect({"raw": raw()}, startup_grace_s=0, clock=clock) as bench:
        await clock.wait_for_sleepers()
        await clock.advance(HEAD_START_S)
        assert "mcp_raw_echo" in bench.names
        assert bench.hub.connection("raw").state == "idle"
        assert running() == 0
        assert bench.hub.health().ok

        assert await bench.text("mcp_raw_echo", text="here") == "here"

        assert running() == 1


@pytest.mark.anyio
async def test_the_call_that_connects_a_known_server_brings_its_new_tools(
    connect: Connect, tmp_path: Path
) -> None:
    listed = tmp_path / "tools.json"
    schema = {"type": "object", "properties": {}}
    listed.write_text(json.dumps([{"name": "old", "inputSchema": schema}]))
    async with connect({"raw": raw("tools", str(listed))}) as bench:
        assert bench.names == ["mcp_raw_old"]
    listed.write_text(json.dumps([{"name": n, "inputSchema": schema} for n in ("old", "young")]))

    async with connect({"raw": raw("tools", str(listed))}) as bench:
        assert bench.names == ["mcp_raw_old"]
        await bench.text("mcp_raw_old")

        assert bench.names == ["mcp_raw_old", "mcp_raw_young"]


@pytest.mark.anyio
async def test_a_server_that_offered_nothing_is_asked_again_by_the_next_process(
    connect: Connect, tmp_path: Path
) -> None:
    listed = tmp_path / "tools.json"
    listed.write_text("[]")
    async with connect({"raw": raw("tools", str(listed))}) as bench:
        assert bench.hub.connection("raw").state == "connected"
        assert (bench.names, bench.stand_ins) == ([], [])
    listed.write_text(json.dumps([{"name": "first", "inputSchema": {"type": "object"}}]))

    async with connect({"raw": raw("tools", str(listed))}) as bench:
        assert bench.names == ["mcp_raw_first"]


@pytest.mark.anyio
async def test_a_call_of_the_stand_in_puts_the_tools_of_the_server_in_its_place(
    connect: Connect,
) -> None:
    async with connect({"raw": raw()}, startup_grace_s=0, clock=FakeClock()) as bench:
        (stand_in,) = bench.stand_ins
        assert stand_in.name == "mcp_raw_connect"
        assert "MCP server 'raw'" in stand_in.description
        assert stand_in.read_only

        told = await connect_by_call(bench)

        assert bench.stand_ins == []
        assert len(bench.names) == 13
        assert all(name in told for name in bench.names)
        assert await bench.text("mcp_raw_echo", text="here") == "here"
        again = await stand_in.execute(bench.call_context(), {})
        assert again == told, "a call that was on its way when the tools came"


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("server", "reason"),
    [
        (raw("dies"), "exit code 3"),
        (raw("deaf", connect_timeout=0.5), "within 0.5 seconds"),
        ({"command": "no-such-program"}, "'no-such-program' does not exist"),
    ],
    ids=["dies", "is deaf", "is missing"],
)
async def test_the_stand_in_of_a_broken_server_reports_why_it_cannot_be_connected(
    connect: Connect, server: dict[str, Any], reason: str
) -> None:
    async with connect({"bad": server}, startup_grace_s=0, clock=FakeClock()) as bench:
        for _ in range(2):
            with pytest.raises(ToolFailed, match=f"'bad' cannot be reached: .*{reason}"):
                await connect_by_call(bench)
        assert not bench.hub.health().ok


@pytest.mark.anyio
async def test_a_call_of_the_stand_in_joins_the_attempt_that_is_under_way(
    connect: Connect, running: Running, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    clock = FakeClock()
    async with connect({"late": raw("late", str(gate))}, startup_grace_s=0, clock=clock) as bench:
        await clock.wait_for_sleepers()
        await clock.advance(HEAD_START_S)
        await bench.until(lambda: running() == 1)
        async with asyncio.TaskGroup() as group:
            call = group.create_task(connect_by_call(bench))
            gate.touch()

        assert "mcp_late_echo" in call.result()
        await bench.until(lambda: "ready" in bench.log("late"))
        assert bench.log("late").count("ready") == 1


@pytest.mark.anyio
async def test_a_server_of_which_nothing_is_enabled_has_no_stand_in(connect: Connect) -> None:
    async with connect(
        {"none": raw(enabled_tools=[]), "one": raw(enabled_tools=["echo"])},
        startup_grace_s=0,
        clock=FakeClock(),
    ) as bench:
        assert [tool.name for tool in bench.stand_ins] == ["mcp_one_connect"]

        assert "mcp_one_echo" in await connect_by_call(bench)
        assert bench.names == ["mcp_one_echo"]


@pytest.mark.anyio
async def test_stand_ins_have_clean_names_of_their_own(connect: Connect, tmp_path: Path) -> None:
    listed = tmp_path / "tools.json"
    listed.write_text(json.dumps([{"name": "c_connect", "inputSchema": {"type": "object"}}]))
    async with connect({"a_b": raw("tools", str(listed))}) as bench:
        assert bench.names == ["mcp_a_b_c_connect"]

    servers = {"a_b": raw("tools", str(listed)), "a_b_c": raw(), "a b c": raw(), "ü": raw()}
    async with connect(servers, startup_grace_s=0, clock=FakeClock()) as bench:
        names = [*bench.names, *(tool.name for tool in bench.stand_ins)]

        assert len(set(names)) == 4
        assert "mcp___connect" in names
        assert sum(name.startswith("mcp_a_b_c_connect_") for name in names) == 3
