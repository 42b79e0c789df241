"""Which of the installed plugins run, and why; no plugin is imported here."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import field, replace
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

from nanobot_core._version import __version__
from nanobot_core.config.models import PluginsSettings
from nanobot_core.errors import PluginError, PluginNotFound
from nanobot_core.plugins.consent import Consents, agree
from nanobot_core.plugins.examine import examine_once, examine_plugin
from nanobot_core.plugins.health import Condition
from nanobot_core.plugins.index import (
    InstalledPlugin,
    load_installed,
    local_plugins,
    refuse_double_ids,
)
from nanobot_core.plugins.isolated import describe_isolated, with_isolated
from nanobot_core.plugins.manifest import Declaration, generation_problem
from nanobot_core.plugins.metadata import fits
from nanobot_core.plugins.published import Published
from nanobot_core.plugins.tool_names import NameClash, contested_names
from nanobot_core.record import dataclass
from nanobot_core.text import nearest


@dataclass(frozen=True, slots=True)
class Selection:
    """Whether one plugin may run.

    Attributes:
        plugin: the installed plugin.
        condition: why it may run, or what keeps it out and what to do to change that.
        wanted: the owner wants it to run, whether or not it can.
    """

    plugin: InstalledPlugin
    condition: Condition
    wanted: bool = True

    @property
    def enabled(self) -> bool:
        """Whether it runs when something triggers it."""
        return self.condition.state in {"enabled", "isolated"}


@dataclass(frozen=True, slots=True)
class PluginFilter:
    """Plugins that the command line or a command in a running host leaves out.

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
    plugin_filter: PluginFilter | None = None,
    obstacles: Mapping[str, Condition] | None = None,
) -> tuple[Selection, ...]:
    """Decide on every plugin; ordered by id.

    Args:
        installed: plugins, ids unique or each with a problem.
        settings: the ``plugins`` section.
        plugin_filter: what the command line leaves out.
        obstacles: by id, what else keeps a plugin from running.
    """
    plugin_filter = plugin_filter or PluginFilter()
    left_out = {
        plugin.id: decision
        for plugin in installed
        if (decision := _left_out(plugin, settings, plugin_filter)) is not None
    }
    decided = left_out | {
        plugin.id: _decide(plugin, settings, (obstacles or {}).get(plugin.id))
        for plugin in installed
        if plugin.id not in left_out
    }
    while True:
        chosen = _with_requirements(decided, left_out)
        try:
            in_calling_order([item.plugin for item in chosen.values() if item.enabled])
        except CycleError as error:
            cycle: list[str] = error.args[1]
        else:
            return tuple(chosen[plugin_id] for plugin_id in sorted(chosen))
        for plugin_id in _causes_of(cycle, chosen):
            reason = f"its requires, after and before form a cycle: {' -> '.join(cycle)}"
            obstacle = Condition("incompatible", reason, "disable one of them")
            decided[plugin_id] = replace(chosen[plugin_id], condition=obstacle)


def missing_plugins(
    installed: Sequence[InstalledPlugin], settings: PluginsSettings
) -> tuple[Selection, ...]:
    """Return the plugins that the configuration enables or requires and that are not installed."""
    here = {plugin.id for plugin in installed}
    named = dict.fromkeys(
        [*settings.required, *(each for each in settings.enabled if each not in settings.disabled)]
    )
    return tuple(
        Selection(
            InstalledPlugin(id=plugin_id),
            Condition(
                "not-installed",
                "the configuration names it and it is not installed",
                _install_remedy(plugin_id, here),
            ),
        )
        for plugin_id in named
        if plugin_id not in here
    )


def in_calling_order(plugins: Collection[InstalledPlugin]) -> tuple[InstalledPlugin, ...]:
    """Order plugins by what they require, come after and come before; ties by id.

    Raises:
        CycleError: they form a cycle, which cannot happen among those that `select` enables.
    """
    by_id = {plugin.id: plugin for plugin in sorted(plugins, key=lambda plugin: plugin.id)}
    sorter: TopologicalSorter[str] = TopologicalSorter()
    for plugin in by_id.values():
        earlier, later = _neighbours(plugin)
        sorter.add(plugin.id, *sorted(earlier & by_id.keys()))
        for other in sorted(later & by_id.keys()):
            sorter.add(other, plugin.id)
    sorter.prepare()
    ordered: list[InstalledPlugin] = []
    while sorter.is_active():
        ready = sorted(sorter.get_ready())
        ordered.extend(by_id[plugin_id] for plugin_id in ready)
        sorter.done(*ready)
    return tuple(ordered)


def _neighbours(plugin: InstalledPlugin) -> tuple[set[str], set[str]]:
    """Return the ids that must come before a plugin, and those that must come after it."""
    facts = plugin.gives.facts
    return {*plugin.gives.requires, *plugin.gives.uses, *facts.after}, set(facts.before)


def _causes_of(cycle: Collection[str], chosen: Mapping[str, Selection]) -> list[str]:
    """Return the members that name another one; those that are only named are not at fault."""
    named = {each: set().union(*_neighbours(chosen[each].plugin)) for each in sorted({*cycle})}
    return [plugin_id for plugin_id, others in named.items() if others.intersection(cycle)]


def _decide(
    plugin: InstalledPlugin, settings: PluginsSettings, obstacle: Condition | None
) -> Selection:
    """Return the decision on a plugin that its owner has not left out."""
    chosen = _chosen(plugin, settings)
    other_hooks = generation_problem(plugin.gives)
    if plugin.problem:
        reasons = "; ".join(filter(None, (plugin.problem, other_hooks)))
        obstacle = Condition("incompatible", reasons, _problem_remedy(plugin))
    elif other_hooks:
        name = plugin.distribution or f"'{plugin.id}'"
        remedy = f"install a release of {name} for nanobot-core {__version__}"
        obstacle = Condition("incompatible", other_hooks, remedy)
    return chosen if obstacle is None else replace(chosen, condition=obstacle)


def _left_out(
    plugin: InstalledPlugin, settings: PluginsSettings, plugin_filter: PluginFilter
) -> Selection | None:
    """Return the decision on a plugin that its owner has disabled, or ``None``."""
    enable = f"run nanobot plugins enable {plugin.id}"
    if plugin.id in plugin_filter.without:
        reason, remedy = "left out by --without", ""
    elif plugin_filter.safe and not plugin.bundled:
        reason, remedy = "left out by --safe", ""
    elif plugin.id in settings.disabled:
        reason, remedy = "named under plugins.disabled", enable
    elif plugin.id in plugin_filter.switched_off:
        reason, remedy = "disabled while the program runs", enable
    else:
        return None
    return Selection(plugin, Condition("disabled", reason, remedy), wanted=False)


def _chosen(plugin: InstalledPlugin, settings: PluginsSettings) -> Selection:
    """Return the decision on a plugin that nothing keeps from running."""
    enable = f"run nanobot plugins enable {plugin.id}"
    if plugin.isolation is not None:
        left_out = "; ".join(plugin.isolation.left_out)
        reason = f"named under plugins.isolate, runs with {plugin.isolation.python}"
        without = f"{reason}; without effect there: {left_out}" if left_out else reason
        return Selection(plugin, Condition("isolated", without))
    if plugin.file:
        return Selection(plugin, Condition("enabled", "named under plugins.local"))
    if plugin.id in settings.enabled or plugin.id in settings.required:
        return Selection(plugin, Condition("enabled", "named under plugins.enabled or required"))
    if settings.policy == "listed":
        reason = "policy 'listed' and not named"
        return Selection(plugin, Condition("disabled", reason, enable), wanted=False)
    if settings.policy == "direct" and not plugin.direct:
        reason = "it came only as a dependency of another package"
        return Selection(plugin, Condition("disabled", reason, enable), wanted=False)
    return Selection(plugin, Condition("enabled", f"policy '{settings.policy}'"))


def _problem_remedy(plugin: InstalledPlugin) -> str:
    if plugin.isolation is not None:
        return plugin.isolation.remedy
    return "correct plugins.local" if plugin.file else f"reinstall or remove {plugin.distribution}"


def _with_requirements(
    decided: Mapping[str, Selection], left_out: Collection[str]
) -> dict[str, Selection]:
    """Enable what enabled plugins require, and leave out those whose requirement cannot run."""
    able = {
        plugin_id
        for plugin_id, item in decided.items()
        if item.enabled or (item.condition.state == "disabled" and plugin_id not in left_out)
    }
    unable: dict[str, Selection] = {}
    while (lack := _first_lack({**decided, **unable}, able)) is not None:
        unable[lack.plugin.id] = lack
        able.remove(lack.plugin.id)
    chosen = {
        plugin_id: unable.get(plugin_id, item) if item.enabled else item
        for plugin_id, item in decided.items()
    }
    pending = [item for item in chosen.values() if item.wanted]
    while pending:
        current = pending.pop()
        for needed in current.plugin.gives.requires:
            found = chosen.get(needed)
            if found is None or found.enabled:
                continue
            if current.enabled:
                reason = f"required by '{current.plugin.id}'"
                chosen[needed] = Selection(found.plugin, Condition("enabled", reason))
            elif not found.wanted and needed not in left_out:
                chosen[needed] = replace(found, wanted=True)
            else:
                continue
            pending.append(chosen[needed])
    return chosen


def _first_lack(known: Mapping[str, Selection], able: Collection[str]) -> Selection | None:
    """Return that a plugin is out because of one that it requires; ``None`` if all have theirs."""
    for plugin_id in sorted(able):
        for needed, specifiers in known[plugin_id].plugin.gives.requires.items():
            other = known.get(needed)
            if other is None:
                why, remedy = "not installed", _install_remedy(needed, sorted(known))
            elif needed not in able:
                why = f"out: {other.condition.reason}"
                remedy = other.condition.remedy or f"enable '{needed}'"
            elif (version := other.plugin.version) and not fits(
                version, specifiers, unreadable=False
            ):
                why = f"installed as {other.plugin.version}"
                remedy = f"upgrade {other.plugin.distribution}"
            else:
                continue
            reason = f"it requires plugin '{needed + specifiers}', which is {why}"
            return Selection(known[plugin_id].plugin, Condition("incompatible", reason, remedy))
        for used, specifiers in known[plugin_id].plugin.gives.uses.items():
            other = known.get(used)
            if other is None or not other.enabled or not (version := other.plugin.version):
                continue
            if not fits(version, specifiers, unreadable=False):
                reason = f"it works with plugin '{used + specifiers}', not {version}"
                remedy = f"upgrade or disable '{used}'"
                return Selection(known[plugin_id].plugin, Condition("incompatible", reason, remedy))
    return None


def _install_remedy(plugin_id: str, here: Collection[str]) -> str:
    close = nearest(plugin_id, here, limit=1)
    known = Published.load().distribution_of(plugin_id)
    # A name that only follows from an id may belong to anyone.
    install = f"run nanobot plugins add {known}" if known else "install the package that has it"
    if not close:
        return install
    return f"did you mean '{close[0]}'? else {install}" if known else f"did you mean '{close[0]}'?"


class Catalogue:
    """Installed plugins and the decision on each.

    Args:
        installed: what was found.
        settings: the ``plugins`` section.
        plugin_filter: what the command line leaves out.
        consents: what the owner has agreed to; ``None`` means that nothing was recorded.

    Attributes:
        settings: the ``plugins`` section.
        consents: what the owner has agreed to.
        selections: the decisions, by plugin id.
        missing: plugins that the configuration names and that are not installed.
        contested: by kind and name, what several enabled plugins contribute, apart from tools.
    """

    def __init__(
        self,
        installed: Sequence[InstalledPlugin],
        settings: PluginsSettings,
        plugin_filter: PluginFilter | None = None,
        consents: Consents | None = None,
    ) -> None:
        self.settings = settings
        self.consents: Consents = consents or Consents()
        self._filter = plugin_filter or PluginFilter()
        self._installed = {plugin.id: plugin for plugin in installed}
        self._broken: dict[str, Condition] = {}
        self.selections: dict[str, Selection] = {}
        self._enabled: tuple[InstalledPlugin, ...] = ()
        self.contested: dict[tuple[str, str], NameClash] = {}
        self.missing: tuple[Selection, ...] = missing_plugins(installed, settings)
        self._select()

    @classmethod
    def load(
        cls, cache_dir: Path, settings: PluginsSettings, plugin_filter: PluginFilter | None = None
    ) -> Catalogue:
        """Return the catalogue of this environment and of the files under ``plugins.local``.

        Args:
            cache_dir: folder of the index file; local files are relative to the one above it.
            settings: the ``plugins`` section.
            plugin_filter: what the command line leaves out.
        """
        consents = Consents.load(cache_dir.parent)
        made = cls(_find(cache_dir, settings), settings, plugin_filter, consents)
        made.describe_all(cache_dir)
        return made

    def enabled(self) -> tuple[InstalledPlugin, ...]:
        """Return the plugins that may run, in calling order."""
        return self._enabled

    def lost(self) -> list[Selection]:
        """Return the missing plugins that nothing on the command line leaves out."""
        left_out = self._filter.without | self._filter.switched_off
        lost = () if self._filter.safe else self.missing
        return [item for item in lost if item.plugin.id not in left_out]

    def require(self, plugin_id: str) -> InstalledPlugin:
        """Return a plugin that may run.

        Raises:
            PluginError: it is not installed, or may not run.
        """
        selection = self.selections.get(plugin_id)
        if selection is None:
            raise PluginNotFound(plugin_id, "it is not installed", "see nanobot plugins list")
        if not selection.enabled:
            raise PluginError(plugin_id, selection.condition.reason, selection.condition.remedy)
        return selection.plugin

    def refuse_missing(self) -> None:
        """Raise `PluginNotFound` for a plugin that is required and not installed."""
        for missing in self.missing:
            if missing.plugin.id in self.settings.required:
                reason = "it is required and not installed"
                raise PluginNotFound(missing.plugin.id, reason, missing.condition.remedy)

    def declared(self, kind: str) -> Iterator[tuple[InstalledPlugin, Declaration]]:
        """Yield the contributions of one kind that enabled plugins declare, by plugin id."""
        for selection in self.selections.values():
            if selection.enabled:
                for declaration in selection.plugin.gives.of_kind(kind):
                    owners = self.contested.get((kind, declaration.name))
                    # The channel manager itself refuses a channel of two plugins.
                    if not owners or kind == "channels" or selection.plugin.id == owners.keeper:
                        yield selection.plugin, declaration

    def claimants(self, kind: str, name: str) -> list[Selection]:
        """Return every installed plugin that declares `name`, enabled or not.

        A tool may also be declared by a pattern; who declares the name itself comes first.
        """
        exact, by_pattern = [], []
        for selection in self.selections.values():
            manifest = selection.plugin.gives
            if any(item.name == name for item in manifest.of_kind(kind)):
                exact.append(selection)
            elif kind == "tools" and manifest.has_pattern_for(name):
                by_pattern.append(selection)
        return [*exact, *by_pattern]

    def describe_missing_tool(self, name: str) -> str:
        """Return a sentence on a tool that only a disabled plugin has, or an empty string."""
        for selection in self.claimants("tools", name):
            if not selection.enabled:
                owner, reason = selection.plugin.id, selection.condition.reason
                return f"It comes with plugin '{owner}', which is out: {reason}."
        return ""

    def describe_all(self, cache_dir: Path) -> None:
        """Derive the manifest of each enabled plugin that ships none, once per build. Blocks.

        A child process imports the plugin. One that fails is left out, with the reason in its
        selection.

        Args:
            cache_dir: folder for the results.
        """
        while bare := [
            item.plugin
            for item in self.selections.values()
            if item.enabled and item.plugin.manifest is None
        ]:
            for plugin in bare:
                try:
                    self._installed[plugin.id] = described(plugin, cache_dir)
                except PluginError as error:
                    self._broken[plugin.id] = Condition("failed", error.reason, error.remedy)
            self._select()

    def remember(self, home: Path) -> None:
        """Record what enabled plugins can do that are about to start for the first time. Blocks.

        To install a plugin and start it is to agree to what it does then.
        """
        from loguru import logger

        fresh = [plugin for plugin in self.enabled() if plugin.id not in self.consents.agreed]
        if not fresh or self.consents.problem:
            return
        try:
            self.consents = agree(home, fresh)
        except PluginError as error:
            logger.warning("{}", error)
            return
        for plugin in fresh:
            if plugin.gives.reaches and not plugin.bundled:
                reaches = ", ".join(plugin.gives.capabilities)
                logger.info("plugin '{}' is new; it reaches: {}", plugin.id, reaches)

    def look_up(self, plugin_id: str, cache_dir: Path) -> InstalledPlugin | None:
        """Return a plugin as the environment describes it now. Blocks.

        The catalogue itself takes only the owner's consents from there.

        Args:
            plugin_id: its id.
            cache_dir: as in `load`.
        """
        self.consents = Consents.load(cache_dir.parent)
        found = _find(cache_dir, self.settings)
        return next((plugin for plugin in found if plugin.id == plugin_id), None)

    def put(self, plugin: InstalledPlugin) -> None:
        """Replace what is known of an installed plugin."""
        self._installed[plugin.id] = plugin
        self._broken.pop(plugin.id, None)
        self._select()

    def switch(self, plugin_ids: Collection[str], *, on: bool) -> None:
        """Disable or enable plugins until the configuration is loaded again."""
        off = self._filter.switched_off
        off = off.difference(plugin_ids) if on else off.union(plugin_ids)
        self._filter = replace(self._filter, switched_off=off)
        for plugin_id in plugin_ids:
            self._broken.pop(plugin_id, None)
        self._select()

    def dependents(self, plugin_id: str) -> tuple[str, ...]:
        """Return the enabled plugins that require `plugin_id`, in calling order."""
        needed = {plugin_id}
        found: list[str] = []
        for plugin in self.enabled():
            if needed.intersection(plugin.gives.requires):
                needed.add(plugin.id)
                found.append(plugin.id)
        return tuple(found)

    def _select(self) -> None:
        installed = tuple(self._installed.values())
        unconfirmed = {
            plugin.id: obstacle
            for plugin in installed
            if (obstacle := self.consents.obstacle_of(plugin)) is not None
        }
        chosen = select(installed, self.settings, self._filter, unconfirmed | self._broken)
        self.selections = {selection.plugin.id: selection for selection in chosen}
        self._enabled = in_calling_order([item.plugin for item in chosen if item.enabled])
        self.contested = contested_names(chosen)


def _find(cache_dir: Path, settings: PluginsSettings) -> tuple[InstalledPlugin, ...]:
    """Return what is installed, with local files and isolated plugins."""
    local = local_plugins(settings.local, cache_dir.parent)
    published = Published.load(cache_dir)
    installed = [_unless_blocked(plugin, published) for plugin in load_installed(cache_dir)]
    found = refuse_double_ids((*installed, *local))
    return with_isolated(found, settings.isolate, cache_dir)


def _unless_blocked(plugin: InstalledPlugin, published: Published) -> InstalledPlugin:
    """Return `plugin`, with a problem if an index blocks its version."""
    reason = published.block_of(plugin.distribution, plugin.version)
    return replace(plugin, problem=f"its version is blocked: {reason}") if reason else plugin


def described(plugin: InstalledPlugin, cache_dir: Path, *, again: bool = False) -> InstalledPlugin:
    """Return `plugin` with a manifest that a child process derives once per build. Blocks.

    Args:
        plugin: as it is installed; a manifest that it ships is kept.
        cache_dir: folder for results.
        again: import the plugin even if its build was examined before.

    Raises:
        PluginError: its code does not import, or breaks a rule.
    """
    if plugin.isolation is not None:
        return describe_isolated(plugin, cache_dir, again=again)
    found = examine_plugin(plugin.id, plugin.file) if again else examine_once(plugin, cache_dir)
    return replace(plugin, manifest=plugin.manifest or found)
