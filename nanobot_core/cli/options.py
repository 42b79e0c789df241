"""The global options, and the configuration and agent that follow from them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nanobot_core.errors import ConfigInvalid
from nanobot_core.record import dataclass

if TYPE_CHECKING:
    from typer._click.core import Context

    from nanobot_core.app.application import Nanobot
    from nanobot_core.app.client import ControlClient
    from nanobot_core.config.loading import LoadedConfig
    from nanobot_core.contracts.context import PluginContext
    from nanobot_core.messages import JsonValue
    from nanobot_core.plugins.catalogue import Catalogue, PluginFilter

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@dataclass(frozen=True, slots=True)
class Options:
    """The options before the command.

    Attributes:
        config: configuration file, or ``None`` for the usual places.
        profile: overlay of the configuration, or ``None``.
        safe: leave out all third-party plugins.
        without: ids of plugins to leave out.
        debug: log everything, tracebacks included.
    """

    config: Path | None = None
    profile: str | None = None
    safe: bool = False
    without: tuple[str, ...] = ()
    debug: bool = False


def options_of(ctx: Context) -> Options:
    """Return the options of the command that `ctx` belongs to."""
    given = ctx.find_root().params
    return Options(
        config=given.get("config"),
        profile=given.get("profile"),
        safe=bool(given.get("safe")),
        without=tuple(given.get("without") or ()),
        debug=bool(given.get("debug")),
    )


def load_settings(
    options: Options,
    overrides: Mapping[str, JsonValue] | None = None,
    *,
    lenient: bool = False,
) -> LoadedConfig:
    """Return the configuration that applies, and configure the log.

    Args:
        options: the options given.
        overrides: key path to value; they override all other values.
        lenient: leave out values whose placeholder has no value, for commands that need no secret.

    Raises:
        ConfigError: the configuration cannot be used.
    """
    from nanobot_core.config.loading import load_config

    return _with_log(
        options,
        load_config(options.config, profile=options.profile, overrides=overrides, lenient=lenient),
    )


def read_settings(
    options: Options, overrides: Mapping[str, JsonValue] | None = None
) -> LoadedConfig:
    """Return the valid part of the configuration; `findings` has the problems.

    For commands that report on it, and those that work with any file.
    """
    from nanobot_core.config.loading import read_config

    loaded = read_config(options.config, profile=options.profile, overrides=overrides)
    return _with_log(options, loaded)


def _with_log(options: Options, loaded: LoadedConfig) -> LoadedConfig:
    from nanobot_core.app.logging import configure_logging

    configure_logging(loaded, level="DEBUG" if options.debug else None)
    return loaded


def changes_since_lock(loaded: LoadedConfig) -> str:
    """Return in one line how the plugins differ from ``nanobot.lock``, if there is one."""
    from nanobot_core.install import LOCK_FILE

    file = (loaded.path or loaded.home / "config.yaml").with_name(LOCK_FILE)
    if not file.exists():
        return ""
    from nanobot_core.install.lock import describe_changes

    return describe_changes(file)


def home_of(ctx: Context) -> Path:
    """Return nanobot's folder, also if the configuration is invalid."""
    return read_settings(options_of(ctx)).home


def gateway_client(ctx: Context) -> ControlClient:
    """Return a client of this folder's gateway, which need not be running."""
    from nanobot_core.app.client import ControlClient

    return ControlClient(home_of(ctx) / "gateway")


def running_gateway(options: Options) -> ControlClient | None:
    """Return the running gateway, which owns the sessions; ``None`` if none runs.

    It uses its own configuration, which is not read here to save half of a command's time.

    Raises:
        ControlError: it runs, and the options name another configuration.
    """
    from nanobot_core.config.environment import process_environment, resolve_home

    folder = resolve_home(process_environment()) / "gateway"
    if not (folder / "control.sock").exists():
        return None
    from nanobot_core.app.client import ControlClient
    from nanobot_core.app.wire import ControlError

    client = ControlClient(folder)
    if not client.is_there:
        return None
    if options.config or options.profile or options.safe or options.without:
        msg = (
            "a running gateway owns the sessions and has its own options; leave out "
            "--config, --profile, --safe and --without, stop it with nanobot gateway stop, or "
            "name another home with NANOBOT_HOME"
        )
        raise ControlError(msg)
    return client


def load_catalogue(options: Options, loaded: LoadedConfig) -> Catalogue:
    """Return the installed plugins, and which of them may run."""
    from nanobot_core.plugins.catalogue import Catalogue

    cache = loaded.home / "cache"
    return Catalogue.load(cache, loaded.settings.plugins, _filter(options))


def open_agent(
    options: Options,
    overrides: Mapping[str, JsonValue] | None = None,
    *,
    lenient: bool = False,
) -> Nanobot:
    """Return an agent that is not started; arguments and errors as `load_settings`."""
    agent = agent_of(options, load_settings(options, overrides, lenient=lenient))
    if not lenient:
        from nanobot_core.app.checks import section_names

        found = section_names(agent.loaded, agent.plugins.catalogue)
        if wrong := [problem for problem in found if problem.level == "error"]:
            raise ConfigInvalid(wrong)
    return agent


def agent_of(options: Options, loaded: LoadedConfig) -> Nanobot:
    """Return an agent that is not started, for a loaded configuration."""
    from nanobot_core.app.application import Nanobot

    return Nanobot(loaded, plugin_filter=_filter(options))


@asynccontextmanager
async def plugin_context(options: Options, plugin_id: str) -> AsyncIterator[PluginContext]:
    """Start one plugin for its own command, and stop it afterwards.

    Raises:
        PluginError: it is disabled or its code fails.
        ConfigError: the configuration cannot be used.
    """
    agent = open_agent(options)
    try:
        yield await agent.plugins.context_for(plugin_id)
    finally:
        await agent.plugins.stop()


def _filter(options: Options) -> PluginFilter:
    from nanobot_core.plugins.catalogue import PluginFilter

    return PluginFilter(options.safe, frozenset(options.without))
