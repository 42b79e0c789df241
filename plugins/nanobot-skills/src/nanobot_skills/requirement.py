"""Whether the machine has what a skill requires."""

from __future__ import annotations

import os
import shutil

from nanobot_core import PluginContext
from nanobot_skills.skill import Requirements


class RequirementCheck:
    """Looks for programs and environment variables.

    A program is looked for once; again when ``PATH`` or one of its folders changes.
    """

    def __init__(self, ctx: PluginContext) -> None:
        self._ctx = ctx
        self._state: tuple[object, ...] = ()
        self._programs: dict[str, bool] = {}

    def missing(self, requires: Requirements) -> tuple[str, ...]:
        """Return what is missing, in words. Blocks."""
        programs = [name for name in requires.bins if not self._programs.get(name, False)]
        variables = self._ctx.environment(requires.env) if requires.env else {}
        return (
            *(f"the program {name}" for name in programs),
            *(f"the variable {name}" for name in requires.env if not variables.get(name)),
        )

    def state(self) -> tuple[object, ...]:
        """Return what changes when a program comes or goes. Blocks."""
        path = self._path()
        return (path, *(_changed_at(folder) for folder in path.split(os.pathsep)))

    def look_for(self, programs: set[str]) -> None:
        """Find out which of `programs` exist, as far as that may have changed. Blocks."""
        path, state = self._path(), self.state()
        known = self._programs if state == self._state else {}
        # A plain name only: what contains a separator would be a path and not a program's name.
        self._programs = {
            name: known[name]
            if name in known
            else os.sep not in name and shutil.which(name, path=path) is not None
            for name in programs
        }
        self._state = state

    def _path(self) -> str:
        return self._ctx.environment(("PATH",)).get("PATH", os.defpath)


def _changed_at(folder: str) -> int:
    try:
        return os.stat(folder or ".").st_mtime_ns  # noqa: PTH116 - dozens of folders each turn
    except OSError:
        return 0
