"""Plugins come, change and go under load: every turn is answered, and nothing of them stays."""

from __future__ import annotations

import asyncio
import dataclasses
import gc
import os
import re
import shutil
import subprocess
import sys
import threading
import weakref
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from nanobot_core import InboundMessage, PluginError
from nanobot_core.app.application import Nanobot
from nanobot_core.config.loading import LoadedConfig, load_config
from nanobot_core.hooks.caller import Hooks
from nanobot_core.messages import JsonObject
from nanobot_core.plugins.catalogue import Catalogue
from nanobot_core.plugins.health import PluginReport
from nanobot_core.plugins.host import PluginHost
from nanobot_core.plugins.table import Generation
from nanobot_core.tools.registry import ToolRegistry
from nanobot_core.turns.request import TurnRequest
from tests.distributions import manifest_of, tool_declaration, write_distribution, write_plugin

pytestmark = pytest.mark.anyio
STRANGERS = Path(__file__).parents[1] / "strangers"
SCRIPTED = STRANGERS / "scripted.py"
PACKAGE = STRANGERS / "weather_station" / "src" / "stranger_weather"
ENTRY_POINTS = """\
[nanobot]
weather = stranger_weather.plugin:WeatherPlugin
[nanobot.manifest]
weather = stranger_weather
"""
READING = 'call read_weather {"hours_ago": 3}'
CHATS = 4
Configure = Callable[..., tuple[LoadedConfig, Catalogue]]
Start = Callable[..., AbstractAsyncContextManager[Nanobot]]


class Station:
    """The stranger's package as it is installed; every edition says its number everywhere."""

    def __init__(self, site: Path) -> None:
        self.folder = site / "stranger_weather"
        shutil.copytree(PACKAGE, self.folder, ignore=shutil.ignore_patterns("__pycache__"))
        write_distribution(site, "stranger-weather", version="3.2.1", entry_points=ENTRY_POINTS)
        self._original = {name: self._file(name).read_text() for name in ("plugin", "reading")}

    def publish(self, edition: int, *, broken: str = "") -> None:
        """Write another edition; `broken` is the end of its entry module."""
        plugin = self._original["plugin"].replace("-- the weather", f"-- edition {edition}")
        reading = self._original["reading"].replace("°C", f"°C by edition {edition}")
        assert plugin != self._original["plugin"]
        assert reading != self._original["reading"]
        self._file("plugin").write_text(plugin + broken)
        self._file("reading").write_text(reading)

    def _file(self, name: str) -> Path:
        return self.folder / f"{name}.py"


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder on ``sys.path``; what was imported is as before afterwards."""
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.setattr(sys, "path", [*sys.path[:1], str(folder), *sys.path[1:]])
    before = dict(sys.modules)
    yield folder
    for name in set(sys.modules) - set(before):
        if name.startswith(("stranger_", "nanobot_local_")):
            del sys.modules[name]
    sys.modules.update(before)


@pytest.fixture
def station(site: Path) -> Station:
    return Station(site)


@pytest.fixture
def configure(tmp_path: Path) -> Configure:
    """Load a configuration, and the catalogue of the named plugins and the scripted one."""

    def load(*ids: str, **settings: Any) -> tuple[LoadedConfig, Catalogue]:
        home = tmp_path / "home"
        overrides: JsonObject = {
            "agents.defaults.model": "scripted/one",
            "plugins.local": [str(SCRIPTED)],
        }
        given: JsonObject = {key.replace("__", "."): value for key, value in settings.items()}
        loaded = load_config(None, environ={}, home=home, overrides=overrides | given)
        every = Catalogue.load(home / "cache", loaded.settings.plugins).selections.values()
        known = [item.plugin for item in every if item.plugin.file or item.plugin.id in ids]
        return loaded, Catalogue(known, loaded.settings.plugins)

    return load


@pytest.fixture
def start(configure: Configure) -> Start:
    @asynccontextmanager
    async def started(*ids: str, **settings: Any) -> AsyncIterator[Nanobot]:
        loaded, catalogue = configure(*ids, **settings)
        async with Nanobot(loaded, catalogue=catalogue, environ=dict(os.environ)) as app:
            yield app

    return started


@dataclass(frozen=True)
class Frozen:
    """The host as one turn sees it."""

    host: PluginHost
    generation: Generation

    @property
    def hooks(self) -> Hooks:
        return self.generation.hooks

    async def load_tools(self) -> ToolRegistry:
        return self.generation.tools

    def __getattr__(self, name: str) -> object:
        return getattr(self.host, name)


async def answer(app: Nanobot, text: str, session: str = "sdk:main") -> str:
    """Answer one message on one generation."""
    message = InboundMessage(
        channel="sdk",
        sender_id="program",
        chat_id="default",
        content=text,
        session_key_override=session,
    )
    async with app.plugins.snapshot() as generation:
        pipeline = app._running()
        frozen: Any = Frozen(app.plugins, generation)
        turn = dataclasses.replace(pipeline, host=frozen)
        outcome = await turn.process(TurnRequest(message=message, is_owner=True))
    assert outcome.error is None, outcome.error
    return outcome.reply or ""


@dataclass
class Load:
    """Chats that talk all the time."""

    app: Nanobot
    text: str
    replies: list[str] = field(default_factory=list)

    async def __aenter__(self) -> Load:
        self._group = await asyncio.TaskGroup().__aenter__()
        self._talking = True
        self._answered = asyncio.Event()
        for number in range(CHATS):
            self._group.create_task(self._talk(f"sdk:{number}"))
        return self

    async def __aexit__(self, *error: object) -> None:
        self._talking = False
        await self._group.__aexit__(None, None, None)

    async def more(self, count: int = CHATS) -> None:
        """Wait until so many further turns were answered."""
        wanted = len(self.replies) + count
        while len(self.replies) < wanted:
            await self._answered.wait()

    async def _talk(self, session: str) -> None:
        while self._talking:
            self.replies.append(await answer(self.app, self.text, session))
            self._answered.set()
            self._answered.clear()


def report(app: Nanobot, plugin_id: str) -> PluginReport:
    return next(item for item in app.plugins.reports() if item.id == plugin_id)


def belongings() -> Counter[str]:
    """Count tasks, open files, and threads besides those of the loop's pool, which has a bound."""
    gc.collect()
    threads = [each for each in threading.enumerate() if not each.name.startswith("asyncio_")]
    return Counter(
        tasks=len(asyncio.all_tasks()),
        threads=len(threads),
        files=len(list(Path("/proc/self/fd").iterdir())),
    )


def loaded_code() -> dict[str, ModuleType]:
    return {name: each for name, each in sys.modules.items() if name.startswith("stranger_")}


def editions(reply: str) -> list[str]:
    return re.findall(r"edition (\d+)", reply)


async def watch(app: Nanobot) -> list[weakref.ref[object]]:
    """Return weak references to all that the present edition is made of."""
    active = await app.plugins.activate("weather")
    async with app.plugins.snapshot() as generation:
        present = [
            active,
            active.registrant.namespace,
            active.context,
            generation,
            generation.hooks,
            *loaded_code().values(),
        ]
    return [weakref.ref(item) for item in present]


async def reload_again_and_again(app: Nanobot, station: Station, times: int) -> None:
    """Publish and reload so many editions under load, and see that nothing of them stays."""
    station.publish(0)
    await app.plugins.changes.reload("weather")
    await answer(app, READING)
    before = belongings()
    watched: list[weakref.ref[object]] = []
    async with Load(app, READING) as load:
        for edition in range(1, times + 1):
            watched += await watch(app)
            await load.more()
            station.publish(edition)
            change = await app.plugins.changes.reload("weather")
            assert change.reloaded == ("weather",)
            assert editions(await answer(app, READING)) == [str(edition)] * 2
    await answer(app, READING)

    assert len(load.replies) >= times * CHATS
    assert all(len(found) == 2 and len(set(found)) == 1 for found in map(editions, load.replies))
    assert belongings() <= before
    left = [item for each in watched if (item := each()) is not None]
    assert [type(item).__name__ for item in left] == []


@pytest.mark.promise(20, 21)
async def test_a_plugin_is_reloaded_under_load_and_nothing_of_the_former_ones_stays(
    station: Station, start: Start
) -> None:
    async with start("weather") as app:
        await reload_again_and_again(app, station, 3)


@pytest.mark.promise(21)
@pytest.mark.long
@pytest.mark.timeout(1_200)
async def test_fifty_reloads_leave_nothing_behind(station: Station, start: Start) -> None:
    async with start("weather") as app:
        await reload_again_and_again(app, station, 50)


BROKEN = {
    "a syntax error": ("\ndef (\n", "syntax error"),
    "an import that fails": ("\nimport no_such_thing\n", "no_such_thing"),
    "a start that fails": (
        """
async def _fail(self, ctx): raise OSError('no mast')
WeatherPlugin.start = on.start(_fail)
""",
        "its start failed: OSError: no mast",
    ),
    "a health check that fails": (
        """
async def _ill(self, ctx): return Health(ok=False, message='the mast fell')
WeatherPlugin.check_health = on.check_health(_ill)
""",
        "its health check failed: the mast fell",
    ),
    "settings that do not fit": (
        """
def _other(self): return (SettingsSection('weather', 'stranger_weather:Gone'),)
WeatherPlugin.contribute_settings = on.contribute_settings(_other)
""",
        "has no 'Gone'",
    ),
}
SHORT = ("an import that fails", "a start that fails")
"""Those that the short form tries: one before the new code runs, and one after."""


@pytest.mark.promise(14, 20)
@pytest.mark.parametrize(
    "fault",
    [pytest.param(fault, marks=() if fault in SHORT else pytest.mark.long) for fault in BROKEN],
)
async def test_the_former_version_goes_on_when_the_new_one_has(
    station: Station, start: Start, fault: str
) -> None:
    broken, reason = BROKEN[fault]
    async with start("weather") as app:
        station.publish(1)
        await app.plugins.changes.reload("weather")
        before, code = await app.plugins.activate("weather"), loaded_code()
        async with Load(app, READING) as load:
            await load.more()
            station.publish(2, broken=broken)
            with pytest.raises(PluginError) as caught:
                await app.plugins.changes.reload("weather")
            await load.more()
        assert reason in str(caught.value)
        assert await app.plugins.activate("weather") is before
        assert all(loaded_code()[name] is module for name, module in code.items())
        assert editions(await answer(app, READING)) == ["1", "1"]
        assert reason in report(app, "weather").reason

        station.publish(3)
        await app.plugins.changes.reload("weather")
        assert editions(await answer(app, READING)) == ["3", "3"]
        assert report(app, "weather").state == "active"


async def enable_and_disable(app: Nanobot, configure: Configure, times: int) -> None:
    """Change the files plugin so many times under load, and see that no turn is lost."""
    file = app.loaded.workspace / "here.txt"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("found me")
    text = f'call read_file {{"path": "{file.name}"}}'
    await answer(app, text)
    before = belongings()
    async with Load(app, text) as load:
        for number in range(times):
            loaded, catalogue = configure("files", tools__files={"max_page_chars": 5_000 + number})
            change = await app.plugins.changes.reconfigure(loaded, catalogue)
            assert change.reloaded == ("files",)
            assert "found me" in await answer(app, text)
            off, without = configure("files", plugins__disabled=["files"])
            change = await app.plugins.changes.reconfigure(off, without)
            assert change.disabled == ("files",)
            assert "there is no tool 'read_file'" in await answer(app, text)
            change = await app.plugins.changes.reconfigure(*configure("files"))
            assert change.enabled == ("files",)
            await load.more()
    assert all("found me" in each or "there is no tool" in each for each in load.replies)
    assert {"found me" in each for each in load.replies} >= {True}
    assert belongings() <= before


async def test_the_files_plugin_comes_changes_and_goes_under_load(
    site: Path, configure: Configure, start: Start
) -> None:
    async with start("files") as app:
        await enable_and_disable(app, configure, 5)


@pytest.mark.long
@pytest.mark.timeout(1_200)
async def test_the_files_plugin_comes_changes_and_goes_fifty_times(
    site: Path, configure: Configure, start: Start
) -> None:
    async with start("files") as app:
        await enable_and_disable(app, configure, 50)


CHILD = """
import asyncio, sys
from pathlib import Path
from nanobot_core.tasks import TaskOwner
from nanobot_core.clock import SystemClock
from nanobot_core.config.loading import load_config
from nanobot_core.plugins.catalogue import Catalogue
from nanobot_core.plugins.host import PluginHost

home = Path(sys.argv[1])

def configured(disabled):
    loaded = load_config(
        None, environ={}, home=home, overrides={"plugins.disabled": [*"abcdef"[disabled:]]}
    )
    every = Catalogue.load(home / "cache", loaded.settings.plugins).selections.values()
    ours = [item.plugin for item in every if item.plugin.distribution.startswith("acme-")]
    return loaded, Catalogue(ours, loaded.settings.plugins)

async def main():
    loaded, catalogue = configured(2)
    owner = TaskOwner()
    host = PluginHost(catalogue, loaded, spawn=owner.spawn, clock=SystemClock(), environ={})
    await host.start()
    await host.load_tools()
    for disabled in (6, 3, 5):
        print(await host.changes.reconfigure(*configured(disabled)))
        print(host.tools.names(), host.table.offering.clashes, host.table.labels())
        print([each.plugin for each in host.hooks.implementations["before_turn"]])
    await host.stop()
    await owner.close()

asyncio.run(main())
"""
LISTENING = """
from nanobot_core import *
@on.before_turn
def ready(event): ...
@on.contribute_tools
def tools(ctx): return [LazyTool(name, "x:y") for name in ("weigh", "count")]
"""


@pytest.mark.promise(29)
def test_order_and_names_are_the_same_whatever_the_hash_seed(site: Path, tmp_path: Path) -> None:
    declared = [tool_declaration(name, factory="x:y") for name in ("weigh", "count")]
    for plugin_id, earlier in zip("abcdef", ["f", "", "a", "", "b", ""], strict=True):
        manifest = manifest_of(
            plugin_id,
            declarations=declared,
            hooks={"before_turn": 1},
            facts={"after": [earlier] if earlier else []},
        )
        write_plugin(site, plugin_id, code=LISTENING, manifest=manifest)

    said = [
        subprocess.run(
            [sys.executable, "-c", CHILD, str(tmp_path / "home")],
            env={
                "HOME": str(tmp_path),
                "PATH": os.environ["PATH"],
                "PYTHONHASHSEED": str(seed),
                "PYTHONPATH": os.pathsep.join([str(site), *sys.path[2:]]),
            },
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=50,
            check=True,
        ).stdout
        for seed in range(1, 6)
    ]

    assert said[0].startswith("Reconfiguration(enabled=('d', 'f', 'e', 'c'), disabled=()")
    assert len(set(said)) == 1
