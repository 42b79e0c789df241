"""Tools of active plugins, collected, named and put into the registry."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from nanobot_core.contracts.tool import LazyTool, Tool
from nanobot_core.errors import NameConflict, PluginError
from nanobot_core.plugins.active import ActivePlugin
from nanobot_core.plugins.names import NameClash, ToolNames, assign_tool_names
from nanobot_core.tools.registry import ToolRegistry


class ToolOffering:
    """Keeps a registry in step with what active plugins contribute and publish.

    Args:
        registry: the registry that turns use.
        on_failure: told of a plugin whose tools cannot be taken.

    Attributes:
        clashes: names that several plugins claim.
    """

    def __init__(
        self, registry: ToolRegistry, on_failure: Callable[[str, PluginError], None]
    ) -> None:
        self.clashes: tuple[NameClash, ...] = ()
        self._registry = registry
        self._on_failure = on_failure
        self._public: Mapping[tuple[str, str], str] = {}
        self._offered: frozenset[str] = frozenset()
        self._plugins: Sequence[ActivePlugin] = ()
        self._aliases: Mapping[str, str] = {}

    async def collect(self, plugins: Iterable[ActivePlugin]) -> None:
        """Ask `plugins` for their tools; one that fails offers none, and is told."""
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
        self._plugins = [active for active in plugins if active.contributed is not None]
        self._aliases = aliases
        names = self._assigned()
        new = [clash for clash in names.clashes if clash not in self.clashes]
        self._tell(new if self._public else ())
        self._put(names)

    def _assigned(self) -> ToolNames:
        """Return the names of all tools; the clashes are those of the next start."""
        claims = {active.id: [tool.name for tool in active.tools] for active in self._plugins}
        keepers = {active.id for active in self._plugins if active.keeps_names}
        fresh = assign_tool_names(claims, self._aliases, keepers)
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
        names = assign_tool_names(claims, {**aliases, **self._aliases}, keepers)
        return ToolNames(names.public, fresh.clashes)

    def _put(self, names: ToolNames) -> None:
        for plugin_id in self._offered:
            self._registry.replace(plugin_id, ())
        for active in self._plugins:
            try:
                self._registry.replace(active.id, active.registered_tools(active.tools, names))
            except PluginError as error:
                self._on_failure(active.id, error)
        self.clashes = names.clashes
        self._public = names.public
        self._offered = frozenset(active.id for active in self._plugins)

    def keep(self, active: ActivePlugin, tools: Sequence[Tool | LazyTool]) -> None:
        """Remember `tools` for the next `refresh`.

        Raises:
            PluginRejected: a tool is malformed or was not declared.
        """
        active.registered_tools(tools, ToolNames({}, ()))
        active.published = tuple(tools)

    def publish(self, active: ActivePlugin, tools: Sequence[Tool | LazyTool]) -> None:
        """Take `tools` instead of what `active` published before, as one change.

        Raises:
            PluginRejected: a tool is malformed or was not declared.
            NameConflict: the program itself has a tool of that name.
        """
        former = active.published
        self.keep(active, tools)
        names = self._assigned()
        for (plugin_id, _), name in names.public.items():
            other = self._registry.get(name)
            if plugin_id == active.id and other and other.plugin not in self._offered:
                active.published = former
                raise NameConflict("tool", name, (other.plugin, plugin_id))
        self._put(names)

    def clear(self) -> None:
        """Remove the tools of all plugins, and forget which names they had."""
        self.offer((), {})

    def _tell(self, clashes: Iterable[NameClash]) -> None:
        from loguru import logger

        for clash in clashes:
            logger.warning(
                "tool '{}' is claimed by {}; from the next start on {}; {}",
                clash.name,
                " and ".join(clash.plugins),
                clash.outcome,
                clash.remedy,
            )
