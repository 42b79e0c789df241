"""What is installed and what of it may run; no plugin is imported here."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Collection, Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from nanobot_core._version import __version__
from nanobot_core.config.models import PluginsSettings
from nanobot_core.disk import replace_file
from nanobot_core.errors import PluginError
from nanobot_core.plugins.consent import Consents, agree
from nanobot_core.plugins.examine import examine_plugin
from nanobot_core.plugins.index import InstalledPlugin, load_installed, refuse_double_ids
from nanobot_core.plugins.isolated import describe_isolated, with_isolated
from nanobot_core.plugins.local import local_plugins
from nanobot_core.plugins.manifest import (
    Declaration,
    Manifest,
    manifest_from_index,
    manifest_to_json,
)
from nanobot_core.plugins.selection import (
    Missing,
    Narrowing,
    Obstacle,
    Selection,
    in_calling_order,
    missing_plugins,
    select,
)


class Catalogue:
    """Installed plugins and the decision on each.

    Args:
        installed: what was found.
        settings: the ``plugins`` section.
        narrowing: what the command line leaves out.
        consents: what the owner has agreed to; ``None`` means that nothing was recorded.

    Attributes:
        settings: the ``plugins`` section.
        consents: what the owner has agreed to.
        selections: the decisions, by plugin id.
        missing: plugins that the configuration names and that are not installed.
    """

    def __init__(
        self,
        installed: Sequence[InstalledPlugin],
        settings: PluginsSettings,
        narrowing: Narrowing | None = None,
        consents: Consents | None = None,
    ) -> None:
        self.settings = settings
        self.consents: Consents = consents or Consents()
        self._narrowing = narrowing or Narrowing()
        self._installed = {plugin.id: plugin for plugin in installed}
        self._broken: dict[str, tuple[str, str]] = {}
        self.selections: dict[str, Selection] = {}
        self.missing: tuple[Missing, ...] = missing_plugins(installed, settings)
        self._select()

    @classmethod
    def load(
        cls, cache_dir: Path, settings: PluginsSettings, narrowing: Narrowing | None = None
    ) -> Catalogue:
        """Return the catalogue of this environment and of the files under ``plugins.local``.

        Args:
            cache_dir: folder of the index file; local files are relative to the one above it.
            settings: the ``plugins`` section.
            narrowing: what the command line leaves out.
        """
        installed = load_installed(cache_dir)
        local = local_plugins(settings.local, cache_dir.parent)
        found = refuse_double_ids((*installed, *local)) if local else installed
        isolated = with_isolated(found, settings.isolate, cache_dir)
        return cls(isolated, settings, narrowing, Consents.load(cache_dir.parent))

    def enabled(self) -> tuple[InstalledPlugin, ...]:
        """Return the plugins that may run, in calling order.

        Raises:
            ValueError: their wishes for an order form a cycle.
        """
        return in_calling_order([item.plugin for item in self.selections.values() if item.enabled])

    def lost(self) -> list[Missing]:
        """Return the missing plugins that nothing on the command line leaves out."""
        left_out = self._narrowing.without | self._narrowing.switched_off
        return [
            item for item in self.missing if item.id not in left_out and not self._narrowing.safe
        ]

    def declared(self, kind: str) -> Iterator[tuple[InstalledPlugin, Declaration]]:
        """Yield the contributions of one kind that enabled plugins declare, by plugin id."""
        for selection in self.selections.values():
            if selection.enabled and selection.plugin.manifest is not None:
                for declaration in selection.plugin.manifest.of_kind(kind):
                    yield selection.plugin, declaration

    def claimants(self, kind: str, name: str) -> list[Selection]:
        """Return every installed plugin that declares `name`, enabled or not.

        A tool may also be declared by a pattern; who declares the name itself comes first.
        """
        exact, by_pattern = [], []
        for selection in self.selections.values():
            manifest = selection.plugin.manifest
            if manifest is None:
                continue
            if any(item.name == name for item in manifest.of_kind(kind)):
                exact.append(selection)
            elif kind == "tools" and any(
                fnmatchcase(name, pattern) for pattern in manifest.facts.tool_names
            ):
                by_pattern.append(selection)
        return [*exact, *by_pattern]

    def describe_missing_tool(self, name: str) -> str:
        """Return a sentence on a tool that only a disabled plugin has, or an empty string."""
        for selection in self.claimants("tools", name):
            if not selection.enabled:
                owner = selection.plugin.id
                return f"It comes with plugin '{owner}', which is out: {selection.reason}."
        return ""

    def examine_undescribed(self, cache_dir: Path) -> None:
        """Give enabled plugins without a manifest one, derived in a child process and kept.

        A plugin that fails this is left out, with the reason in its selection. Blocks.

        Args:
            cache_dir: folder for what was found out.
        """
        while undescribed := [
            item.plugin
            for item in self.selections.values()
            if item.enabled and item.plugin.manifest is None
        ]:
            for plugin in undescribed:
                try:
                    self._installed[plugin.id] = described(plugin, cache_dir)
                except PluginError as error:
                    self._broken[plugin.id] = (error.reason, error.remedy)
            self._select()

    def remember(self, home: Path) -> None:
        """Record what the enabled plugins do that were never started before. Blocks.

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
            if plugin.manifest is not None and plugin.manifest.reaches and not plugin.bundled:
                reaches = ", ".join(plugin.manifest.capabilities)
                logger.info("plugin '{}' is new; it reaches: {}", plugin.id, reaches)

    def look_up(self, plugin_id: str, cache_dir: Path) -> InstalledPlugin | None:
        """Return a plugin as the environment describes it now. Blocks.

        Only what the owner has agreed to is taken up here.

        Args:
            plugin_id: its id.
            cache_dir: as in `load`.
        """
        self.consents = Consents.load(cache_dir.parent)
        local = local_plugins(self.settings.local, cache_dir.parent)
        found = refuse_double_ids((*load_installed(cache_dir), *local))
        found = with_isolated(found, self.settings.isolate, cache_dir)
        return next((plugin for plugin in found if plugin.id == plugin_id), None)

    def put(self, plugin: InstalledPlugin) -> None:
        """Take `plugin` as what is installed under its id."""
        self._installed[plugin.id] = plugin
        self._broken.pop(plugin.id, None)
        self._select()

    def switch(self, plugin_ids: Collection[str], *, on: bool) -> None:
        """Leave plugins out, or no longer, until the next configuration."""
        off = self._narrowing.switched_off
        off = off.difference(plugin_ids) if on else off.union(plugin_ids)
        self._narrowing = dataclasses.replace(self._narrowing, switched_off=off)
        for plugin_id in plugin_ids:
            self._broken.pop(plugin_id, None)
        self._select()

    def dependents(self, plugin_id: str) -> tuple[str, ...]:
        """Return the enabled plugins that cannot do without `plugin_id`, in calling order."""
        needed = {plugin_id}
        found: list[str] = []
        for plugin in self.enabled():
            if plugin.manifest and needed.intersection(plugin.manifest.facts.requires):
                needed.add(plugin.id)
                found.append(plugin.id)
        return tuple(found)

    def _select(self) -> None:
        obstacles: dict[str, Obstacle] = {}
        for plugin_id, plugin in self._installed.items():
            if (obstacle := self.consents.obstacle_of(plugin)) is not None:
                obstacles[plugin_id] = obstacle
        for plugin_id, (reason, remedy) in self._broken.items():
            obstacles[plugin_id] = ("import-error", reason, remedy)
        installed = tuple(self._installed.values())
        chosen = select(installed, self.settings, self._narrowing, obstacles)
        self.selections = {selection.plugin.id: selection for selection in chosen}


def described(plugin: InstalledPlugin, cache_dir: Path) -> InstalledPlugin:
    """Return `plugin` with a manifest that is derived in a child process. Blocks.

    Raises:
        PluginError: its code does not import, or breaks a rule.
    """
    if plugin.isolation is not None:
        return describe_isolated(plugin, cache_dir)
    return dataclasses.replace(plugin, manifest=_examined(plugin, cache_dir))


def _examined(plugin: InstalledPlugin, cache_dir: Path) -> Manifest:
    """Return the derived manifest, from the cache where the plugin's code is still the same."""
    digest = None if plugin.editable else _digest(plugin)
    file = cache_dir / "examined" / f"{digest}.json"
    if digest is not None:
        try:
            return manifest_from_index(json.loads(file.read_bytes()))
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            pass  # Examined for the first time, or the file is damaged.
    manifest = examine_plugin(plugin.id, plugin.file)
    if digest is not None:
        try:
            replace_file(file, json.dumps(manifest_to_json(manifest)))
        except OSError:
            return manifest
    return manifest


def _digest(plugin: InstalledPlugin) -> str | None:
    """Return what the derived manifest depends on, in one word; ``None`` where it cannot be told.

    RECORD holds a hash of every file of a distribution, so that a reinstalled one is told apart
    from its predecessor of the same version.
    """
    from importlib.metadata import PackageNotFoundError, distribution

    code: str | None
    try:
        if plugin.file is not None:
            code = Path(plugin.file).read_text(encoding="utf-8", errors="replace")
        else:
            code = distribution(plugin.distribution).read_text("RECORD")
    except (OSError, PackageNotFoundError):
        return None
    if code is None:
        return None
    facts = (__version__, plugin.distribution, plugin.version, plugin.id, plugin.target, code)
    return hashlib.sha256("\n".join(facts).encode()).hexdigest()
