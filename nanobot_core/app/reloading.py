"""Reloader: the running gateway takes up another configuration and other plugins."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import reduce
from typing import TYPE_CHECKING

from nanobot_core.app.application import FIXED
from nanobot_core.config.editing import add_to_list, remove_from_list
from nanobot_core.config.loading import load_config
from nanobot_core.errors import ConfigUnreadable, NanobotError
from nanobot_core.plugins.catalogue import Catalogue
from nanobot_core.record import dataclass

if TYPE_CHECKING:
    from nanobot_core.app.application import Nanobot
    from nanobot_core.app.services import ServiceRunner
    from nanobot_core.channels.manager import ChannelManager
    from nanobot_core.config.loading import LoadedConfig
    from nanobot_core.plugins.change import Reconfiguration

_EMPTIED = "it is empty or gone and had settings before; restore it, or restart to run without it"
Load = Callable[[], "tuple[LoadedConfig, Catalogue]"]
"""Reads the configuration and what is installed, as the gateway was started with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reloaded:
    """What a reload did.

    Attributes:
        change: what became of the plugins.
        needs_restart: key paths that have changed and take a new start.
    """

    change: Reconfiguration
    needs_restart: tuple[str, ...] = ()


class Reloader:
    """Applies differences while everything else goes on.

    Args:
        bot: the agent.
        channels: the channels.
        services: the services.
        load: reads the configuration anew.
        log: sends the log to where a configuration says.
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
            ConfigError: the configuration cannot be used; the former one stays in force.
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
            changed = [path for path in FIXED if _at(before, path) != _at(loaded, path)]
            return Reloaded(change=change, needs_restart=tuple(changed))

    async def reload_and_tell(self) -> None:
        """Reload for whoever waits for no answer; the log has what came of it."""
        from loguru import logger

        try:
            logger.info("reloaded: {}", described(await self.reload()))
        except NanobotError as error:
            logger.error("not reloaded, the former configuration stays: {}", error)

    async def reload_plugin(self, plugin_id: str) -> Reconfiguration:
        """Load a plugin's code anew.

        Raises:
            PluginError: it cannot run, or takes a new start of the gateway; the former one stays.
            ConfigError: its settings are wrong; likewise.
        """
        async with self._changing:
            change = await self._bot.plugins.changes.reload(plugin_id)
            await self._restart()
            return change

    async def switch(self, plugin_id: str, *, enabled: bool) -> Reloaded:
        """Enable or disable a plugin in the configuration file, and apply it.

        Raises:
            NanobotError: there is no file, it cannot be written, or the plugin cannot run.
        """
        path = self._bot.loaded.path
        if path is None:
            msg = "there is no configuration file to change; run nanobot onboard"
            raise NanobotError(msg)
        source, target = "plugins.disabled", "plugins.enabled"
        if not enabled:
            source, target = target, source
        await asyncio.to_thread(remove_from_list, path, source, plugin_id)
        await asyncio.to_thread(add_to_list, path, target, plugin_id)
        return await self.reload()

    async def _restart(self) -> None:
        await self._channels.stop_unwanted()
        self._services.start_missing()
        self._channels.start_missing()


def load_again(bot: Nanobot) -> tuple[LoadedConfig, Catalogue]:
    """Read the agent's own configuration file, and what is installed, once more."""
    loaded = load_config(bot.loaded.path, home=bot.loaded.home)
    return loaded, Catalogue.load(loaded.home / "cache", loaded.settings.plugins)


def described(done: Reloaded) -> str:
    """Return in words what a reload did."""
    change = done.change
    parts = {
        "enabled": change.enabled,
        "disabled": change.disabled,
        "reloaded": change.reloaded,
        "new settings": change.applied,
        "takes a restart": done.needs_restart,
    }
    lines = [f"{what}: {', '.join(names)}" for what, names in parts.items() if names]
    lines += [f"failed: {plugin}: {reason}" for plugin, reason in change.failed.items()]
    return "\n".join(lines) or "nothing has changed"


def _at(loaded: LoadedConfig, path: str) -> object:
    return reduce(getattr, path.split("."), loaded.settings)
