"""The files and tools that the sender of a message may use."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from nanobot_core.agent.results import ResultFiles
from nanobot_core.channels.access import first_part
from nanobot_core.events import ToolsOffered
from nanobot_core.folder import Folder
from nanobot_core.paths import PathGuard
from nanobot_core.sessions.folder import safe_name

if TYPE_CHECKING:
    from nanobot_core.config.loading import LoadedConfig
    from nanobot_core.config.models import ToolsSettings
    from nanobot_core.events import TurnInfo
    from nanobot_core.hooks.caller import Hooks
    from nanobot_core.plugins.table import Generation
    from nanobot_core.tools.registry import RegisteredTool, ToolRegistry

MAX_GUARDS = 256
"""Guards kept in memory, because making one reads links from the file system."""
GUESTS_FOLDER = "guests"
STEERING = (
    *("AGENTS.md", "SOUL.md", "USER.md", "TOOLS.md", "IDENTITY.md", "HEARTBEAT.md"),
    *("skills", ".agents", "agents", "memory", "cron", "jobs.json"),
)
"""Names in the workspace that steer the agent in later turns, those of other senders included."""


class Reach:
    """Makes the guard of a turn from the configuration.

    The owner may use the workspace; paths outside are refused under
    ``tools.restrict_to_workspace``, and need an approval otherwise. A guest may use a folder of
    their own, and nothing else unless ``tools.guests`` allows it. A program of the owner's, such as
    an editor, may name another folder instead of the workspace. Long results can be read in their
    own session.

    Attributes:
        results: keeps long results of tools.
    """

    def __init__(self, loaded: LoadedConfig, results: ResultFiles) -> None:
        self._tools = loaded.settings.tools
        self._workspace = loaded.workspace.resolve()
        self._protected = loaded.protected_paths
        self._media = loaded.home / "media"
        self.results: ResultFiles = results
        self._guards: dict[tuple[str, str, str, bool, str], PathGuard] = {}

    async def guard_for(self, turn: TurnInfo) -> PathGuard:
        """Return the guard for the calls of a turn; makes the folder of a guest."""
        sender = first_part(turn.sender_id)
        key = (turn.session_key, turn.channel, sender, turn.is_owner, turn.folder)
        if (guard := self._guards.get(key)) is None:
            if len(self._guards) >= MAX_GUARDS:
                self._guards.clear()
            guard = self._guards[key] = await asyncio.to_thread(self._made_for, turn)
        return guard

    def guard_for_plugin(self) -> PathGuard:
        """Return the guard for tools that a plugin's own task calls. Blocks.

        The instructions of the agent, its memory and its skills cannot be written.
        """
        guarded = [self._workspace / name for name in STEERING]
        return PathGuard(
            self._workspace, restricted=True, protected=self._protected, guarded=guarded
        )

    def _made_for(self, turn: TurnInfo) -> PathGuard:
        guard = partial(
            PathGuard,
            protected=self._protected,
            unlisted=self._media,
            read_roots=[self.results.folder_of(turn.session_key)],
        )
        if turn.is_owner:
            folder = Path(turn.folder).resolve() if turn.folder else self._workspace
            return guard(folder, restricted=self._tools.restrict_to_workspace)
        own = self._workspace
        if self._tools.guests.files != "workspace":
            name = f"{GUESTS_FOLDER}/{safe_name(f'{turn.channel}:{first_part(turn.sender_id)}')}"
            Folder(self._workspace).make(name)
            own /= name
        return guard(own, restricted=True, guarded=[self._workspace / name for name in STEERING])


class TurnTools:
    """The tools of one turn: those that the owner allows the sender, less those hooks remove.

    Args:
        generation: has the tools.
        rules: what the owner allows.
        turn: the turn.
        hooks: the call points of the turn.

    Attributes:
        withheld: names of tools that hooks have removed.
    """

    def __init__(
        self, generation: Generation, rules: ToolsSettings, turn: TurnInfo, hooks: Hooks
    ) -> None:
        self._generation = generation
        self._rules = rules
        self._turn = turn
        self._hooks = hooks
        self._known = generation.tools
        self.withheld: frozenset[str] = frozenset()

    async def offered(self) -> ToolRegistry:
        """Return what may be called, of the tools at the start of the turn."""
        return await self._offered_of(self._known)

    async def newer(self) -> ToolRegistry | None:
        """Return what may be called now; ``None`` if nothing has changed since the last call."""
        known, self._known = self._known, self._generation.newest_tools()
        return None if self._known is known else await self._offered_of(self._known)

    async def _offered_of(self, registry: ToolRegistry) -> ToolRegistry:
        # By default nothing is removed, so that not every turn checks every name.
        turn = self._turn
        is_limited = not turn.is_owner or turn.assignment is not None or bool(turn.tools)
        if is_limited or "*" not in self._rules.allow or self._rules.deny:
            names = [entry.definition.name for entry in registry if self._is_offered(entry)]
            if len(names) != len(registry):
                registry = registry.narrowed(names)
        if not self._hooks.rewrite_tools:
            return registry
        event = ToolsOffered(turn=self._turn, tools=registry.get_definitions())
        kept = {definition.name for definition in await self._hooks.rewrite_tools(event)}
        self.withheld = frozenset(registry.names()).difference(kept)
        return registry if len(kept) == len(registry) else registry.narrowed(kept)

    def _is_offered(self, entry: RegisteredTool) -> bool:
        """Whether the owner's settings offer a tool to the sender.

        ``deny`` applies to every name of a tool, so that a plugin that takes the short name does
        not make the tool available again.
        """
        rules, full = self._rules, f"{entry.plugin}/{entry.own_name}"
        names = (entry.definition.name, full)
        if not _match_any(names, rules.allow) or _match_any((*names, entry.own_name), rules.deny):
            return False
        if (given := self._turn.assignment) and not given.admits(names, [entry.own_name]):
            return False
        if not all(rule.admits(names, [entry.own_name]) for rule in self._turn.tools):
            return False
        if self._turn.is_owner or entry.declared.for_guests:
            return True
        return _match_any(names, rules.guests.allow)


def _match_any(names: Iterable[str], globs: Sequence[str]) -> bool:
    return any(fnmatchcase(name, glob) for name in names for glob in globs)
