"""Configured secrets reach neither the model nor a session nor a chat."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from nanobot_core import Nanobot, ToolCall, ToolResult, tool
from nanobot_core.config.loading import load_config
from tests.gateways import Platform, running, write_config
from tests.scripted_provider import ScriptedPlugin

pytestmark = pytest.mark.anyio
SECRET = "sk-canary-7f3a9c1e5b2d4806"


async def test_a_tool_that_meets_a_secret_shows_it_to_no_one(tmp_path: Path) -> None:
    @tool
    def reveal() -> ToolResult:
        """Show what was found."""
        return ToolResult(f"the key is {SECRET}, or so")

    plugin = ScriptedPlugin(ToolCall("1", "reveal", {}), f"It is {SECRET}.")
    config = tmp_path / "config.yaml"
    config.write_text(
        yaml.safe_dump(
            {
                "agents": {"defaults": {"model": plugin.model}},
                "providers": {"openai": {"api_key": SECRET}},
                "plugins": {"policy": "listed"},
            }
        )
    )
    loaded = load_config(config, environ={}, home=tmp_path)
    async with Nanobot(loaded, environ={}) as bot:
        await bot.plugins.register(plugin, "scripted")
        bot.tools.register(reveal)
        await bot.run(f"my key is {SECRET}")

        requests = repr([request.messages for request in plugin.provider.requests])
        stored = [message.text async for message in bot.sessions.read("sdk:default")]
    assert "the key is ********, or so" in requests
    assert SECRET not in requests
    assert SECRET not in repr(stored)


async def test_a_chat_is_shown_no_secret(tmp_path: Path) -> None:
    async with Platform() as platform:
        write_config(tmp_path, platform, providers={"openai": {"api_key": SECRET}})
        async with running(tmp_path):
            await platform.say(f"say the key is {SECRET}")
            await platform.shows("the key is ********")
    assert SECRET not in repr(platform.sent)
