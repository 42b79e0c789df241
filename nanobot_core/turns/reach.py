"""What the sender of a message may reach in the file system."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nanobot_core.agent.results import ResultFiles
from nanobot_core.channels.access import first_part
from nanobot_core.folder import Folder
from nanobot_core.paths import PathGuard
from nanobot_core.sessions.key import safe_name

if TYPE_CHECKING:
    from pathlib import Path

    from nanobot_core.config.loading import LoadedConfig
    from nanobot_core.events import TurnInfo

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
    their own and the long results of their session, and nothing else unless ``tools.guests`` says
    so.

    Args:
        loaded: the configuration.
        results: where long results are kept.
    """

    def __init__(self, loaded: LoadedConfig, results: ResultFiles) -> None:
        self._tools = loaded.settings.tools
        self._workspace = loaded.workspace.resolve()
        self._protected = loaded.protected_paths
        self._media = loaded.home / "media"
        self._results = results
        self._owners = self._guard(self._workspace, restricted=self._tools.restrict_to_workspace)

    def guard_for(self, turn: TurnInfo) -> PathGuard:
        """Return the guard for the calls of a turn. Blocks for guests, whose folder it makes."""
        if turn.is_owner:
            return self._owners
        steering = [self._workspace / name for name in STEERING]
        if self._tools.guests.files == "workspace":
            return self._guard(self._workspace, guarded=steering)
        name = safe_name(f"{turn.channel}:{first_part(turn.sender_id)}")
        Folder(self._workspace).make(f"{GUESTS_FOLDER}/{name}")
        return self._guard(
            self._workspace / GUESTS_FOLDER / name,
            guarded=steering,
            read_roots=[self._results.folder_of(turn.session_key)],
        )

    def _guard(
        self,
        workspace: Path,
        *,
        restricted: bool = True,
        guarded: list[Path] | None = None,
        read_roots: list[Path] | None = None,
    ) -> PathGuard:
        return PathGuard(
            workspace,
            restricted=restricted,
            protected=self._protected,
            unlisted=self._media,
            guarded=guarded or (),
            read_roots=read_roots or (),
        )
