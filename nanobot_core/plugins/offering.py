"""Tools of active plugins, collected, named and put into the registry."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from nanobot_core.contracts.tool import LazyTool, Tool
from nanobot_core.errors import PluginError
from nanobot_core.plugins.active import ActivePlugin
from nanobot_core.plugins.names import NameClash, ToolNames, assign_tool_names
from nanobot_core.tools.registry import ToolRegistry


class ToolOffering:
    """Keeps a registry in step with what active plugins contribute and publish.

    Args:
        registry: the registry that turns use.
        aliases: short name to ``plugin-id/name``, as the owner settled it.
        on_failure: told of a plugin whose tools cannot be taken.

    Attributes:
        clashes: names that several plugins claim.
    """

    def __init__(
        self,
        registry: ToolRegistry,
        aliases: Mapping[str, str],
        on_failure: Callable[[str, PluginError], None],
    ) -> None:
        self.clashes: tuple[NameClash, ...] = ()
        self._registry = registry
        self._aliases = aliases
        self._on_failure = on_failure

    async def refresh(self, plugins: Sequence[ActivePlugin]) -> None:
        """Collect the tools of `plugins`; one that fails is left out and told."""
        contributed: dict[str, list[Any]] = {}
        for active in plugins:
            try:
                contributed[active.id] = await active.contribute("tools")
                active.registered_tools(contributed[active.id], ToolNames({}, ()))
            except PluginError as error:
                contributed.pop(active.id, None)
                self._on_failure(active.id, error)
        claims = {plugin: [tool.name for tool in tools] for plugin, tools in contributed.items()}
        names = assign_tool_names(claims, self._aliases)
        self.clashes = names.clashes
        for active in plugins:
            if active.id in contributed:
                every = [*contributed[active.id], *active.published]
                try:
                    self._registry.replace(active.id, active.registered_tools(every, names))
                except PluginError as error:
                    self._on_failure(active.id, error)

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

    def withdraw(self, plugin_id: str) -> None:
        """Remove all tools of a plugin."""
        self._registry.replace(plugin_id, ())
