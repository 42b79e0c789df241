"""Tools of active plugins, collected, named and put into the registry."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from nanobot_core.contracts.tool import LazyTool, Tool
from nanobot_core.errors import PluginError
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
        the same: what a name means must not change in the middle of a conversation.

        Args:
            plugins: those whose tools were collected, in calling order.
            aliases: short name to ``plugin-id/name``, as the owner settled it.
        """
        ready = [active for active in plugins if active.contributed is not None]
        claims = {active.id: [tool.name for tool in active.contributed or ()] for active in ready}
        fresh = assign_tool_names(claims, aliases).clashes
        self._tell(clash for clash in fresh if clash not in self.clashes and self._public)
        self.clashes = fresh
        settled = {
            name: f"{plugin}/{name}"
            for (plugin, name), public in self._public.items()
            if public == name and name in claims.get(plugin, ())
        }
        decided = {full: short for short, full in {**settled, **aliases}.items()}
        names = assign_tool_names(claims, {short: full for full, short in decided.items()})
        for plugin_id in self._offered:
            self._registry.replace(plugin_id, ())
        for active in ready:
            every = [*(active.contributed or ()), *active.published]
            try:
                self._registry.replace(active.id, active.registered_tools(every, names))
            except PluginError as error:
                self._on_failure(active.id, error)
        self._public = names.public
        self._offered = frozenset(claims)

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
            NameConflict: another plugin has the name.
        """
        former = {tool.name for tool in active.published}
        kept = [
            tool
            for tool in self._registry
            if tool.plugin == active.id and tool.definition.name not in former
        ]
        fresh = active.registered_tools(tools, ToolNames({}, ()))
        self._registry.replace(active.id, [*kept, *fresh])
        active.published = tuple(tools)

    def clear(self) -> None:
        """Remove the tools of all plugins, and forget which names they had."""
        self.offer((), {})

    def _tell(self, clashes: Iterable[NameClash]) -> None:
        from loguru import logger

        for clash in clashes:
            logger.warning(
                "tool '{}' is claimed by {}; who had the name keeps it until the next start, then "
                "all of them are spelt out; {}",
                clash.name,
                " and ".join(clash.plugins),
                clash.remedy,
            )
