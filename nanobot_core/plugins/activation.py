"""From an installed plugin to an active one: imported, checked against its manifest, started."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from nanobot_core.config.sections import validate_section
from nanobot_core.errors import (
    ConfigError,
    ConfigProblem,
    PluginError,
    PluginLoadFailed,
    PluginRejected,
)
from nanobot_core.hooks.caller import declared_hooks
from nanobot_core.hooks.generation import CompiledPlugin, Ledger, Registrant, compile_plugin
from nanobot_core.hooks.kinds import Kind
from nanobot_core.plugins.active import ActivePlugin
from nanobot_core.plugins.bounded import call_within
from nanobot_core.plugins.context import HostContext, HostFacts, PublishedTools
from nanobot_core.plugins.examine import describe, settings_model
from nanobot_core.plugins.loader import load_entry
from nanobot_core.plugins.manifest import KINDS, Manifest

if TYPE_CHECKING:
    from pydantic import BaseModel

    from nanobot_core.config.loading import LoadedConfig
    from nanobot_core.contracts.tool import LazyTool, Tool
    from nanobot_core.plugins.index import InstalledPlugin

IMPORT_LIMIT_S = 60.0
STOP_LIMIT_S = 10.0
Publish = Callable[[ActivePlugin, "Sequence[Tool | LazyTool]"], None]


class Activation:
    """Makes active plugins.

    Args:
        loaded: the configuration in force.
        facts: what all contexts share.
        ledger: accounts and circuits.
        publish: takes the tools that an active plugin publishes.
    """

    def __init__(
        self, loaded: LoadedConfig, facts: HostFacts, ledger: Ledger, publish: Publish
    ) -> None:
        self._loaded = loaded
        self._facts = facts
        self._ledger = ledger
        self._publish = publish
        self._limits = {"stop": STOP_LIMIT_S, **loaded.settings.plugins.limits}

    async def of_installed(self, plugin: InstalledPlugin) -> ActivePlugin:
        """Return the plugin, imported and started.

        Raises:
            PluginError: its code fails, or does more than its manifest says.
            ConfigError: its settings are wrong.
        """

        def prepare() -> ActivePlugin:
            manifest = plugin.manifest
            if manifest is None:
                raise PluginRejected(plugin.id, "it is undescribed", "run nanobot plugins build")
            registrant = Registrant(plugin.id, plugin.version, load_entry(plugin))
            compiled = compile_plugin(registrant, self._ledger, self._limits)
            _check_declared(plugin.id, compiled, manifest)
            return self._prepared(registrant, manifest, compiled)

        return await self._started(plugin.id, f"importing '{plugin.target}'", prepare)

    async def of_object(self, plugin_id: str, namespace: object) -> ActivePlugin:
        """Return a plugin that a program made, started; errors as `of_installed`."""

        def prepare() -> ActivePlugin:
            registrant = Registrant(plugin_id, "", namespace)
            compiled = compile_plugin(registrant, self._ledger, self._limits)
            return self._prepared(registrant, describe(registrant), compiled)

        return await self._started(plugin_id, "describing it", prepare)

    async def _started(
        self, plugin_id: str, doing: str, prepare: Callable[[], ActivePlugin]
    ) -> ActivePlugin:
        try:
            active = await asyncio.to_thread(call_within, IMPORT_LIMIT_S, plugin_id, doing, prepare)
        except (PluginError, ConfigError):
            raise
        except Exception as error:  # isolation point: its class body, its validators, its hooks
            reason = f"{doing} raised {type(error).__name__}: {error}"
            raise PluginLoadFailed(plugin_id, reason, "mend its code") from error
        await active.start()
        return active

    def _prepared(
        self, registrant: Registrant, manifest: Manifest, compiled: CompiledPlugin
    ) -> ActivePlugin:
        """Make the plugin that `start` is called on."""
        made: list[ActivePlugin] = []
        tools = PublishedTools(lambda published: self._publish(made[0], published))
        context = HostContext(
            registrant.id, registrant.version, self._facts, self._section_values(manifest), tools
        )
        made.append(ActivePlugin(registrant, manifest, context, self._facts.runtime, compiled))
        return made[0]

    def _section_values(self, manifest: Manifest) -> Mapping[str, BaseModel]:
        return {
            section.path: validate_section(
                self._loaded,
                section.path,
                settings_model(manifest.id, section.model),
                owner=manifest.id,
                on_unknown=_warn_of_key,
            )
            for section in manifest.settings
        }


def _warn_of_key(problem: ConfigProblem) -> None:
    from loguru import logger

    logger.warning("{}", problem)


def _check_declared(plugin_id: str, compiled: CompiledPlugin, manifest: Manifest) -> None:
    """Refuse code that does more than its manifest says."""
    points = declared_hooks()
    kinds = {hook: kind for kind, hook in KINDS.items()}
    for hook in compiled:
        declared = hook in manifest.hooks or points[hook].kind is Kind.CONTRIBUTE
        if hook in kinds and not manifest.of_kind(kinds[hook]) and not manifest.facts.tool_names:
            declared = False
        if not declared:
            raise PluginRejected(
                plugin_id,
                f"it implements '{hook}', which its manifest does not declare",
                "run nanobot plugins build",
            )
