"""Which of the installed plugins run, and why: YAML decides, the command line can only narrow."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter
from typing import Literal, TypeAlias

from nanobot_core.config.models import PluginsSettings
from nanobot_core.plugins.index import InstalledPlugin
from nanobot_core.text import nearest

State: TypeAlias = Literal[
    "found",
    "isolated",
    "undescribed",
    "disabled",
    "incompatible",
    "settings-error",
    "import-error",
    "active",
    "degraded",
    "quarantined",
    "draining",
    "restart-required",
    "not-installed",
]


@dataclass(frozen=True, slots=True)
class Selection:
    """Whether one plugin may run.

    Attributes:
        plugin: the installed plugin.
        enabled: it runs when something triggers it.
        state: ``found`` or ``isolated`` when enabled, else what keeps it out.
        reason: why, in one sentence.
        remedy: what to do to change that.
    """

    plugin: InstalledPlugin
    enabled: bool
    state: State
    reason: str
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class Missing:
    """A plugin that the configuration names and the environment lacks."""

    id: str
    required: bool
    remedy: str


@dataclass(frozen=True, slots=True)
class Narrowing:
    """What the command line leaves out, and a running host for now.

    Attributes:
        safe: all but bundled plugins are left out.
        without: ids that the command line leaves out.
        switched_off: ids that were disabled while the program runs.
    """

    safe: bool = False
    without: frozenset[str] = field(default_factory=frozenset)
    switched_off: frozenset[str] = field(default_factory=frozenset)


def select(
    installed: Sequence[InstalledPlugin],
    settings: PluginsSettings,
    narrowing: Narrowing | None = None,
    broken: Mapping[str, tuple[str, str]] | None = None,
) -> tuple[Selection, ...]:
    """Decide on every plugin; ordered by id.

    Args:
        installed: plugins, ids unique or each with a problem.
        settings: the ``plugins`` section.
        narrowing: what the command line leaves out.
        broken: by id, reason and remedy of those whose code was examined in vain.
    """
    wanted = {
        plugin.id: _decide(plugin, settings, narrowing or Narrowing(), broken or {})
        for plugin in installed
    }
    unorderable: dict[str, Selection] = {}
    while True:
        chosen = _with_requirements(wanted | unorderable, settings, narrowing or Narrowing())
        cycle = _cycle([item.plugin for item in chosen.values() if item.enabled])
        if not cycle:
            return tuple(chosen[plugin_id] for plugin_id in sorted(chosen))
        for plugin_id in _who_wishes(cycle, chosen):
            unorderable[plugin_id] = Selection(
                chosen[plugin_id].plugin,
                False,
                "incompatible",
                f"its wishes for an order form a cycle: {' -> '.join(cycle)}",
                "disable one of them",
            )


def missing_plugins(
    installed: Sequence[InstalledPlugin], settings: PluginsSettings
) -> tuple[Missing, ...]:
    """Return the plugins that the configuration enables or requires and that are not installed."""
    here = {plugin.id for plugin in installed}
    named = dict.fromkeys([*settings.required, *settings.enabled])
    return tuple(
        Missing(
            plugin_id,
            plugin_id in settings.required,
            _install_remedy(plugin_id, here),
        )
        for plugin_id in named
        if plugin_id not in here
    )


def in_calling_order(plugins: Collection[InstalledPlugin]) -> tuple[InstalledPlugin, ...]:
    """Order plugins by what they require, come after and come before; ties by id.

    Raises:
        ValueError: the wishes form a cycle, which the message shows.
    """
    by_id = {plugin.id: plugin for plugin in plugins}
    sorter = _sorter(plugins)
    try:
        sorter.prepare()
    except CycleError as error:
        path = " -> ".join(error.args[1])
        msg = f"plugins cannot be ordered, their wishes form a cycle: {path}"
        raise ValueError(msg) from error
    ordered: list[InstalledPlugin] = []
    while sorter.is_active():
        ready = sorted(sorter.get_ready())
        ordered.extend(by_id[plugin_id] for plugin_id in ready)
        sorter.done(*ready)
    return tuple(ordered)


def _sorter(plugins: Collection[InstalledPlugin]) -> TopologicalSorter[str]:
    there = {plugin.id for plugin in plugins}
    sorter: TopologicalSorter[str] = TopologicalSorter({plugin_id: set() for plugin_id in there})
    for plugin in plugins:
        earlier, later = _wishes(plugin)
        for other in earlier & there:
            sorter.add(plugin.id, other)
        for other in later & there:
            sorter.add(other, plugin.id)
    return sorter


def _wishes(plugin: InstalledPlugin) -> tuple[set[str], set[str]]:
    """Return the ids that a plugin wants to come earlier, and those that it wants later."""
    if plugin.manifest is None:
        return set(), set()
    facts = plugin.manifest.facts
    return {*facts.requires, *facts.after}, set(facts.before)


def _cycle(plugins: Collection[InstalledPlugin]) -> list[str]:
    """Return one cycle of wishes, its first plugin again at the end, or nothing."""
    try:
        _sorter(sorted(plugins, key=lambda plugin: plugin.id)).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def _who_wishes(cycle: Sequence[str], chosen: Mapping[str, Selection]) -> list[str]:
    """Return the members whose own wishes hold the cycle together; others are not to blame."""
    members = set(cycle)
    guilty = []
    for plugin_id in sorted(members):
        earlier, later = _wishes(chosen[plugin_id].plugin)
        if members & (earlier | later):
            guilty.append(plugin_id)
    return guilty


def _decide(
    plugin: InstalledPlugin,
    settings: PluginsSettings,
    narrowing: Narrowing,
    broken: Mapping[str, tuple[str, str]],
) -> Selection:
    enable = f"run nanobot plugins enable {plugin.id}"
    if plugin.id in narrowing.without:
        return Selection(plugin, False, "disabled", "left out by --without")
    if narrowing.safe and not plugin.bundled:
        return Selection(plugin, False, "disabled", "left out by --safe")
    if plugin.id in settings.disabled:
        return Selection(plugin, False, "disabled", "named under plugins.disabled", enable)
    if plugin.id in narrowing.switched_off:
        return Selection(plugin, False, "disabled", "disabled while the program runs", enable)
    if plugin.problem:
        return Selection(
            plugin,
            False,
            "incompatible",
            plugin.problem,
            _problem_remedy(plugin),
        )
    if plugin.id in broken:
        reason, remedy = broken[plugin.id]
        return Selection(plugin, False, "import-error", reason, remedy)
    if plugin.isolation is not None:
        left_out = "; ".join(plugin.isolation.left_out)
        reason = f"named under plugins.isolate, runs with {plugin.isolation.python}"
        without = f"{reason}; without effect there: {left_out}" if left_out else reason
        return Selection(plugin, True, "isolated", without)
    if plugin.file:
        return Selection(plugin, True, "found", "named under plugins.local")
    if plugin.id in settings.enabled or plugin.id in settings.required:
        return Selection(plugin, True, "found", "named under plugins.enabled or required")
    if settings.policy == "listed":
        return Selection(plugin, False, "disabled", "policy 'listed' and not named", enable)
    if settings.policy == "direct" and not plugin.direct:
        return Selection(
            plugin, False, "disabled", "it came only as a dependency of another package", enable
        )
    return Selection(plugin, True, "found", f"policy '{settings.policy}'")


def _problem_remedy(plugin: InstalledPlugin) -> str:
    if plugin.isolation is not None:
        return plugin.isolation.remedy
    return "correct plugins.local" if plugin.file else f"reinstall or remove {plugin.distribution}"


def _with_requirements(
    wanted: Mapping[str, Selection], settings: PluginsSettings, narrowing: Narrowing
) -> dict[str, Selection]:
    """Enable what enabled plugins require, and leave out those whose requirement cannot run."""
    able = {
        plugin_id
        for plugin_id, item in wanted.items()
        if item.enabled or _may_be_enabled(item, settings, narrowing)
    }
    why: dict[str, Selection] = {}
    lacking = True
    while lacking:
        lacking = False
        for plugin_id in sorted(able):
            needed = next((need for need in _needs(wanted[plugin_id]) if need not in able), None)
            if needed is not None:
                other = why.get(needed) or wanted.get(needed)
                why[plugin_id] = _lacks(wanted[plugin_id], needed, other)
                able.remove(plugin_id)
                lacking = True
    chosen = {
        plugin_id: why.get(plugin_id, item) if item.enabled else item
        for plugin_id, item in wanted.items()
    }
    pending = [item for item in chosen.values() if item.enabled]
    while pending:
        current = pending.pop()
        for needed in _needs(current):
            if not chosen[needed].enabled:
                reason = f"required by '{current.plugin.id}'"
                chosen[needed] = Selection(chosen[needed].plugin, True, "found", reason)
                pending.append(chosen[needed])
    return chosen


def _needs(selection: Selection) -> tuple[str, ...]:
    manifest = selection.plugin.manifest
    return manifest.facts.requires if manifest else ()


def _lacks(selection: Selection, needed: str, other: Selection | None) -> Selection:
    """Return that a plugin is out because of one that it requires."""
    why = "not installed" if other is None else f"out: {other.reason}"
    return Selection(
        selection.plugin,
        False,
        "incompatible",
        f"it requires plugin '{needed}', which is {why}",
        f"install or enable '{needed}'",
    )


def _may_be_enabled(selection: Selection, settings: PluginsSettings, narrowing: Narrowing) -> bool:
    """Whether a plugin is out only because nobody asked for it."""
    plugin = selection.plugin
    forbidden = plugin.id in {*settings.disabled, *narrowing.without, *narrowing.switched_off}
    return (
        selection.state == "disabled" and not forbidden and (plugin.bundled or not narrowing.safe)
    )


def _install_remedy(plugin_id: str, here: Collection[str]) -> str:
    close = nearest(plugin_id, here, limit=1)
    install = f"pip install nanobot-{plugin_id}"
    return f"did you mean '{close[0]}'? else {install}" if close else install
