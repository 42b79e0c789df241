"""nanobot-skills: skills in the open Agent Skills format.

For packages that add skills: `skills_sources` marks the function that adds a `SkillSource`. Names
are imported when first used, so that importing the package costs next to nothing.
"""

from __future__ import annotations

import importlib

# Type checkers know this name; importing it from typing would cost every command milliseconds.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from nanobot_skills.contribution import (
        SkillSource as SkillSource,
        skills_sources as skills_sources,
    )

_HOMES = {
    "SkillSource": "nanobot_skills.contribution",
    "skills_sources": "nanobot_skills.contribution",
}
"""Public name to the module that defines it."""

__all__ = ["SkillSource", "skills_sources"]


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        msg = f"module 'nanobot_skills' has no attribute '{name}'"
        raise AttributeError(msg)
    value: object = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value
