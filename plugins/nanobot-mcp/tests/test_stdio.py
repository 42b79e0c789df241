"""Servers on standard input and output, well-behaved and not."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest

from nanobot_core import ToolFailed, ToolInputError
from nanobot_core.testing import FakeClock

if TYPE_CHECKING:
    from conftest import Connect, Running

HERE = Path(__file__).resolve().parent


def raw(*mode: str, **settings: object) -> dict[str, object]:
    return {"command": sys.executable, "args": [str(HERE / "raw_server.py"), *mode], **settings}


@pytest.mark.anyio
async def test_tools_get_the_servers_name_and_are_called_by_their_own(connect: Connect) -> None:
    async with connect({"raw": raw()}) as bench:
        assert "mcp_raw_echo" in bench.names
        assert await bench.text("mcp_raw_echo", text="äöü ✓") == "äöü ✓"


@pytest.mark.anyio
async def test_the_environment_is_exactly_what_is_said(
    connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CANARY_TOKEN", "must not get out")
    monkeypatch.setenv("USER", "somebody")

    async with connect({"raw": raw(env={"MINE": "yes"})}) as bench:
        found = json.loads(await bench.text("mcp_raw_environment"))

    # LC_CTYPE is set by Python itself where the locale is C (PEP 538).
    assert set(found) - {"LC_CTYPE"} <= {"HOME", "LANG", "PATH", "TERM", "MINE"}
    assert found["MINE"] == "yes"
    assert found["PATH"] == os.environ["PATH"]


@pytest.mark.anyio
async def test_it_runs_in_the_workspace_or_where_it_is_reported(
    connect: Connect, tmp_path: Path
) -> None:
    program = "import os; print(os.getcwd(), file=__import__('sys').stderr)"
    servers = {
        "here": {"command": sys.executable, "args": ["-c", program]},
        "there": {"command": sys.executable, "args": ["-c", program], "cwd": str(tmp_path)},
    }
    async with connect(servers) as bench:
        assert bench.log("here").strip() == str(bench.context.workspace)
        assert bench.log("there").strip() == str(tmp_path)


@pytest.mark.anyio
async def test_a_server_that_dies_at_start_is_reported_with_its_exit_code(connect: Connect) -> None:
    async with connect({"bad": raw("dies"), "good": raw()}) as bench:
        assert "exit code 3" in bench.hub.connection("bad").failure
        assert "bad.log" in bench.hub.connection("bad").failure
        assert "the moon is full" in bench.log("bad")
        assert await bench.text("mcp_good_echo", text="fine") == "fine"


@pytest.mark.anyio
async def test_a_program_that_is_not_there_is_named(connect: Connect) -> None:
    async with connect({"gone": {"command": "no-such-program-here"}}) as bench:
        assert bench.hub.connection("gone").failure == "'no-such-program-here' does not exist"
        health = bench.hub.health()
        assert not health.ok
        assert "no-such-program-here" in health.message


@pytest.mark.anyio
async def test_a_server_that_never_answers_is_given_up(connect: Connect) -> None:
    async with connect({"deaf": raw("deaf", connect_timeout=0.5)}) as bench:
        assert "within 0.5 seconds" in bench.hub.connection("deaf").failure


@pytest.mark.anyio
async def test_a_server_that_writes_only_junk_is_given_up(connect: Connect) -> None:
    async with connect({"loud": raw("floods")}) as bench:
        assert "not MCP messages" in bench.hub.connection("loud").failure
        assert len(bench.log("loud")) < 200_000


@pytest.mark.anyio
async def test_forgotten_prints_do_not_matter(connect: Connect) -> None:
    async with connect({"chatty": raw("banner")}) as bench:
        assert await bench.text("mcp_chatty_noise") == "done"
        assert "Welcome to the server!" in bench.log("chatty")


@pytest.mark.anyio
async def test_a_call_that_kills_the_server_is_not_repeated_and_its_outcome_is_unknown(
    connect: Connect, tmp_path: Path
) -> None:
    note = tmp_path / "note"
    async with connect({"raw": raw()}) as bench:
        with pytest.raises(ToolFailed, match=r"exit code 7.*unknown"):
            await bench.call("mcp_raw_die", note=str(note))

        assert note.read_text() == "called\n"
        assert await bench.text("mcp_raw_echo", text="back") == "back"


@pytest.mark.anyio
async def test_a_reading_call_that_met_the_end_is_repeated_once(
    connect: Connect, tmp_path: Path
) -> None:
    note = tmp_path / "note"
    async with connect({"raw": raw()}) as bench:
        assert await bench.text("mcp_raw_read_die", note=str(note)) == "second time"
        with pytest.raises(ToolFailed, match="lost during the call"):
            await bench.call("mcp_raw_read_die", note=str(note))

    assert note.read_text() == "called\n" * 4


@pytest.mark.anyio
async def test_a_killed_server_is_connected_again_by_the_next_call(connect: Connect) -> None:
    async with connect({"raw": raw()}, clock=FakeClock()) as bench:
        psutil.Process(int(await bench.text("mcp_raw_pid"))).kill()
        await bench.until(lambda: bench.hub.connection("raw").state == "waiting")

        assert "mcp_raw_echo" in bench.names, "the tools stay"
        assert await bench.text("mcp_raw_echo", text="alive") == "alive"


@pytest.mark.anyio
async def test_a_server_that_is_away_is_tried_again_with_growing_pauses(connect: Connect) -> None:
    clock = FakeClock()
    async with connect({"bad": raw("dies")}, clock=clock) as bench:
        starts = []
        for pause_s in (1, 2, 4, 8, 16, 32, 60, 60):
            await clock.wait_for_sleepers(limit_s=10)
            starts.append(bench.log("bad").count("moon"))
            await clock.advance(pause_s - 0.1)
            assert bench.hub.connection("bad").state == "waiting"
            await clock.advance(0.1)
            await bench.until(lambda: bench.hub.connection("bad").state == "connecting")

        assert starts == [1, 2, 3, 4, 5, 6, 7, 8]


@pytest.mark.anyio
async def test_a_call_to_a_server_that_is_away_says_why(connect: Connect, tmp_path: Path) -> None:
    flag = tmp_path / "flag"
    program = (
        f"import os, sys; {str(flag)!r} and os.path.exists({str(flag)!r}) and sys.exit(9); "
        f"os.execv(sys.executable, [sys.executable, {str(HERE / 'raw_server.py')!r}])"
    )
    server = {"command": sys.executable, "args": ["-c", program]}
    async with connect({"raw": server}, clock=FakeClock()) as bench:
        flag.touch()
        psutil.Process(int(await bench.text("mcp_raw_pid"))).kill()
        await bench.until(lambda: bench.hub.connection("raw").state == "waiting")

        with pytest.raises(ToolFailed, match=r"'raw' cannot be reached: .*exit code 9"):
            await bench.call("mcp_raw_echo", text="hello")
        flag.unlink()
        assert await bench.text("mcp_raw_echo", text="hello") == "hello"


@pytest.mark.anyio
async def test_a_call_without_answer_ends_in_time_and_leaves_the_server_usable(
    connect: Connect,
) -> None:
    async with connect({"raw": raw(tool_timeout=0.3)}) as bench:
        with pytest.raises(ToolFailed, match=r"within 0\.3 seconds.*unknown"):
            await bench.call("mcp_raw_hang")

        assert await bench.text("mcp_raw_echo", text="still here") == "still here"
        assert bench.log("raw").count("ready") == 1


@pytest.mark.anyio
async def test_a_cancelled_call_leaves_the_server_usable(connect: Connect) -> None:
    async with connect({"raw": raw()}) as bench:
        for _ in range(5):
            async with asyncio.TaskGroup() as group:
                call = group.create_task(bench.call("mcp_raw_hang"))
                await asyncio.sleep(0.02)
                call.cancel()
        assert await bench.text("mcp_raw_echo", text="still here") == "still here"
        assert bench.log("raw").count("ready") == 1


@pytest.mark.anyio
async def test_calls_side_by_side_get_their_own_answers(connect: Connect) -> None:
    async with connect({"a": raw(), "b": raw()}) as bench, asyncio.TaskGroup() as group:
        calls = {
            (server, number): group.create_task(
                bench.text(f"mcp_{server}_echo", text=f"{server}{number}")
            )
            for number in range(20)
            for server in ("a", "b")
        }

    assert all(call.result() == f"{key[0]}{key[1]}" for key, call in calls.items())


@pytest.mark.anyio
@pytest.mark.parametrize("size", [1_100_000, 300_000_000])
async def test_an_answer_that_is_too_large_is_refused_without_being_held(
    connect: Connect, size: int
) -> None:
    async with connect({"raw": raw()}, max_message_bytes=1_000_000) as bench:
        await bench.text("mcp_raw_echo", text="warm")
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

        with pytest.raises(ToolFailed, match=f"{size:,}"[:3]):
            await bench.call("mcp_raw_big", size=size)

        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 60_000
        assert await bench.text("mcp_raw_echo", text="still here") == "still here"
        assert bench.log("raw").count("ready") == 1


@pytest.mark.long
@pytest.mark.anyio
async def test_an_answer_of_a_gigabyte_is_refused_without_being_held(connect: Connect) -> None:
    async with connect({"raw": raw()}) as bench:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        with pytest.raises(ToolFailed, match="max_message_bytes"):
            await bench.call("mcp_raw_big", size=1_000_000_000)
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 150_000


@pytest.mark.anyio
async def test_a_large_answer_within_the_limit_arrives(connect: Connect) -> None:
    async with connect({"raw": raw()}) as bench:
        text = await bench.text("mcp_raw_big", size=3_000_000)

    assert text.startswith("xxx")
    assert len(text) < 1_000_000


@pytest.mark.anyio
async def test_no_content_is_an_empty_result(connect: Connect) -> None:
    async with connect({"raw": raw()}) as bench:
        assert await bench.text("mcp_raw_nothing") == ""


@pytest.mark.anyio
async def test_an_answer_that_is_none_is_reported(connect: Connect) -> None:
    async with connect({"raw": raw()}) as bench:
        with pytest.raises(ToolFailed, match="violates the protocol"):
            await bench.call("mcp_raw_rubbish")
        assert await bench.text("mcp_raw_echo", text="still here") == "still here"


@pytest.mark.anyio
@pytest.mark.parametrize(("code", "kind"), [(-32602, ToolInputError), (-32603, ToolFailed)])
async def test_errors_of_the_server_are_reported(
    connect: Connect, code: int, kind: type[Exception]
) -> None:
    async with connect({"raw": raw()}) as bench:
        with pytest.raises(kind, match=f"{code}: not like this"):
            await bench.call("mcp_raw_refuse", code=code)
        assert bench.log("raw").count("ready") == 1


@pytest.mark.anyio
async def test_processes_that_a_server_leaves_behind_are_ended(connect: Connect) -> None:
    async with connect({"raw": raw()}) as bench:
        child = psutil.Process(int(await bench.text("mcp_raw_children")))
        assert child.is_running()
    assert not child.is_running() or child.status() == psutil.STATUS_ZOMBIE


@pytest.mark.anyio
async def test_a_server_that_ignores_the_end_is_killed(connect: Connect) -> None:
    async with connect({"raw": raw("stubborn")}) as bench:
        assert await bench.text("mcp_raw_echo", text="here") == "here"


@pytest.mark.anyio
async def test_a_server_under_way_to_start_is_ended_with_the_rest(
    connect: Connect, tmp_path: Path, running: Running
) -> None:
    async with connect({"late": raw("late", str(tmp_path / "never"))}, startup_grace_s=0) as bench:
        await bench.until(lambda: running() == 1)
        assert bench.names == []


@pytest.mark.anyio
async def test_new_tools_are_published_when_the_server_says_so(connect: Connect) -> None:
    async with connect({"raw": raw()}) as bench:
        kept = bench.tool("mcp_raw_echo")
        assert await bench.text("mcp_raw_change") == "changed"
        await bench.until(lambda: "mcp_raw_fresh" in bench.names)

        assert await bench.text("mcp_raw_fresh") == "fresh answer"
        assert bench.tool("mcp_raw_echo") is kept


@pytest.mark.anyio
async def test_stopping_leaves_the_context_nothing_to_clear_up(
    connect: Connect, tmp_path: Path
) -> None:
    """Without `stop`, the host's cancellation of the task ends the process as well."""
    async with connect({"raw": raw()}, begin=False) as bench:
        await bench.begin()
        child = psutil.Process(int(await bench.text("mcp_raw_pid")))
        await bench.context.__aexit__(None, None, None)
        assert not child.is_running()
