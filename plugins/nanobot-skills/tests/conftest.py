"""Skills on disk, libraries of a test, and agents with the plugin on a scripted provider."""

from __future__ import annotations

import itertools
import json
import os
import sys
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from nanobot_core import (
    Contributed,
    JsonValue,
    LLMProvider,
    Nanobot,
    PluginContext,
    ProviderSpec,
    Tool,
    on,
)
from nanobot_core.testing import FakePluginContext, FakeProvider, FakeStep
from nanobot_core.tools import tool
from nanobot_skills import SkillSource
from nanobot_skills.library import BUILT_IN, Library, LoadedSkill

BUILT_IN_NAMES = frozenset(folder.name for folder in BUILT_IN.iterdir())
_numbers = itertools.count(1)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def write_skill(
    folder: Path, name: str, description: str = "Does it.", body: str = "Do it.", **metadata: str
) -> Path:
    """Write a skill below `folder`; return its file. Underscores in keys become hyphens."""
    lines = [f"name: {name}", f"description: {json.dumps(description)}"]
    if metadata:
        lines.append("metadata:")
        lines += [
            f'  nanobot-{key.replace("_", "-")}: "{value}"' for key, value in metadata.items()
        ]
    file = folder / name / "SKILL.md"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("\n".join(["---", *lines, "---", "", body, ""]), "utf-8")
    return file


WriteSkill = Callable[..., Path]


@pytest.fixture
def write() -> WriteSkill:
    """Writes a skill; see `write_skill`."""
    return write_skill


class Shelf:
    """A library on a temporary folder, without the built-in skills.

    Attributes:
        context: the plugin's context.
        folder: where skills of the workspace are.
    """

    def __init__(
        self,
        folder: Path,
        sources: Iterable[SkillSource] = (),
        environment: Mapping[str, str] | None = None,
        **settings: JsonValue,
    ) -> None:
        self.context = FakePluginContext(
            folder,
            plugin_id="skills",
            settings={"disabled": [*BUILT_IN_NAMES], **settings},
            environment=environment,
            contributions={"skills_sources": [Contributed("other", item) for item in sources]},
        )
        self.folder: Path = self.context.workspace / "skills"
        self.library: Library = self.context.shared(Library)

    async def get(self, name: str) -> LoadedSkill:
        """Return the usable skill of a name."""
        skills = await self.library.load()
        return next(each for each in skills.usable() if each.name == name)

    async def broken(self) -> list[str]:
        """Return what is wrong with the skills that cannot be loaded."""
        return [str(each) for each in (await self.library.load()).broken]


MakeShelf = Callable[..., Shelf]


@pytest.fixture
def make_shelf(tmp_path: Path) -> MakeShelf:
    """Makes a library; see `Shelf`."""
    return partial(Shelf, tmp_path)


@pytest.fixture
def shelf(make_shelf: MakeShelf) -> Shelf:
    return make_shelf(environment={"PATH": os.environ["PATH"]})


class ScriptPlugin:
    """Gives the provider ``script``, whose models are called ``script/ANYTHING``."""

    def __init__(self, factory: str, tools: Iterable[Tool] = ()) -> None:
        self._factory = factory
        self._tools = list(tools)

    @on.contribute_providers
    def contribute_providers(self, ctx: PluginContext) -> Iterable[ProviderSpec]:
        yield ProviderSpec(
            name="script", factory=self._factory, needs_key=False, default_base="http://localhost"
        )

    @on.contribute_tools
    def contribute_tools(self, ctx: PluginContext) -> Iterable[Tool]:
        return self._tools


def tool_named(name: str) -> Tool:
    """Return a tool that does nothing."""

    @tool(name=name)
    def nothing() -> str:
        """Do nothing."""
        return "done"

    return nothing


class Agent:
    """A running agent and what its model was asked.

    Attributes:
        bot: the agent.
        provider: the model.
        workspace: the agent's folder.
    """

    def __init__(self, bot: Nanobot, provider: FakeProvider, workspace: Path) -> None:
        self.bot = bot
        self.provider = provider
        self.workspace = workspace

    def prompt(self, number: int = -1) -> str:
        """Return the system prompt of a request."""
        return self.provider.requests[number].messages[0].text


Start = Callable[..., AbstractAsyncContextManager[Agent]]


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Start:
    """Starts an agent: ``start("answer", tools=("cron",), skills={…})``.

    Of the installed plugins only this one runs.
    """

    @asynccontextmanager
    async def start(
        *steps: FakeStep,
        tools: Iterable[str] = (),
        plugins: Mapping[str, object] | None = None,
        **settings: Any,
    ) -> AsyncIterator[Agent]:
        provider = FakeProvider(*steps, name="script")
        module = ModuleType(f"skills_script_{next(_numbers)}")

        def create(ctx: PluginContext, spec: ProviderSpec, _settings: object) -> LLMProvider:
            return provider

        module.create = create  # type: ignore[attr-defined]  # a module made for this test
        monkeypatch.setitem(sys.modules, module.__name__, module)
        home = tmp_path / "home"
        home.mkdir(exist_ok=True)
        file = home / "config.json"
        defaults = {"model": "script/large", "workspace": str(tmp_path / "workspace")}
        listed = {"policy": "listed", "enabled": ["skills"]}
        file.write_text(
            json.dumps({"agents": {"defaults": defaults}, "plugins": listed, **settings}), "utf-8"
        )
        (tmp_path / "workspace").mkdir(exist_ok=True)
        bot = Nanobot.from_config(file, home=home)
        script = ScriptPlugin(f"{module.__name__}:create", map(tool_named, tools))
        await bot.plugins.register(script, "script")
        for name, plugin in (plugins or {}).items():
            await bot.plugins.register(plugin, name)
        async with bot:
            yield Agent(bot, provider, tmp_path / "workspace")

    return start
