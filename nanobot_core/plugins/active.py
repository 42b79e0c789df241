"""One active plugin: imported, checked against its manifest, started and stopped."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from nanobot_core.config.tree import parse_path, resolve
from nanobot_core.config.validation import validate_section
from nanobot_core.contracts.plugin import Applied, Health, SettingsChange
from nanobot_core.contracts.tool import DeclaredTool, LazyTool, Tool
from nanobot_core.deprecation import find_deprecation, warn_once
from nanobot_core.errors import (
    ConfigError,
    HookError,
    PluginError,
    PluginLoadFailed,
    PluginRejected,
)
from nanobot_core.hooks.caller import declared_hooks
from nanobot_core.hooks.compilation import (
    NO_RULES,
    CompiledPlugin,
    HookStats,
    OwnerRules,
    Registrant,
    compile_hook,
    compile_plugin,
)
from nanobot_core.hooks.implementation import HookRuntime, Implementation, invoke
from nanobot_core.plugins.context import HostContext, HostFacts
from nanobot_core.plugins.declared import check_declared
from nanobot_core.plugins.examine import (
    collect,
    describe,
    resolve_lazy_tool,
    settings_model,
)
from nanobot_core.plugins.index import working_copy_build
from nanobot_core.plugins.isolated import stand_in
from nanobot_core.plugins.loader import (
    CONTRIBUTION_LIMIT_S,
    contained,
    load_entry,
    memory_bytes,
    packages_of,
    requirements_of,
)
from nanobot_core.plugins.manifest import KINDS, OPEN_HOOKS, Manifest, declared_tool
from nanobot_core.tasks import PLUGIN_END_S, call_within
from nanobot_core.tools.registry import RegisteredTool

if TYPE_CHECKING:
    from pydantic import BaseModel

    from nanobot_core.config.loading import LoadedConfig
    from nanobot_core.contracts.plugin import StopCause
    from nanobot_core.hooks.markers import HookPoint
    from nanobot_core.messages import JsonObject
    from nanobot_core.plugins.index import InstalledPlugin


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """What an active plugin was made from, for comparison with its later state.

    Attributes:
        installed: the plugin as its distribution described it; ``None`` for a program's own.
        packages: top-level names of its modules.
        requirements: what its distribution required.
        build: digest of the code of a working copy or a single file, else an empty string.
    """

    installed: InstalledPlugin | None = None
    packages: frozenset[str] = frozenset()
    requirements: tuple[str, ...] = ()
    build: str = ""


@dataclass(slots=True, eq=False, kw_only=True, weakref_slot=True)
class ActivePlugin:
    """A plugin whose code is imported.

    Attributes:
        registrant: the plugin as the hooks see it.
        manifest: what it may contribute.
        context: the host's services for it.
        runtime: runs its own hooks in tasks that the application owns.
        compiled: what it implements, by hook.
        stats: accounts and circuits of its hooks.
        rules: what the owner has set for its hooks.
        source: what it was made from.
        sections: its part of the configuration by key path, as it uses it.
        terms: the core's settings at its start.
        published: tools that it published while running.
        contributed: its tools, once they were collected.
        loading: held while the code of a lazy tool is loaded, or the plugin's modules exchanged.
        successor: what took its place with other code. Its tools whose code was never loaded are
            those of the successor, since the old code no longer exists.
    """

    registrant: Registrant
    manifest: Manifest
    context: HostContext
    runtime: HookRuntime
    compiled: CompiledPlugin
    stats: HookStats
    rules: OwnerRules = NO_RULES
    source: Source
    sections: Mapping[str, JsonObject] = field(default_factory=dict, repr=False)
    terms: Hashable = ()
    published: tuple[Tool | LazyTool, ...] = ()
    contributed: Sequence[Tool | LazyTool] | None = None
    loading: threading.Lock = field(default_factory=threading.Lock)
    successor: ActivePlugin | None = None
    _entries: dict[str, tuple[Tool | LazyTool, RegisteredTool]] = field(default_factory=dict)
    _given: dict[str, list[Any]] = field(default_factory=dict, init=False)
    _fitted: WeakKeyDictionary[HookPoint[..., Any], Sequence[Implementation]] = field(
        default_factory=WeakKeyDictionary, init=False
    )
    _stopped: bool = field(default=False, init=False)

    @property
    def id(self) -> str:
        """The plugin's id."""
        return self.registrant.id

    @property
    def tools(self) -> tuple[Tool | LazyTool, ...]:
        """All tools that it has collected and published."""
        return (*(self.contributed or ()), *self.published)

    @property
    def keeps_names(self) -> bool:
        """Whether its tools keep their short names: it comes with the core or the program."""
        return self.source.installed is None or self.source.installed.bundled

    async def start(self) -> None:
        """Call the plugin's ``start``, if it has one; call this once.

        Raises:
            PluginLoadFailed: it failed or overran its time; its resources are released.
        """
        try:
            await self._call_own("start", self.context)
        except HookError as error:
            await self.context.resources.take_back()
            raise PluginLoadFailed(
                self.id, f"its start failed: {error.reason}", "fix that, then restart nanobot"
            ) from error
        except asyncio.CancelledError:
            await self.context.resources.take_back()
            raise

    async def check_health(self) -> Health:
        """Return the result of the plugin's ``check_health``; it is ok if it has none."""
        try:
            found = await self._call_own("check_health", self.context)
        except HookError as error:
            return Health(ok=False, message=f"its check_health failed: {error.reason}")
        if found is None:
            return Health(ok=True)
        if not isinstance(found, Health):
            return Health(ok=False, message=f"its check_health returned {type(found).__name__}")
        return found

    async def stop(self, reason: StopCause) -> None:
        """Call the plugin's ``stop`` once, and release its resources, whether or not that works."""
        if self._stopped:
            return
        self._stopped = True
        try:
            await self._call_own("stop", self.context, reason)
        except HookError as error:
            self.runtime.report(error)
        finally:
            await self.context.resources.take_back()

    async def _call_own(self, hook: str, *args: Any) -> Any:
        """Call one hook of the plugin's own life."""
        if hook not in self.compiled:
            return None
        [implementation] = self.compiled[hook]
        return await invoke(implementation, self.runtime, *args)

    async def change_settings(
        self, values: Mapping[str, BaseModel], sections: Mapping[str, JsonObject]
    ) -> bool:
        """Offer new settings to the plugin.

        The context hands them out while ``settings_changed`` runs, and goes back to the former
        ones unless the plugin applied them.

        Args:
            values: all its sections, validated.
            sections: the same as plain data.

        Returns:
            True when they are in force; False if they require a new instance.

        Raises:
            HookError: the plugin failed.
        """
        if "settings_changed" not in self.compiled:
            return False
        former = self.context.adopt_settings(values)
        is_applied = False
        try:
            for path, after in sections.items():
                before = self.sections.get(path, {})
                if before != after:
                    change = SettingsChange(
                        path=path, before=deepcopy(before), after=deepcopy(after)
                    )
                    answer = await self._call_own("settings_changed", self.context, change)
                    if not isinstance(answer, Applied):
                        return False
            is_applied = True
        finally:
            if not is_applied:
                self.context.adopt_settings(former)
        self.sections = sections
        self._given = {}
        return True

    def implementing(self, point: HookPoint[..., Any]) -> Sequence[Implementation]:
        """Return its implementations of a hook of the core, or of one that a plugin declares.

        Raises:
            PluginRejected: they do not fit the declaration, or were built for another revision.
        """
        hook = point.name
        if hook not in self.compiled or declared_hooks().get(hook) is point:
            return self.compiled.get(hook, ())
        built_for = self.manifest.hooks.get(hook)
        if built_for and built_for != point.revision:
            raise PluginRejected(
                self.id,
                f"it was built for revision {built_for} of hook '{hook}', and revision "
                f"{point.revision} is installed",
                f"upgrade '{self.id}'",
            )
        if point not in self._fitted:
            self._fitted[point] = compile_hook(self.registrant, point, self.stats, self.rules)
        return self._fitted[point]

    async def contribute_by(self, point: HookPoint[..., Any]) -> list[Any]:
        """Return what the plugin contributes by one hook, called in a thread.

        A hook that succeeds is called again only after the plugin applied other settings, so that
        callers can recognise the objects.

        Raises:
            PluginLoadFailed: the hook failed or did not end.
            PluginRejected: it does not fit its declaration, or returned other objects.
        """
        hook = point.name
        if not (implementations := self.implementing(point)):
            return []
        if hook in (given := self._given):
            return given[hook]
        [implementation] = implementations
        collecting = replace(
            implementation,
            function=lambda: collect(
                self.id, hook, implementation.function, self.context, point.result
            ),
            options=replace(implementation.options, blocking=True),
        )
        try:
            found: list[Any] = await invoke(collecting, self.runtime)
        except HookError as error:
            if isinstance(error.__cause__, PluginError):
                raise error.__cause__ from error
            remedy = f"fix it, or run nanobot plugins disable {self.id}"
            raise PluginLoadFailed(self.id, f"{hook}: {error.reason}", remedy) from error
        return given.setdefault(hook, found)  # the first answer, if two calls overlapped

    async def collect_tools(self) -> None:
        """Ask the plugin for its tools, in a thread. Once.

        Raises:
            PluginError: the hook failed or did not end, or a tool was not declared.
        """
        if self.contributed is not None:
            return
        found = await self.contribute_by(declared_hooks()[KINDS["tools"]])
        self.registered_tools(found, {})
        self.contributed = found

    def registered_tools(
        self, contributed: Sequence[Any], public: Mapping[tuple[str, str], str]
    ) -> list[RegisteredTool]:
        """Return tools ready for the registry, under their public names, by plugin id and own name.

        Raises:
            PluginRejected: one is malformed or was not declared in the manifest.
        """
        return [self._registered(tool, public) for tool in contributed]

    def _registered(self, tool: Any, public: Mapping[tuple[str, str], str]) -> RegisteredTool:
        if not isinstance(tool, Tool | LazyTool):
            raise PluginRejected(
                self.id, f"contribute_tools returned {type(tool).__name__}, return Tool or LazyTool"
            )
        name = public.get((self.id, tool.name), tool.name)
        known, entry = self._entries.get(name, (None, None))
        if known is not tool or entry is None:
            entry = self._entry(tool, name)
            self._entries[name] = (tool, entry)
        return entry

    def _entry(self, tool: Tool | LazyTool, name: str) -> RegisteredTool:
        declared = {item.name: item for item in self.manifest.of_kind("tools")}
        if tool.name not in declared and not self.manifest.has_pattern_for(tool.name):
            raise PluginRejected(
                self.id,
                f"tool '{tool.name}' is not declared in its manifest",
                "run nanobot plugins build",
            )
        if isinstance(tool, LazyTool):
            if tool.name not in declared:
                raise PluginRejected(
                    self.id,
                    f"tool '{tool.name}' is lazy and known by a pattern only",
                    "publish the tool itself",
                )
            known, source = declared_tool(declared[tool.name]), ""
        else:
            known, source = DeclaredTool.of(tool), tool.source
        return RegisteredTool(
            replace(known, definition=replace(known.definition, name=name)),
            lambda: self._load(tool),
            plugin=self.id,
            version=self.registrant.version,
            own_name=tool.name,
            source=source,
        )

    def _load(self, tool: Tool | LazyTool) -> Tool:
        """Return the tool itself; blocks while its code is imported or exchanged."""
        if isinstance(tool, Tool):
            return tool
        with self.loading:
            if self.successor is None:
                return call_within(
                    CONTRIBUTION_LIMIT_S,
                    self.id,
                    f"loading tool '{tool.name}'",
                    lambda: resolve_lazy_tool(self.id, tool, self.context),
                )
        for replaced in self.successor.contributed or ():
            if replaced.name == tool.name:
                return self.successor._load(replaced)  # noqa: SLF001 - the same class
        raise PluginLoadFailed(self.id, f"its new version has no tool '{tool.name}'")


IMPORT_LIMIT_S = 60.0
PROVIDERS = "providers."
"""Begins the key paths of sections that belong to a plugin's providers."""

Publish = Callable[[ActivePlugin, "Sequence[Tool | LazyTool]"], None]
Opened = Callable[[HookStats, str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Starter:
    """Makes active plugins for one configuration.

    Attributes:
        loaded: the configuration.
        facts: what all contexts share.
        publish: takes the tools that an active plugin publishes.
        opened: called each time that a circuit opens, with the plugin's stats and id.
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
            source = Source(
                installed=plugin,
                packages=packages_of(plugin),
                requirements=requirements_of(plugin),
                build=working_copy_build(plugin),
            )
            return self._prepared(registrant, manifest, source)

        return await self._started(plugin.id, f"importing '{plugin.target}'", prepare)

    async def of_object(self, plugin_id: str, namespace: object) -> ActivePlugin:
        """Return a plugin that a program made, started; errors as `of_installed`."""

        def prepare() -> ActivePlugin:
            registrant = Registrant(plugin_id, "", namespace)
            return self._prepared(registrant, describe(registrant), Source())

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
            )
            for section in manifest.settings
            if section.model
        }

    def sections(self, manifest: Manifest) -> dict[str, JsonObject]:
        """Return the plugin's part of the configuration, unvalidated."""
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
        """Return the other values that a plugin receives; a change requires a new instance."""
        tools = self.loaded.settings.tools
        settings = self.loaded.settings.plugins
        rules: list[tuple[str, float | str]] = [
            (key, value)
            for key, value in sorted((*settings.limits.items(), *settings.failures.items()))
            for owner, _, hook in (key.rpartition("."),)
            if owner in {"", manifest.id} and hook in manifest.hooks
        ]
        return (
            self.facts.workspace,
            self.facts.restrict_to_workspace,
            tuple(self.facts.protected_paths),
            tuple(tools.ssrf_whitelist),
            tuple(rules),
        )

    async def _started(
        self, plugin_id: str, doing: str, prepare: Callable[[], ActivePlugin]
    ) -> ActivePlugin:
        def measured() -> ActivePlugin:
            before_bytes, before_s = memory_bytes(), time.thread_time()
            active = prepare()
            active.stats.costs.import_cpu_s = time.thread_time() - before_s
            active.stats.costs.memory_bytes = max(memory_bytes() - before_bytes, 0)
            return active

        started_s = time.perf_counter()
        # What runs there of the plugin: its class body, its validators, its hooks.
        with contained(plugin_id, doing, "fix the plugin", passes=(PluginError, ConfigError)):
            active = await asyncio.to_thread(
                call_within, IMPORT_LIMIT_S, plugin_id, doing, measured
            )
        await active.start()
        active.stats.costs.start_s = time.perf_counter() - started_s
        return active

    def _prepared(self, registrant: Registrant, manifest: Manifest, source: Source) -> ActivePlugin:
        """Return the plugin, ready for `start`."""
        # Each instance has its own, so that new code begins with a clean record.
        stats = HookStats(self.facts.runtime.clock.monotonic_s)
        stats.on_open = lambda plugin_id: self.opened(stats, plugin_id)
        settings = self.loaded.settings.plugins
        limits = {"stop": PLUGIN_END_S, **settings.limits}
        rules = OwnerRules(limits, settings.failures)
        compiled = compile_plugin(registrant, stats, rules)
        for hook in compiled:
            if (deprecation := find_deprecation(f"on.{hook}")) is not None:
                warn_once(registrant.id, deprecation)
        if source.installed is not None and source.installed.isolation is None:
            check_declared(registrant.id, compiled, manifest)

        def publish(tools: Sequence[Tool | LazyTool]) -> None:
            self.publish(active, tools)

        context = HostContext(
            registrant.id,
            registrant.version,
            self.facts,
            self.values(manifest),
            publish,
            variables=manifest.variables,
            hosts=manifest.facts.hosts,
            readable_hooks=(*manifest.hookspecs, *OPEN_HOOKS.keys() & set(manifest.facts.reads)),
        )
        active = ActivePlugin(
            registrant=registrant,
            manifest=manifest,
            context=context,
            runtime=self.facts.runtime,
            compiled=compiled,
            stats=stats,
            rules=rules,
            source=source,
            sections=self.sections(manifest),
            terms=self.terms(manifest),
        )
        return active
