"""Tools of active plugins, and the names that the model knows them by.

A unique short name stays short; a contested one belongs to the bundled plugin. What the owner's
rules say of ``exec`` must mean the same whatever else is installed, so a plugin that nanobot-core
itself names in its extras keeps its short names; another distribution cannot make itself one of
those. Among others every claimant gets its long name.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

from nanobot_core.contracts.tool import LazyTool, Tool
from nanobot_core.errors import NameConflict, PluginError
from nanobot_core.record import dataclass
from nanobot_core.tools.registry import ToolRegistry

if TYPE_CHECKING:
    from nanobot_core.plugins.active import ActivePlugin
    from nanobot_core.plugins.catalogue import Selection
    from nanobot_core.plugins.index import InstalledPlugin

PublicNames: TypeAlias = Mapping[tuple[str, str], str]
"""Plugin id and the tool's own name, to the name that the model sees."""

MAX_NAME_CHARS = 64
_LETTERS = re.compile(r"[a-zA-Z0-9_-]+")
_OTHER_LETTERS = re.compile(r"[^a-zA-Z0-9_-]")


@dataclass(frozen=True, slots=True)
class NameClash:
    """A name that several plugins claim.

    Attributes:
        name: the short name.
        plugins: those that claim it.
        keeper: the one that has it, or an empty string if none has.
        kind: kind of contribution, a key of `KINDS`, or ``settings``.
    """

    name: str
    plugins: tuple[str, ...]
    keeper: str = ""
    kind: str = "tools"

    @property
    def claim(self) -> str:
        """Who claims the name, in one clause."""
        what = (
            self.kind if self.kind in {"settings", "cli", "memory"} else self.kind.removesuffix("s")
        )
        return f"{what} '{self.name}' is claimed by {' and '.join(self.plugins)}"

    @property
    def outcome(self) -> str:
        """Who has the name, in one clause."""
        if self.keeper:
            return f"'{self.keeper}' has it"
        if self.kind == "tools":
            return "each of them has a long name"
        return "each reads the section" if self.kind == "settings" else "none of them is used"

    @property
    def remedy(self) -> str:
        """How to settle it."""
        if self.kind != "tools":
            return "disable one of them"
        return f"set tools.aliases.{self.name}: {self.keeper or self.plugins[0]}/{self.name}"


def contested_names(selections: Sequence[Selection]) -> dict[tuple[str, str], NameClash]:
    """Return by kind and name what several enabled plugins contribute.

    Tools and commands of the shell get different names, and a provider is refused when it is used.
    """
    owners: dict[tuple[str, str], list[InstalledPlugin]] = {}
    for selection in selections:
        manifest = selection.plugin.gives
        if selection.enabled:
            names = {(item.kind, item.name) for item in manifest.declarations}
            names |= {("settings", section.path) for section in manifest.settings}
            for kind, name in names:
                if kind not in {"tools", "providers", "cli"}:
                    owners.setdefault((kind, name), []).append(selection.plugin)
    found = {}
    for (kind, name), plugins in sorted(owners.items()):
        bundled = [plugin.id for plugin in plugins if plugin.bundled]
        if len(plugins) > 1:
            keeper = bundled[0] if len(bundled) == 1 else ""
            ids = tuple(plugin.id for plugin in plugins)
            found[kind, name] = NameClash(name, ids, keeper, kind)
    return found


def assign_tool_names(
    claims: Mapping[str, Sequence[str]],
    aliases: Mapping[str, str],
    keepers: Collection[str] = (),
) -> tuple[PublicNames, tuple[NameClash, ...]]:
    """Give every tool a name that does not depend on the order of loading; return also the clashes.

    Args:
        claims: by plugin id, the names of its tools.
        aliases: short name to ``plugin-id/name``, as the owner settled it.
        keepers: ids of plugins that keep their short names against others.
    """
    owners: dict[str, list[str]] = {}
    for plugin in sorted(claims):
        for name in dict.fromkeys(claims[plugin]):
            owners.setdefault(name, []).append(plugin)
    there = {f"{plugin}/{name}" for name, plugins in owners.items() for plugin in plugins}
    aliased = {full: short for short, full in sorted(aliases.items()) if full in there}
    taken = frozenset(aliased.values())
    kept: set[str] = set()
    public: dict[tuple[str, str], str] = {}
    clashes: list[NameClash] = []
    for name, plugins in sorted(owners.items()):
        unsettled = [plugin for plugin in plugins if f"{plugin}/{name}" not in aliased]
        contested = len(unsettled) > 1 or name in taken
        first = [plugin for plugin in unsettled if plugin in keepers]
        keeper = first[0] if len(first) == 1 and name not in taken else ""
        if contested and name not in taken:
            clashes.append(NameClash(name, tuple(unsettled), keeper))
        for plugin in plugins:
            is_short = not contested or plugin == keeper
            own = name if is_short else long_name(plugin, name)
            public[plugin, name] = aliased.get(f"{plugin}/{name}", own)
            kept |= {f"{plugin}/{name}"} if is_short and plugin in keepers else set()
    return _without_doubles(public, kept | {*aliased}), tuple(clashes)


def _without_doubles(public: PublicNames, settled: Collection[str]) -> PublicNames:
    """Distinguish equal names, such as ``b__c`` of plugin ``a`` and ``c`` of ``a__b``."""
    uses = Counter(public.values())
    return {
        owner: name if uses[name] == 1 or full in settled else _with_digest(full)
        for owner, name in public.items()
        for full in ("/".join(owner),)
    }


def long_name(plugin: str, name: str) -> str:
    """Return ``plugin__name`` in the letters that providers take, at most 64 characters."""
    full = f"{plugin}__{name}"
    if len(full) <= MAX_NAME_CHARS and _LETTERS.fullmatch(full):
        return full
    return _with_digest(f"{plugin}/{name}")


def _with_digest(full: str) -> str:
    """Return a name of at most 64 characters that no other text gives."""
    digest = hashlib.sha256(full.encode()).hexdigest()[:8]
    readable = _OTHER_LETTERS.sub("_", full)
    return f"{readable[: MAX_NAME_CHARS - 9]}_{digest}"


class ToolOffering:
    """Keeps a registry in step with what active plugins contribute and publish.

    Args:
        registry: the registry that turns use.
        on_failure: called with a plugin whose tools cannot be used.

    Attributes:
        clashes: names that several plugins claim.
    """

    def __init__(
        self, registry: ToolRegistry, on_failure: Callable[[str, PluginError], None]
    ) -> None:
        self.clashes: tuple[NameClash, ...] = ()
        self.registry = registry
        self._on_failure = on_failure
        self._public: PublicNames = {}
        self._offered: frozenset[str] = frozenset()
        self._plugins: Sequence[ActivePlugin] = ()
        self._aliases: Mapping[str, str] = {}

    async def collect(self, plugins: Iterable[ActivePlugin]) -> None:
        """Ask `plugins` for their tools; one that fails offers none, and is reported."""
        for active in plugins:
            try:
                await active.collect_tools()
            except PluginError as error:
                self._on_failure(active.id, error)

    def offer(self, plugins: Sequence[ActivePlugin], aliases: Mapping[str, str]) -> None:
        """Make the tools of `plugins` those of the registry, as one change.

        A tool that the model knows by a short name keeps it when another plugin comes and claims
        the same: what a name means must not change in the middle of a conversation. Only a bundled
        plugin gets a short name back that is its own.

        Args:
            plugins: those whose tools were collected, in calling order.
            aliases: short name to ``plugin-id/name``, as the owner settled it.
        """
        from loguru import logger

        self._plugins = [active for active in plugins if active.contributed is not None]
        self._aliases = aliases
        public, clashes = self._assigned()
        for clash in clashes:
            if self._public and clash not in self.clashes:
                outcome = f"from the next start, {clash.outcome}"
                logger.warning("{}; {}; {}", clash.claim, outcome, clash.remedy)
        self._put(public, clashes)

    def _assigned(self) -> tuple[PublicNames, tuple[NameClash, ...]]:
        """Return the names of all tools; the clashes are those of the next start."""
        claims = {active.id: [tool.name for tool in active.tools] for active in self._plugins}
        keepers = {active.id for active in self._plugins if active.keeps_names}
        _, clashes = assign_tool_names(claims, self._aliases, keepers)
        reserved = {name for plugin in keepers for name in claims[plugin]}
        settled = {
            f"{plugin}/{name}": name
            for (plugin, name), public in self._public.items()
            if public == name
            and name in claims.get(plugin, ())
            and (plugin in keepers or name not in reserved)
        }
        decided = {**settled, **{full: short for short, full in self._aliases.items()}}
        aliases = {short: full for full, short in decided.items()}
        # Where two would have one name, the owner's word counts.
        public, _ = assign_tool_names(claims, {**aliases, **self._aliases}, keepers)
        return public, clashes

    def _put(self, public: PublicNames, clashes: tuple[NameClash, ...]) -> None:
        for plugin_id in self._offered:
            self.registry.replace(plugin_id, ())
        for active in self._plugins:
            try:
                self.registry.replace(active.id, active.registered_tools(active.tools, public))
            except PluginError as error:
                self._on_failure(active.id, error)
        self.clashes = clashes
        self._public = public
        self._offered = frozenset(active.id for active in self._plugins)

    def keep(self, active: ActivePlugin, tools: Sequence[Tool | LazyTool]) -> None:
        """Remember `tools` for the next `offer`.

        Raises:
            PluginRejected: a tool is malformed or was not declared.
        """
        active.registered_tools(tools, {})
        active.published = tuple(tools)

    def publish(self, active: ActivePlugin, tools: Sequence[Tool | LazyTool]) -> None:
        """Take `tools` instead of what `active` published before, as one change.

        Raises:
            PluginRejected: a tool is malformed or was not declared.
            NameConflict: the program itself has a tool of that name.
        """
        former = active.published
        self.keep(active, tools)
        public, clashes = self._assigned()
        for (plugin_id, _), name in public.items():
            other = self.registry.get(name)
            if plugin_id == active.id and other and other.plugin not in self._offered:
                active.published = former
                raise NameConflict("tool", name, (other.plugin, plugin_id))
        self._put(public, clashes)

    def clear(self) -> None:
        """Remove the tools of all plugins, and forget which names they had."""
        self.offer((), {})
