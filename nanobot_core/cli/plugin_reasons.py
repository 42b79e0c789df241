"""Why a plugin is started, and why a hook calls its plugins in their order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from nanobot_core.errors import PluginError
from nanobot_core.hooks.caller import declared_hooks
from nanobot_core.hooks.compilation import HookStats, Registrant, build_hooks
from nanobot_core.hooks.implementation import HookRuntime
from nanobot_core.hooks.kinds import Kind
from nanobot_core.plugins.loader import load_entry
from nanobot_core.plugins.manifest import KINDS

if TYPE_CHECKING:
    from asyncio import Task
    from collections.abc import Coroutine
    from typing import Any

    from nanobot_core.config.models import PluginsSettings, Settings
    from nanobot_core.plugins.catalogue import Catalogue
    from nanobot_core.plugins.index import InstalledPlugin
    from nanobot_core.plugins.manifest import Declaration, Manifest


def triggers(manifest: Manifest, settings: Settings) -> list[str]:
    """Return what starts a plugin, each in one sentence; empty when nothing ever does."""
    points = declared_hooks()
    heard = [
        name for name in manifest.hooks if name in points and points[name].kind is not Kind.OWN
    ]
    found = [f"starts with the agent, to hear {', '.join(heard)}"] if heard else []
    if of_others := [name for name in manifest.hooks if name not in points]:
        found.append(f"starts when another plugin uses its hooks {', '.join(of_others)}")
    found += [_trigger(item, settings) for item in manifest.declarations]
    return list(dict.fromkeys(filter(None, found)))


def _trigger(item: Declaration, settings: Settings) -> str:
    name = item.name
    match item.kind:
        case "tools":
            return f"tool '{name}' is offered: starts before the first turn"
        case "channels":
            section = settings.section(f"channels.{name}") or {}
            if section.get("enabled") is True:
                return f"channels.{name}.enabled is true: starts with the gateway"
            if section.get("enabled") is not False and item.detail.get("owner_id"):
                return f"channel '{name}' needs no section: starts with the gateway"
            return f"channel '{name}' is off; set channels.{name}.enabled to true"
        case "providers":
            return f"starts when a model resolves to provider '{name}'"
        case "memory":
            if settings.memory.backend == name:
                return f"memory.backend is '{name}': starts with the agent"
            if settings.memory.backend is None:
                return f"starts with the agent if '{name}' is the only memory backend"
            return f"memory backend '{name}' is not chosen; set memory.backend to {name}"
        case "stores":
            is_bus = item.detail.get("kind") == "bus"
            key = "gateway.bus" if is_bus else "agents.defaults.session_store"
            chosen = settings.gateway.bus if is_bus else settings.agents.defaults.session_store
            if chosen == name:
                return f"{key} is '{name}': starts with the {'gateway' if is_bus else 'agent'}"
            return f"store '{name}' is not chosen; set {key} to {name}"
        case "commands":
            return f"starts when '/{name}' is typed"
        case "cli":
            words = " ".join(filter(None, ("nanobot", str(item.detail.get("parent", "")), name)))
            return f"starts when '{words}' needs it"
        case "services" | "routes":
            return f"starts with the gateway, for {item.kind} '{name}'"
    return f"starts when {item.kind} '{name}' is used"


def explain_order(
    hook: str, catalogue: Catalogue, settings: PluginsSettings
) -> list[tuple[str, str]]:
    """Return (plugin id, reason for its place) of a hook's implementers, in calling order.

    Imports their entry modules; what does not import is left out.
    """
    wanted = next((kind for kind, name in KINDS.items() if name == hook), None)
    plugins = [
        plugin
        for plugin in catalogue.enabled()
        if plugin.manifest is not None
        and (hook in plugin.manifest.hooks or (wanted and plugin.manifest.of_kind(wanted)))
    ]
    if wanted is not None:
        return [(plugin.id, _wish(plugin, plugins)) for plugin in plugins]
    registrants = [item for plugin in plugins if (item := _load(plugin)) is not None]
    hooks = build_hooks(registrants, _idle_runtime(), HookStats(lambda: 0.0), order=settings.order)
    called = [item.plugin for item in hooks.implementations.get(hook, ())]
    by_id = {plugin.id: plugin for plugin in plugins}
    usual = [plugin.id for plugin in plugins if plugin.id in called]
    first = settings.order.get(hook, [])
    rest = [plugin for plugin in usual if plugin not in first]
    called_rest = [plugin for plugin in called if plugin not in first]
    reasons = []
    for plugin in called:
        if plugin in first:
            reasons.append((plugin, f"plugins.order.{hook} names it"))
        elif called_rest != rest and called_rest.index(plugin) != rest.index(plugin):
            reasons.append((plugin, "an implementation asks to come first or last"))
        else:
            reasons.append((plugin, _wish(by_id[plugin], plugins)))
    return reasons


def _wish(plugin: InstalledPlugin, others: Sequence[InstalledPlugin]) -> str:
    """Return why a plugin has its place among `others`, apart from the owner's own order."""
    ids = {other.id for other in others}
    for other in (plugin, *others):
        facts = other.manifest.facts if other.manifest else None
        if facts is None:
            continue
        if other is plugin:
            for earlier in _earlier(plugin):
                if earlier in ids:
                    return f"it comes after '{earlier}', as it says"
            for later in facts.before:
                if later in ids:
                    return f"it comes before '{later}', as it says"
        elif plugin.id in facts.before:
            return f"'{other.id}' wants to come before it"
        elif plugin.id in _earlier(other):
            return f"'{other.id}' wants to come after it"
    return "alphabetical, no plugin asks for another place"


def _earlier(plugin: InstalledPlugin) -> tuple[str, ...]:
    """Return the ids of the plugins that a plugin comes after."""
    return *plugin.gives.requires, *plugin.gives.uses, *plugin.gives.facts.after


def _load(plugin: InstalledPlugin) -> Registrant | None:
    try:
        return Registrant(plugin.id, plugin.version, load_entry(plugin))
    except PluginError:
        return None


def _idle_runtime() -> HookRuntime:
    """A runtime for hooks that are looked at and never called."""

    def spawn(work: Coroutine[Any, Any, Any], *, name: str) -> Task[Any]:
        work.close()
        raise RuntimeError(name)

    return HookRuntime(spawn=spawn, report=lambda _error: None)
