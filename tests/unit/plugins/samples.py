"""Plugins that the tests of the host write, and what they ask of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path

from nanobot_core import (
    ContentReady,
    ToolContext,
    TurnInfo,
    TurnStarted,
    on,
    tool,
)
from nanobot_core.config.loading import LoadedConfig, load_config
from nanobot_core.messages import JsonObject, JsonValue, Message
from nanobot_core.plugins.catalogue import Catalogue
from nanobot_core.plugins.change import Reconfiguration
from nanobot_core.plugins.health import PluginReport
from nanobot_core.plugins.host import PluginHost
from tests.distributions import manifest_of, tool_declaration, write_plugin

HEAD = "from nanobot_core import *\nimport asyncio\nlog = []\n"


TURN = TurnInfo(
    id="t", session_key="cli:direct", channel="cli", chat_id="direct", sender_id="me", source="cli"
)
READY = TurnStarted(turn=TURN, message=Message(role="user", content="hi"))


def listening(plugin_id: str, *more: str, **fields: object) -> JsonObject:
    """Return the manifest of a plugin that listens to ``before_turn``."""
    return manifest_of(plugin_id, hooks=dict.fromkeys(("before_turn", *more), 1), **fields)


def report(host: PluginHost, plugin_id: str) -> PluginReport:
    return next(item for item in host.reports() if item.id == plugin_id)


def log_of(plugin_id: str) -> list[str]:
    """Return what the plugin of the site folder has written down."""
    from importlib import import_module

    found: list[str] = import_module(f"acme_{plugin_id}.plugin").log
    return found


@tool(name="shout")
async def shout(context: ToolContext, text: str) -> str:
    """Say it louder."""
    return text.upper()


EAR = (
    HEAD
    + """
@on.start
def start(ctx): log.append(f"start {ctx.id}")
@on.before_turn
def ready(event): log.append("ready")
@on.stop
def stop(ctx, reason): log.append(f"stop {reason}")
"""
)


PICKY = (
    HEAD
    + """
class Settings(PluginSettings):
    sides: int = 6
@on.contribute_settings
def settings(): return [SettingsSection("picky", "acme_picky.plugin:Settings")]
@on.before_turn
def ready(event): ...
@on.start
def start(ctx):
    log.append(str(ctx.settings(Settings).sides))
"""
)


def write_picky(site: Path) -> None:
    section = {"path": "picky", "model": "acme_picky.plugin:Settings", "schema": {}}
    write_plugin(
        site, "picky", code=PICKY, manifest=listening("picky", "start", settings=[section])
    )


def write_tool_plugin(site: Path, plugin_id: str, name: str, code: str = "") -> None:
    declared = manifest_of(plugin_id, declarations=[tool_declaration(name, factory="x:y")])
    default = f"@on.contribute_tools\ndef tools(ctx): return [LazyTool('{name}', 'x:y')]\n"
    write_plugin(site, plugin_id, code=HEAD + (code or default), manifest=declared)


class Marker:
    """Puts its mark at the end of an answer."""

    def __init__(self, mark: str) -> None:
        self._mark = mark

    @on.finalize_content
    def finalize_content(self, event: ContentReady) -> str:
        return event.content + self._mark


async def eventually(condition: Callable[[], bool]) -> None:
    """Wait until `condition` holds, at most five seconds."""
    async with asyncio.timeout(5):
        while not condition():  # noqa: ASYNC110 - what is waited for has no event of its own
            await asyncio.sleep(0)


NEEDS_EAR = {"requires": ["ear"]}


def configured(
    home: Path, settings: Mapping[str, JsonValue] | None = None
) -> tuple[LoadedConfig, Catalogue]:
    """Load a configuration, and the plugins that are in the site folder now."""
    loaded = load_config(None, environ={}, overrides=settings, home=home)
    every = Catalogue.load(home / "cache", loaded.settings.plugins)
    ours = [
        item.plugin
        for item in every.selections.values()
        if item.plugin.file or item.plugin.distribution.startswith("acme-")
    ]
    return loaded, Catalogue(ours, loaded.settings.plugins, consents=every.consents)


async def reconfigured(
    host: PluginHost, home: Path, settings: Mapping[str, JsonValue] | None = None
) -> Reconfiguration:
    return await host.changes.reconfigure(*configured(home, settings))


def write_ear(site: Path, plugin_id: str = "ear", code: str = EAR) -> Path:
    return write_plugin(site, plugin_id, code=code, manifest=listening(plugin_id, "start", "stop"))
