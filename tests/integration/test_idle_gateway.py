"""A gateway to which nobody writes asks no model, until one of its jobs has something to do."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from nanobot_core import Every, PluginContext, SystemJob, ToolCall, on
from nanobot_core.testing import FakeClock, FakeReply
from tests.gateways import LIMIT_S, Platform, running, write_config
from tests.scripted_provider import ScriptedPlugin

pytest.importorskip("nanobot_cron.scheduler")
pytest.importorskip("nanobot_heartbeat")
pytest.importorskip("nanobot_memory")
pytestmark = pytest.mark.anyio
INTERVAL_S = 1800.0
BEATS = 48


class Metronome:
    """Contributes a job at the interval of the heartbeat."""

    def __init__(self) -> None:
        self.beats = asyncio.Semaphore(0)

    @on.contribute_jobs
    def contribute_jobs(self, ctx: PluginContext) -> Iterable[SystemJob]:
        """Contribute the job."""
        yield SystemJob(id="metronome", summary="tick", schedule=Every(INTERVAL_S), run=self._tick)

    async def next_beat(self, clock: FakeClock) -> None:
        """Move the clock on until the job has run."""
        async with asyncio.timeout(LIMIT_S):
            while self.beats.locked():
                await clock.advance(INTERVAL_S / 3)
                await asyncio.sleep(0.001)  # threads read and write the files of the jobs
            await self.beats.acquire()

    async def _tick(self) -> str:
        self.beats.release()
        return "tick"


async def test_an_idle_gateway_with_all_plugins_asks_no_model_in_a_day(tmp_path: Path) -> None:
    home, clock, metronome = tmp_path / "home", FakeClock(), Metronome()
    skip = FakeReply(tool_calls=(ToolCall("1", "final_answer", {"action": "skip"}),))
    script = ScriptedPlugin("Hello.", "[SKIP]", skip)
    plugins = [
        each.name
        for each in entry_points(group="nanobot")
        if each.dist is not None and each.dist.name.startswith("nanobot-")
    ]
    defaults = {"model": script.model, "workspace": str(home / "workspace")}
    requests = script.provider.requests
    async with Platform() as platform:
        write_config(home, platform, plugins=plugins, agents={"defaults": defaults})
        async with running(home, clock, script, metronome):
            await platform.say("hello")
            await platform.shows("Hello.")
            for _ in range(BEATS):
                await metronome.next_beat(clock)
            assert len(requests) == 1, "only the message of the owner"

            entry = {"cursor": 1, "timestamp": "2026-01-01 10:00", "content": "- lives in Bonn"}
            (home / "workspace" / "memory" / "history.jsonl").write_text(f"{json.dumps(entry)}\n")
            while len(requests) == 1:
                await metronome.next_beat(clock)
            (home / "workspace" / "HEARTBEAT.md").write_text("- [ ] every day: look outside\n")
            while len(requests) == 2:
                await metronome.next_beat(clock)

    dream, heartbeat = (request.messages[-1].text for request in requests[1:3])
    assert "lives in Bonn" in dream
    assert "look outside" in heartbeat
    assert platform.texts() == ["Hello."]
