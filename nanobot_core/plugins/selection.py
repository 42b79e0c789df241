"""Which of the installed plugins run, and why: YAML decides, the command line can only narrow."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
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
    "unconfirmed",
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
        wanted: the owner wants it to run, whether or not it can.
    """

    plugin: InstalledPlugin
    enabled: bool
    state: State
    reason: str
    remedy: str = ""
    wanted: bool = True


Obstacle: TypeAlias = "tuple[State, str, str]"
"""State, reason and remedy of a plugin that was examined in vain, or waits for its owner's word."""


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
    obstacles: Mapping[str, Obstacle] | None = None,
) -> tuple[Selection, ...]:
    """Decide on every plugin; ordered by id.

    Args:
        installed: plugins, ids unique or each with a problem.
        settings: the ``plugins`` section.
        narrowing: what the command line leaves out.
        obstacles: by id, what else keeps a plugin from running.
    """
    wanted = {
        plugin.id: _decide(plugin, settings, narrowing or Narrowing(), obstacles or {})
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
    named = dict.fromkeys(
        [*settings.required, *(each for each in settings.enabled if each not in settings.disabled)]
    )
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
    obstacles: Mapping[str, Obstacle],
) -> Selection:
    if (left_out := _left_out(plugin, settings, narrowing)) is not None:
        return left_out
    chosen = _chosen(plugin, settings)
    if plugin.problem:
        return _out(plugin, ("incompatible", plugin.problem, _problem_remedy(plugin)), chosen)
    if plugin.id in obstacles:
        return _out(plugin, obstacles[plugin.id], chosen)
    return chosen


def _left_out(
    plugin: InstalledPlugin, settings: PluginsSettings, narrowing: Narrowing
) -> Selection | None:
    """Return the decision on a plugin that its owner has disabled, or ``None``."""
    enable = f"run nanobot plugins enable {plugin.id}"
    if plugin.id in narrowing.without:
        reason, remedy = "left out by --without", ""
    elif narrowing.safe and not plugin.bundled:
        reason, remedy = "left out by --safe", ""
    elif plugin.id in settings.disabled:
        reason, remedy = "named under plugins.disabled", enable
    elif plugin.id in narrowing.switched_off:
        reason, remedy = "disabled while the program runs", enable
    else:
        return None
    return Selection(plugin, False, "disabled", reason, remedy, wanted=False)


def _chosen(plugin: InstalledPlugin, settings: PluginsSettings) -> Selection:
    """Return the decision on a plugin that nothing keeps from running."""
    enable = f"run nanobot plugins enable {plugin.id}"
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
        reason = "policy 'listed' and not named"
        return Selection(plugin, False, "disabled", reason, enable, wanted=False)
    if settings.policy == "direct" and not plugin.direct:
        reason = "it came only as a dependency of another package"
        return Selection(plugin, False, "disabled", reason, enable, wanted=False)
    return Selection(plugin, True, "found", f"policy '{settings.policy}'")


def _out(plugin: InstalledPlugin, obstacle: Obstacle, chosen: Selection) -> Selection:
    state, reason, remedy = obstacle
    return Selection(plugin, False, state, reason, remedy, wanted=chosen.wanted)


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
    pending = [item for item in chosen.values() if item.wanted]
    while pending:
        current = pending.pop()
        for needed in _needs(current):
            found = chosen.get(needed)
            if found is None or found.enabled:
                continue
            if current.enabled:
                reason = f"required by '{current.plugin.id}'"
                chosen[needed] = Selection(found.plugin, True, "found", reason)
            elif not found.wanted and not _is_forbidden(found, settings, narrowing):
                chosen[needed] = replace(found, wanted=True)
            else:
                continue
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
    return selection.state == "disabled" and not _is_forbidden(selection, settings, narrowing)


def _is_forbidden(selection: Selection, settings: PluginsSettings, narrowing: Narrowing) -> bool:
    """Whether the owner keeps a plugin out, also where another requires it."""
    return _left_out(selection.plugin, settings, narrowing) is not None


def _install_remedy(plugin_id: str, here: Collection[str]) -> str:
    close = nearest(plugin_id, here, limit=1)
    install = f"pip install nanobot-{plugin_id}"
    return f"did you mean '{close[0]}'? else {install}" if close else install
