"""Whole agents on a temporary home, with a scripted model and nothing installed."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from nanobot_core import Message, Nanobot, ToolCall
from nanobot_core.clock import Clock
from nanobot_core.config.loading import load_config
from nanobot_core.plugins.catalogue import Catalogue
from nanobot_core.testing import FakeStep
from tests.scripted_provider import ScriptedPlugin

KEY = "sdk:default"
Start = Callable[..., AbstractAsyncContextManager[Nanobot]]


def agent(
    home: Path, script: ScriptedPlugin, *, clock: Clock | None = None, **overrides: Any
) -> Nanobot:
    """Return an agent that is not started; overrides are key paths with ``__`` for dots."""
    values = {
        "agents.defaults.model": script.model,
        "agents.defaults.workspace": str(home / "workspace"),
        **{key.replace("__", "."): value for key, value in overrides.items()},
    }
    loaded = load_config(None, environ={}, overrides=values, home=home)
    catalogue = Catalogue((), loaded.settings.plugins)
    return Nanobot(loaded, clock=clock, environ={}, catalogue=catalogue)


@asynccontextmanager
async def started(
    home: Path, script: ScriptedPlugin, *plugins: object, **options: Any
) -> AsyncIterator[Nanobot]:
    """Yield a running agent with `plugins`; options as for `agent`."""
    async with agent(home, script, **options) as bot:
        await bot.plugins.register(script, "scripted")
        for number, plugin in enumerate(plugins):
            await bot.plugins.register(plugin, f"kit{number}")
        yield bot


@pytest.fixture
def start(tmp_path: Path) -> Start:
    """Start an agent on the test's folder: ``async with start("answer", …) as bot``."""

    def begin(
        *steps: FakeStep | ScriptedPlugin, **options: Any
    ) -> AbstractAsyncContextManager[Nanobot]:
        first = steps[0] if steps else None
        script = first if isinstance(first, ScriptedPlugin) else ScriptedPlugin(*steps)  # type: ignore[arg-type]  # a script is given alone
        return started(tmp_path, script, *options.pop("plugins", ()), **options)

    return begin


async def history(bot: Nanobot, key: str = KEY) -> list[Message]:
    return [message async for message in bot.sessions.read(key)]


def call(name: str, call_id: str = "c1", **arguments: Any) -> ToolCall:
    return ToolCall(call_id, name, arguments)
