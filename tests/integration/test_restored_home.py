"""A restored home continues where the backup was made."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path

import pytest

from nanobot_core import ToolCall
from nanobot_core.clock import SystemClock
from tests.gateways import Platform, running, write_config
from tests.integration.test_cron import nanobot
from tests.scripted_provider import ScriptedPlugin

pytest.importorskip("nanobot_cron")
pytest.importorskip("nanobot_memory")
pytest.importorskip("nanobot_skills")
pytestmark = pytest.mark.anyio


class Later(SystemClock):
    """Two minutes after the backup."""

    def now(self) -> datetime:
        return super().now() + timedelta(minutes=2)


async def test_a_restored_home_talks_on_remembers_and_does_its_jobs(tmp_path: Path) -> None:
    first, second, file = tmp_path / "first", tmp_path / "second", tmp_path / "home.tar.gz"
    add = ToolCall("1", "cron", {"action": "add", "message": "Water the plants", "at": "+60s"})
    script = ScriptedPlugin("Nice to meet you.", add, "I will.", "Watered.", "You are Ada.")
    async with Platform() as platform:
        defaults = {"model": script.model}
        plugins = ["cron", "memory", "skills"]
        write_config(first, platform, plugins=plugins, agents={"defaults": defaults})
        texts = {
            "memory/MEMORY.md": "Her cat is called Byron.",
            "skills/tea/SKILL.md": "---\nname: tea\ndescription: how she likes tea\n---\nGreen.\n",
        }
        for name, text in texts.items():
            path = first / "workspace" / name
            path.parent.mkdir(parents=True)
            path.write_text(text)
        async with running(first, None, script):
            await platform.say("I am Ada")
            await platform.shows("Nice to meet you.")
            await platform.say("water the plants")
            await platform.shows("I will.")
            await nanobot(first, "backup", str(file))
        await nanobot(second, "restore", str(file))
        async with running(second, Later(), script):
            await platform.shows("Watered.")
            await platform.say("who am I?")
            await platform.shows("You are Ada.")

    *_, scheduled, asked = script.provider.requests
    known = "\n".join(message.text for message in asked.messages)
    assert "I am Ada" in known
    assert "Byron" in known
    assert "how she likes tea" in known
    assert "Water the plants" in scheduled.messages[-1].text
    assert platform.texts() == ["Nice to meet you.", "I will.", "Watered.", "You are Ada."]
