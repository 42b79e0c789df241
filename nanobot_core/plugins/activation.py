"""From an installed plugin to an active one: imported, checked against its manifest, started."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import TYPE_CHECKING

from nanobot_core.config.sections import validate_section
from nanobot_core.config.tree import parse_path, resolve
from nanobot_core.errors import (
    ConfigError,
    ConfigProblem,
    PluginError,
    PluginLoadFailed,
    PluginRejected,
)
from nanobot_core.hooks.caller import GATES, declared_hooks
from nanobot_core.hooks.generation import CompiledPlugin, Ledger, Registrant, compile_plugin
from nanobot_core.hooks.kinds import Kind
from nanobot_core.plugins.active import ActivePlugin, Source
from nanobot_core.plugins.context import HostContext, HostFacts, PublishedTools
from nanobot_core.plugins.examine import describe, settings_model
from nanobot_core.plugins.isolated import stand_in
from nanobot_core.plugins.loader import load_entry, packages_of, requirements_of
from nanobot_core.plugins.manifest import KINDS, Manifest
from nanobot_core.tasks import PLUGIN_END_S, call_within

if TYPE_CHECKING:
    from pydantic import BaseModel

    from nanobot_core.config.loading import LoadedConfig
    from nanobot_core.contracts.tool import LazyTool, Tool
    from nanobot_core.messages import JsonObject
    from nanobot_core.plugins.index import InstalledPlugin

IMPORT_LIMIT_S = 60.0
PROVIDERS = "providers."
"""Begins the key paths of sections that belong to a plugin's providers."""

Publish = Callable[[ActivePlugin, "Sequence[Tool | LazyTool]"], None]
Opened = Callable[[Ledger, str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Activation:
    """Makes active plugins for one configuration.

    Attributes:
        loaded: the configuration.
        facts: what all contexts share.
        publish: takes the tools that an active plugin publishes.
        opened: told each time that a circuit opens, with the plugin's ledger and id.
    """

    loaded: LoadedConfig
    facts: HostFacts
    publish: Publish
    opened: Opened

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
            registrant = Registrant(plugin.id, plugin.version, self._entry(plugin, manifest))
            ledger = self._ledger()
            compiled = compile_plugin(registrant, ledger, self._limits())
            if plugin.isolation is None:
                _check_declared(plugin.id, compiled, manifest)
            made = self._prepared(registrant, manifest, compiled, ledger)
            made.source = Source(
                installed=plugin,
                packages=packages_of(plugin),
                requirements=requirements_of(plugin),
            )
            return made

        return await self._started(plugin.id, f"importing '{plugin.target}'", prepare)

    async def of_object(self, plugin_id: str, namespace: object) -> ActivePlugin:
        """Return a plugin that a program made, started; errors as `of_installed`."""

        def prepare() -> ActivePlugin:
            registrant = Registrant(plugin_id, "", namespace)
            ledger = self._ledger()
            compiled = compile_plugin(registrant, ledger, self._limits())
            return self._prepared(registrant, describe(registrant), compiled, ledger)

        return await self._started(plugin_id, "describing it", prepare)

    def _entry(self, plugin: InstalledPlugin, manifest: Manifest) -> object:
        if plugin.isolation is None:
            return load_entry(plugin)
        sections = self.sections(manifest)
        return stand_in(plugin, manifest, self.loaded, sections, self.facts.environment)

    def values(self, manifest: Manifest) -> Mapping[str, BaseModel]:
        """Return the plugin's sections as its models. Blocks while they are imported.

        An isolated plugin has none here: its own host, in its own environment, validates them.

        Raises:
            PluginError: a model does not import.
            ConfigError: values do not fit.
        """
        return {
            section.path: validate_section(
                self.loaded,
                section.path,
                settings_model(manifest.id, section.model),
                owner=manifest.id,
                on_unknown=_warn_of_key,
            )
            for section in manifest.settings
            if section.model
        }

    def sections(self, manifest: Manifest) -> dict[str, JsonObject]:
        """Return the plugin's part of the configuration, as it stands there."""
        paths = [section.path for section in manifest.settings]
        paths += [f"channels.{item.name}" for item in manifest.of_kind("channels")]
        paths += [f"{PROVIDERS}{item.name}" for item in manifest.of_kind("providers")]
        found = {}
        for path in paths:
            steps, value = resolve(self.loaded.tree, parse_path(path))
            is_there = len(steps) == len(parse_path(path)) and isinstance(value, dict)
            found[path] = deepcopy(value) if is_there and isinstance(value, dict) else {}
        return found

    def terms(self, manifest: Manifest) -> Hashable:
        """Return all else that a plugin was told at its start; it must be made anew to change."""
        tools = self.loaded.settings.tools
        limits = [
            (key, limit_s)
            for key, limit_s in sorted(self.loaded.settings.plugins.limits.items())
            for owner, _, hook in (key.rpartition("."),)
            if owner in {"", manifest.id} and hook in manifest.hooks
        ]
        return (
            self.facts.workspace,
            self.facts.restrict_to_workspace,
            tuple(self.facts.protected_paths),
            tuple(tools.ssrf_whitelist),
            tuple(limits),
        )

    def _limits(self) -> dict[str, float]:
        return {"stop": PLUGIN_END_S, **self.loaded.settings.plugins.limits}

    def _ledger(self) -> Ledger:
        """Return a ledger of its own for one instance: new code begins with a clean record."""
        ledger = Ledger(self.facts.runtime.clock.monotonic_s)
        ledger.on_open = lambda plugin_id: self.opened(ledger, plugin_id)
        return ledger

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
        self,
        registrant: Registrant,
        manifest: Manifest,
        compiled: CompiledPlugin,
        ledger: Ledger,
    ) -> ActivePlugin:
        """Make the plugin that `start` is called on."""
        made: list[ActivePlugin] = []
        tools = PublishedTools(lambda published: self.publish(made[0], published))
        context = HostContext(
            registrant.id,
            registrant.version,
            self.facts,
            self.values(manifest),
            tools,
            variables=manifest.variables,
            own_hooks=manifest.hookspecs,
        )
        active = ActivePlugin(
            registrant=registrant,
            manifest=manifest,
            context=context,
            runtime=self.facts.runtime,
            compiled=compiled,
            ledger=ledger,
            sections=self.sections(manifest),
            terms=self.terms(manifest),
        )
        made.append(active)
        return active


def _warn_of_key(problem: ConfigProblem) -> None:
    from loguru import logger

    logger.warning("{}", problem)


class UndeclaredHook(PluginRejected):
    """Code that does more than its manifest says.

    Attributes:
        gates: the gates that the code has.
    """

    def __init__(self, plugin: str, hook: str, gates: frozenset[str]) -> None:
        super().__init__(
            plugin,
            f"it implements '{hook}', which its manifest does not declare",
            "run nanobot plugins build",
        )
        self.gates: frozenset[str] = gates


def _check_declared(plugin_id: str, compiled: CompiledPlugin, manifest: Manifest) -> None:
    """Refuse code that does more than its manifest says."""
    points = declared_hooks()
    kinds = {hook: kind for kind, hook in KINDS.items()}
    for hook in compiled:
        declared = hook in manifest.hooks or (
            hook in points and points[hook].kind is Kind.CONTRIBUTE
        )
        if hook in kinds and not manifest.of_kind(kinds[hook]) and not manifest.facts.tool_names:
            declared = False
        if not declared:
            raise UndeclaredHook(plugin_id, hook, GATES & set(compiled))
