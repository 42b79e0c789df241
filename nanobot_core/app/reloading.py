"""Reloader: applies a changed configuration and changed plugins to a running gateway."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import TYPE_CHECKING

from pydantic import BaseModel

from nanobot_core.app.application import FIXED
from nanobot_core.app.checks import find_problems
from nanobot_core.config.editing import add_to_list
from nanobot_core.config.loading import load_config
from nanobot_core.errors import ConfigUnreadable, NanobotError, PluginError, PluginNotFound
from nanobot_core.plugins.catalogue import Catalogue
from nanobot_core.record import dataclass
from nanobot_core.text import nearest

if TYPE_CHECKING:
    from nanobot_core.app.application import Nanobot
    from nanobot_core.app.services import ServiceRunner
    from nanobot_core.channels.manager import ChannelManager
    from nanobot_core.config.loading import LoadedConfig
    from nanobot_core.errors import ConfigProblem
    from nanobot_core.plugins.change import Reconfiguration

_EMPTIED = "the file is now empty or missing; restore it, or restart the gateway to run without it"
Load = Callable[[], "tuple[LoadedConfig, Catalogue]"]
"""Reads the configuration and the installed plugins with the options of the gateway."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reloaded:
    """What a reload did.

    Attributes:
        change: the result for each plugin.
        changed: key paths of changed settings that are used from now on.
        needs_restart: key paths of changed settings that require a restart.
        problems: findings of ``nanobot config check``, apart from those in `change`.
    """

    change: Reconfiguration
    changed: tuple[str, ...] = ()
    needs_restart: tuple[str, ...] = ()
    problems: tuple[ConfigProblem, ...] = ()


class Reloader:
    """Applies changes while everything else continues.

    Args:
        bot: the agent.
        channels: the channels.
        services: the services.
        load: reads the configuration again.
        log: sends the log to the place that a configuration names.
    """

    def __init__(
        self,
        bot: Nanobot,
        channels: ChannelManager,
        services: ServiceRunner,
        load: Load,
        log: Callable[[LoadedConfig], None],
    ) -> None:
        self._bot = bot
        self._channels = channels
        self._services = services
        self._load = load
        self._log = log
        self._changing = asyncio.Lock()

    async def reload(self) -> Reloaded:
        """Read configuration and plugins again and apply the difference.

        Raises:
            ConfigError: the configuration is invalid; the previous one remains.
            PluginError: a required plugin cannot run; likewise.
        """
        async with self._changing:
            loaded, catalogue = await asyncio.to_thread(self._load)
            before = self._bot.loaded
            if loaded.is_empty and not before.is_empty:
                raise ConfigUnreadable(str(before.path), _EMPTIED)
            change = await self._bot.reconfigure(loaded, catalogue)
            self._log(self._bot.loaded)
            await self._restart()
            # Now that changed code of plugins is loaded, its models check their sections.
            found = await asyncio.to_thread(find_problems, loaded, catalogue)
            changed = _changed_paths(before, self._bot.loaded)
            needs_restart = tuple(path for path in FIXED if _below(path, changed))
            return Reloaded(
                change=change,
                changed=tuple(path for path in changed if not _below(path, needs_restart)),
                needs_restart=needs_restart,
                problems=tuple(each for each in found if str(each) not in str(change.failed)),
            )

    async def reload_and_log(self) -> None:
        """Reload, and log the result."""
        from loguru import logger

        try:
            logger.info("reload: {}", describe(await self.reload()))
        except NanobotError as error:
            logger.error("reload failed, the previous configuration remains: {}", error)

    async def reload_plugin(self, plugin_id: str) -> Reconfiguration:
        """Load a plugin's code again.

        Raises:
            PluginError: it cannot run, or requires a restart; the previous code remains.
            ConfigError: its settings are invalid; the previous code remains.
        """
        async with self._changing:
            change = await self._bot.plugins.changes.reload(plugin_id)
            await self._restart()
            return change

    async def enable(self, plugin_id: str) -> Reloaded:
        """Enable a plugin in the configuration file, and apply it.

        Raises:
            NanobotError: no file exists, it cannot be written, or the plugin cannot run.
        """
        await self._known(plugin_id)
        return await self._switch([plugin_id], "plugins.enabled", "plugins.disabled")

    async def disable(self, plugin_id: str, *, cascade: bool = False) -> Reloaded:
        """Disable a plugin in the configuration file, and apply it.

        Args:
            plugin_id: its id.
            cascade: disable those that require it as well.

        Raises:
            NanobotError: no file exists, it cannot be written, or others require the plugin.
        """
        dependents = (await self._known(plugin_id)).dependents(plugin_id)
        if dependents and not cascade:
            needy = " and ".join(f"'{each}'" for each in dependents)
            remedy = f"/plugins disable {plugin_id} --cascade disables all"
            raise PluginError(plugin_id, f"{needy} requires it", remedy)
        leaving = [*reversed(dependents), plugin_id]
        return await self._switch(leaving, "plugins.disabled", "plugins.enabled")

    async def _known(self, plugin_id: str) -> Catalogue:
        """Return what is installed, if the plugin is part of it or of the configuration."""
        _, catalogue = await asyncio.to_thread(self._load)
        if plugin_id not in catalogue.selections and plugin_id not in catalogue.settings.enabled:
            close = " or ".join(f"'{name}'" for name in nearest(plugin_id, catalogue.selections))
            hint = f"did you mean {close}?" if close else "see nanobot plugins list"
            raise PluginNotFound(plugin_id, "it is not installed", hint)
        return catalogue

    async def _switch(self, plugin_ids: Sequence[str], into: str, out_of: str) -> Reloaded:
        path = self._bot.loaded.path
        if path is None:
            msg = "no configuration file exists; run nanobot onboard to create one"
            raise NanobotError(msg)
        for each in plugin_ids:
            await asyncio.to_thread(add_to_list, path, into, each, out_of=out_of)
        return await self.reload()

    async def withdraw(self, plugin_id: str) -> None:
        """Stop the channels and services of a plugin."""
        await self._channels.stop({plugin_id})
        await self._services.stop({plugin_id})

    async def _restart(self) -> None:
        await self._channels.stop_unwanted()
        self._services.start_missing()
        self._channels.start_missing()
        # Replaced modules and classes refer to themselves; the interpreter rarely looks for such.
        await asyncio.to_thread(gc.collect)


def load_again(bot: Nanobot) -> tuple[LoadedConfig, Catalogue]:
    """Read the agent's own configuration file and the installed plugins again."""
    loaded = load_config(bot.loaded.path, home=bot.loaded.home)
    return loaded, Catalogue.load(loaded.home / "cache", loaded.settings.plugins)


def describe(done: Reloaded) -> str:
    """Return the result of a reload, one line for each kind of change."""
    change = done.change
    parts = {
        "enabled": change.enabled,
        "disabled": change.disabled,
        "reloaded": change.reloaded,
        "plugins with new settings": change.applied,
        "changed": done.changed,
        "requires a restart": done.needs_restart,
    }
    lines = [f"{what}: {', '.join(names)}" for what, names in parts.items() if names]
    lines += [f"failed: {plugin}: {reason}" for plugin, reason in change.failed.items()]
    lines = lines or ["nothing has changed"]
    return "\n".join([*lines, *(f"{each.level}: {each}" for each in done.problems)])


def _changed_paths(before: LoadedConfig, after: LoadedConfig) -> list[str]:
    """Return the key paths of the core's settings that differ; never values, which may be secret.

    Plugins report their own sections.
    """
    found = sorted(_differences(before.settings, after.settings, ""))
    return [path for path in found if not _below(path, ["plugins"])]


def _differences(before: object, after: object, path: str) -> Iterator[str]:
    if isinstance(before, BaseModel) and isinstance(after, BaseModel):
        keys = type(before).model_fields.keys()
        pairs = {key: (getattr(before, key), getattr(after, key)) for key in keys}
    elif isinstance(before, dict) and isinstance(after, dict):
        pairs = {key: (before.get(key), after.get(key)) for key in before.keys() | after.keys()}
    else:
        if before != after:
            yield path
        return
    for key, (one, other) in pairs.items():
        yield from _differences(one, other, f"{path}.{key}" if path else str(key))


def _below(path: str, others: Collection[str]) -> bool:
    return any(path == other or path.startswith(f"{other}.") for other in others)
