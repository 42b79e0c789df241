"""Whether a command may run, judged on the parsed command line.

In a sandbox, the guard only catches mistakes: it refuses commands that are plainly harmful, and
applies the owner's patterns. It is a security boundary only if commands are confined to the
workspace without a sandbox: then it accepts only commands that it knows to stay inside.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from nanobot_shell.confinement import find_escape
from nanobot_shell.harm import find_ground, find_harm
from nanobot_shell.reading import Reading

if TYPE_CHECKING:
    from nanobot_core import PathGuard
    from nanobot_shell.settings import ExecSettings

MAX_COMMAND_CHARS = 50_000


@dataclass(frozen=True, slots=True)
class Guard:
    """Judges command lines; blocking, because links are followed on the disk.

    Attributes:
        settings: the owner's decisions.
        files: what may be read and written; relative paths start in its workspace.
        must_confine: commands are confined to the workspace, and no sandbox does it.
    """

    settings: ExecSettings
    files: PathGuard
    must_confine: bool

    def refusal(self, reading: Reading, folder: Path) -> str:
        """Return why a command must not run and what to do instead; empty when it may.

        Args:
            folder: where it starts, free of links.
        """
        ground = find_ground(self.files.workspace, folder, reading)
        return (
            find_harm(reading, ground)
            or self._by_pattern(reading)
            or (find_escape(reading, self.files, folder) if self.must_confine else "")
        )

    def _by_pattern(self, reading: Reading) -> str:
        denied, allowed = self.settings.deny_patterns, self.settings.allow_patterns
        if not denied and not allowed:
            return ""
        values = reading.values
        if values is None or reading.has_computed_program:
            return (
                "the command cannot be read completely, so the owner's deny_patterns and "
                "allow_patterns cannot be applied; write plain commands"
            )
        for pattern in denied:
            if _matches([*values, *(step.text for step in reading.steps)], pattern):
                return f"the owner refuses commands matching {pattern!r}; do it another way"
        for value in values:
            if allowed and not any(_matches([value], pattern) for pattern in allowed):
                return (
                    f"{value[:80]!r} matches none of the owner's allow_patterns; "
                    "use an allowed command"
                )
        return ""


def _matches(texts: Iterable[str], pattern: str) -> bool:
    return any(fnmatch.fnmatchcase(text.lower(), pattern.lower()) for text in texts)
