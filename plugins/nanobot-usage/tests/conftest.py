"""Agents with the plugin, on a scripted provider."""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from nanobot_core import LLMProvider, Nanobot, PluginContext, ProviderSpec, Usage, on
from nanobot_core.testing import FakeProvider, FakeReply
from nanobot_usage.plugin import UsagePlugin

Start = Callable[..., AbstractAsyncContextManager[Nanobot]]
_numbers = itertools.count(1)


class ScriptPlugin:
    """Gives the provider ``script``, whose models are called ``script/ANYTHING``."""

    def __init__(self, factory: str) -> None:
        self._factory = factory

    @on.contribute_providers
    def contribute_providers(self, ctx: PluginContext) -> Iterable[ProviderSpec]:
        yield ProviderSpec(
            name="script", factory=self._factory, needs_key=False, default_base="http://localhost"
        )


@pytest.fixture
def reply() -> Callable[..., FakeReply]:
    """An answer that cost `tokens`, a tenth of them received: ``reply(tokens=100, usd=0.5)``."""

    def reply(text: str = "Hello.", tokens: int = 100, usd: float | None = None) -> FakeReply:
        received = tokens // 10
        usage = Usage(prompt_tokens=tokens - received, completion_tokens=received, cost_usd=usd)
        return FakeReply(pieces=(text,), usage=usage)

    return reply


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Start:
    """Starts an agent: ``start(*replies, home="a", budgets={…})``.

    The plugin is registered by the program, so that these tests do not depend on what else is
    installed, and an installed one is left out.
    """

    @asynccontextmanager
    async def start(
        *replies: FakeReply, home: str = "home", **settings: Any
    ) -> AsyncIterator[Nanobot]:
        provider = FakeProvider(*replies, name="script")
        module = ModuleType(f"usage_script_{next(_numbers)}")

        def create(ctx: PluginContext, spec: ProviderSpec, _settings: object) -> LLMProvider:
            return provider

        module.create = create  # type: ignore[attr-defined]  # a module made for this test
        monkeypatch.setitem(sys.modules, module.__name__, module)
        folder = tmp_path / home
        folder.mkdir(exist_ok=True)
        settings = {"agents": {"defaults": {"model": "script/large"}}} | settings
        file = folder / "config.json"
        file.write_text(json.dumps(settings), "utf-8")
        bot = Nanobot.from_config(file, home=folder, without=("usage",))
        await bot.plugins.register(ScriptPlugin(f"{module.__name__}:create"), "script")
        await bot.plugins.register(UsagePlugin(), "usage-here")
        async with bot:
            yield bot

    return start
