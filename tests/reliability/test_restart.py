"""``nanobot gateway restart``: a new program in the same process, and nobody notices."""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.util import find_spec
from pathlib import Path

import pytest

from nanobot_core.testing import PlayedDay, Reply, ScriptedModel, answers, played_day
from nanobot_core.testing.gateway import gateway_environment, until
from tests.stand_ins import installed_stand_ins

pytestmark = pytest.mark.anyio
for _plugin in ("files", "message", "openai", "shell"):
    if find_spec(f"nanobot_{_plugin}") is None:
        pytest.skip(f"nanobot-{_plugin} is not installed", allow_module_level=True)
FOUND = [kind for kind in installed_stand_ins() if kind.abilities.resends]
if not FOUND:
    pytest.skip("no channel is installed", allow_module_level=True)

LIMIT_S = 60.0
BEFORE, DURING = 5, 20


@asynccontextmanager
async def a_day(tmp_path: Path, script: ScriptedModel) -> AsyncIterator[PlayedDay]:
    gateway = {"port": 0, "grace_s": 20}
    home = tmp_path / "home"
    async with played_day(FOUND[0](), home, script, gateway=gateway) as day, day.running():
        yield day


async def restart(home: Path) -> tuple[int, str]:
    """Run the command, and return its exit code and what it printed."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "nanobot_core", "gateway", "restart"),
        env=gateway_environment(home),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    async with asyncio.timeout(LIMIT_S):
        printed, _ = await process.communicate()
    assert process.returncode is not None
    return process.returncode, printed.decode()


async def pid_of(day: PlayedDay) -> tuple[object, object]:
    status = await day.control("status")
    assert isinstance(status, dict)
    return status["pid"], status["started_at"]


async def test_messages_around_a_restart_are_answered_once_and_in_order(tmp_path: Path) -> None:
    slow = Reply(text="You said: number 4", delay_s=1.0)
    async with a_day(tmp_path, ScriptedModel({"number 4": slow})) as day:
        # What was written before the first answer of a chat may be history.
        await day.ask("hello", "You said: hello")
        for number in range(BEFORE):
            await day.say(f"number {number}")
        await until(lambda: len(day.model.requests) > BEFORE)
        pid, began = await pid_of(day)
        restarting = asyncio.create_task(restart(day.home))
        for number in range(BEFORE, DURING):
            await day.say(f"number {number}")
            await asyncio.sleep(0.1)
        code, printed = await restarting
        assert code == 0, printed
        assert "restarted" in printed

        def found() -> list[int]:
            texts = [message.text for message in answers(day.stand_in, day.chat_of())]
            return [int(each) for text in texts for each in re.findall(r"said: number (\d+)", text)]

        await until(lambda: len(found()) >= DURING)
        assert found() == list(range(DURING)), (
            day.conversation(day.chat_of()) + await day.gateway.reported()
        )
        assert sum("number 4" in str(each.body["messages"][-1]) for each in day.model.requests) == 1
        new_pid, new_began = await pid_of(day)
        assert new_pid == pid
        assert new_began != began


async def test_a_gateway_whose_new_configuration_has_an_error_continues(tmp_path: Path) -> None:
    async with a_day(tmp_path, ScriptedModel()) as day:
        before = await pid_of(day)
        config = day.home / "config.yaml"
        config.write_text(config.read_text() + "gatewai: {port: x}\ntools: 5\n")
        code, printed = await restart(day.home)
        assert code != 0
        assert "tools" in printed
        assert await pid_of(day) == before
        await day.ask("still there?", "You said: still there?")


async def test_a_restart_without_a_gateway_says_so(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    code, printed = await restart(tmp_path / "home")
    assert code != 0
    assert "no gateway" in printed
