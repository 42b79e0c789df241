"""Looks for secrets in what objects show of themselves."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable, Iterator
from typing import Any
from unittest.mock import patch

from pydantic import BaseModel

from nanobot_core import Nanobot
from nanobot_core.config.loading import LoadedConfig, load_config
from nanobot_core.plugins.health import PluginReport
from tests.security.leaks.probe import Probe
from tests.security.leaks.world import GatewayHome, Home


def _loaded(home: Home) -> LoadedConfig:
    return load_config(None, environ=home.environment, home=home.path)


def _running(bot: Nanobot) -> list[PluginReport]:
    return [report for report in bot.plugins.reports() if report.state != "disabled"]


def _shown(value: object) -> str:
    return f"{type(value).__name__} {value!r} {value}"


def _settings(world: GatewayHome) -> str:
    """Show the settings of every plugin that runs, as the plugin has them."""

    async def collect() -> list[str]:
        async with Nanobot(_loaded(world.other())) as bot:
            found = []
            for report in _running(bot):
                context: Any = await bot.plugins.context_for(report.id)
                sections: dict[str, BaseModel] = context._settings
                found += [f"{report.id}:{path} {_shown(one)}" for path, one in sections.items()]
            return found

    with patch.dict(os.environ, world.environment):
        return "\n".join(world.services.run(collect()))


def _contexts(world: GatewayHome) -> str:
    """Show contexts and what they are made of, two levels deep."""

    async def collect() -> list[str]:
        async with Nanobot(_loaded(world.other())) as bot:
            found = [_shown(bot), repr(vars(bot)), repr(vars(bot.plugins))]
            for report in _running(bot):
                context = await bot.plugins.context_for(report.id)
                found += [_shown(context), repr(vars(context))]
                found += [
                    repr(vars(one)) for one in vars(context).values() if hasattr(one, "__dict__")
                ]
            return found

    with patch.dict(os.environ, world.environment):
        return "\n".join(world.services.run(collect()))


def _pickled(world: GatewayHome) -> bytes:
    """A context that could be pickled would take its settings along."""

    async def collect() -> bytes:
        async with Nanobot(_loaded(world.other())) as bot:
            taken = [b"pickled"]
            for report in _running(bot):
                context = await bot.plugins.context_for(report.id)
                try:
                    taken.append(pickle.dumps(context))
                except (TypeError, AttributeError, pickle.PicklingError) as error:
                    taken.append(str(error).encode())
            return b"\n".join(taken)

    with patch.dict(os.environ, world.environment):
        return world.services.run(collect())


def _of_loaded(show: Callable[[LoadedConfig], Iterator[object]]) -> Callable[[GatewayHome], str]:
    return lambda world: "\n".join(_shown(one) for one in show(_loaded(world)))


PROBES = (
    Probe("repr of the configuration", _of_loaded(lambda loaded: iter([loaded])), "LoadedConfig"),
    Probe("repr of the settings", _of_loaded(lambda loaded: iter([loaded.settings])), "Settings"),
    Probe("masked tree", _of_loaded(lambda loaded: iter([loaded.masked()])), "obedient"),
    Probe("repr of the settings of plugins", _settings, "channels.telegram"),
    Probe("contexts", _contexts, "HostContext"),
    Probe("pickles of contexts", _pickled, "pickled"),
)
