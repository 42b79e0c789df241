"""What the sender of a message may reach in the file system."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from nanobot_core.agent.results import ResultFiles
from nanobot_core.channels.access import first_part
from nanobot_core.folder import Folder
from nanobot_core.paths import PathGuard
from nanobot_core.sessions.folder import safe_name

if TYPE_CHECKING:
    from pathlib import Path

    from nanobot_core.config.loading import LoadedConfig
    from nanobot_core.events import TurnInfo

MAX_GUARDS = 256
"""Guards that are kept; making one asks the file system for links."""
GUESTS_FOLDER = "guests"
STEERING = (
    *("AGENTS.md", "SOUL.md", "USER.md", "TOOLS.md", "IDENTITY.md", "HEARTBEAT.md"),
    *("skills", "agents", "memory", "cron", "jobs.json"),
)
"""Names in the workspace that steer the agent in later turns, those of other senders included."""


class Reach:
    """Makes the guard of a turn from the configuration.

    The owner may use the workspace; paths outside are refused where
    ``tools.restrict_to_workspace`` says so, and asked about otherwise. A guest may use a folder of
    their own, and nothing else unless ``tools.guests`` says so. Long results can be read in the
    session that they belong to.

    Attributes:
        results: where long results of tools are kept.

    Args:
        loaded: the configuration.
        results: see above.
    """

    def __init__(self, loaded: LoadedConfig, results: ResultFiles) -> None:
        self._tools = loaded.settings.tools
        self._workspace = loaded.workspace.resolve()
        self._protected = loaded.protected_paths
        self._media = loaded.home / "media"
        self.results: ResultFiles = results
        self._guards: dict[tuple[str, str, str, bool], PathGuard] = {}

    def guard_for(self, turn: TurnInfo) -> PathGuard:
        """Return the guard for the calls of a turn. Blocks; makes the folder of a guest."""
        key = (turn.session_key, turn.channel, first_part(turn.sender_id), turn.is_owner)
        guard = self._guards.get(key)
        if guard is None:
            if len(self._guards) >= MAX_GUARDS:
                self._guards.clear()
            guard = self._guards[key] = self._made_for(turn)
        return guard

    def _made_for(self, turn: TurnInfo) -> PathGuard:
        results = self.results.folder_of(turn.session_key)
        if turn.is_owner:
            restricted = self._tools.restrict_to_workspace
            return self._guard(self._workspace, results, restricted=restricted)
        steering = [self._workspace / name for name in STEERING]
        if self._tools.guests.files == "workspace":
            return self._guard(self._workspace, results, guarded=steering)
        name = safe_name(f"{turn.channel}:{first_part(turn.sender_id)}")
        Folder(self._workspace).make(f"{GUESTS_FOLDER}/{name}")
        own = self._workspace / GUESTS_FOLDER / name
        return self._guard(own, results, guarded=steering)

    def _guard(
        self,
        workspace: Path,
        results: Path,
        *,
        restricted: bool = True,
        guarded: Sequence[Path] = (),
    ) -> PathGuard:
        return PathGuard(
            workspace,
            restricted=restricted,
            protected=self._protected,
            unlisted=self._media,
            guarded=guarded,
            read_roots=[results],
        )
