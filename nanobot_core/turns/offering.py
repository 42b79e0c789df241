"""Which tools a turn may use."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from nanobot_core.events import ToolsOffered

if TYPE_CHECKING:
    from nanobot_core.config.models import ToolsSettings
    from nanobot_core.events import TurnInfo
    from nanobot_core.hooks.caller import Hooks
    from nanobot_core.plugins.table import Generation
    from nanobot_core.tools.registry import RegisteredTool, ToolRegistry


class TurnTools:
    """The tools of one turn: what the owner allows the sender, less what hooks take away.

    Args:
        generation: gives the tools that there are.
        rules: what the owner allows.
        turn: the turn.
        hooks: its call points.
    """

    def __init__(
        self, generation: Generation, rules: ToolsSettings, turn: TurnInfo, hooks: Hooks
    ) -> None:
        self._generation = generation
        self._rules = rules
        self._turn = turn
        self._hooks = hooks
        self._known = generation.tools

    async def offered(self) -> ToolRegistry:
        """Return what may be called, of the tools that there were when this was made."""
        return await self._offered_of(self._known)

    async def newer(self) -> ToolRegistry | None:
        """Return what may be called now; ``None`` where that is what was returned last."""
        known, self._known = self._known, self._generation.newest_tools()
        return None if self._known is known else await self._offered_of(self._known)

    async def _offered_of(self, registry: ToolRegistry) -> ToolRegistry:
        # As it is by default, nothing is taken away, and no turn need look at every name for that.
        if not self._turn.is_owner or "*" not in self._rules.allow or self._rules.deny:
            names = [entry.definition.name for entry in registry if self._is_offered(entry)]
            if len(names) != len(registry):
                registry = registry.narrowed(names)
        if not self._hooks.rewrite_tools:
            return registry
        event = ToolsOffered(turn=self._turn, tools=registry.get_definitions())
        kept = {definition.name for definition in await self._hooks.rewrite_tools(event)}
        return registry if len(kept) == len(registry) else registry.narrowed(kept)

    def _is_offered(self, entry: RegisteredTool) -> bool:
        """Whether the owner's settings offer a tool to the sender.

        ``deny`` follows a tool under every name that it has, so that a plugin which takes the
        short name does not bring it back.
        """
        rules, full = self._rules, f"{entry.plugin}/{entry.own_name}"
        names = (entry.definition.name, full)
        if not _match_any(names, rules.allow) or _match_any((*names, entry.own_name), rules.deny):
            return False
        if self._turn.is_owner or entry.traits.for_guests:
            return True
        return _match_any(names, rules.guests.allow)


def _match_any(names: Iterable[str], globs: Sequence[str]) -> bool:
    return any(fnmatchcase(name, glob) for name in names for glob in globs)
