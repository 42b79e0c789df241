"""A site folder for hand-written distributions, and hosts on a temporary home."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from pathlib import Path

import pytest
from loguru import logger

from nanobot_core.config.loading import load_config
from nanobot_core.messages import JsonValue
from nanobot_core.plugins.catalogue import Catalogue, PluginFilter
from nanobot_core.plugins.host import PluginHost
from nanobot_core.plugins.index import InstalledPlugin, load_installed
from nanobot_core.tasks import TaskOwner
from nanobot_core.testing import FakeClock

MakeHost = Callable[..., PluginHost]


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder on ``sys.path``; what was imported from it is forgotten afterwards."""
    folder = tmp_path / "site"
    folder.mkdir()
    # Behind the first entry, which may be the current directory and is never searched.
    monkeypatch.setattr(sys, "path", [*sys.path[:1], str(folder), *sys.path[1:]])
    before = set(sys.modules)
    yield folder
    for name in set(sys.modules) - before:
        if name.startswith(("acme_", "nanobot_local_")):
            del sys.modules[name]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "home" / "cache"


@pytest.fixture
def found(cache: Path) -> Callable[[str], InstalledPlugin]:
    """Return one plugin of the index by its id."""

    def find(plugin_id: str) -> InstalledPlugin:
        return next(plugin for plugin in load_installed(cache) if plugin.id == plugin_id)

    return find


@pytest.fixture
def warnings() -> Iterator[list[str]]:
    """What is logged from warning upwards."""
    told: list[str] = []
    sink = logger.add(told.append, level="WARNING", format="{message}")
    yield told
    logger.remove(sink)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
async def make_host(tmp_path: Path, site: Path, clock: FakeClock) -> AsyncIterator[MakeHost]:
    """Return hosts that know only the plugins in the site folder; all are stopped at the end."""
    made: list[tuple[PluginHost, TaskOwner]] = []

    def make(
        settings: Mapping[str, JsonValue] | None = None,
        *,
        plugin_filter: PluginFilter | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> PluginHost:
        home = tmp_path / "home"
        loaded = load_config(None, environ={}, overrides=settings, home=home)
        everything = Catalogue.load(home / "cache", loaded.settings.plugins, plugin_filter)
        ours = [
            item.plugin
            for item in everything.selections.values()
            if item.plugin.file or item.plugin.distribution.startswith("acme-")
        ]
        owner = TaskOwner()
        host = PluginHost(
            Catalogue(ours, loaded.settings.plugins, plugin_filter, everything.consents),
            loaded,
            spawn=owner.spawn,
            clock=clock,
            environ=environ or {},
        )
        made.append((host, owner))
        return host

    yield make
    for host, owner in made:
        await host.stop()
        await owner.close()
