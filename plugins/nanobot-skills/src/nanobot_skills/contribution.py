"""The hook with which other packages contribute skills."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from nanobot_core import declare_contribution

if TYPE_CHECKING:
    from nanobot_core import PluginContext


@dataclass(frozen=True, slots=True)
class SkillSource:
    """A folder of skills that a plugin contributes.

    Attributes:
        folder: contains a folder with a SKILL.md for each skill.
        label: where the skills come from, in a few words for the owner.
    """

    folder: Path
    label: str


@declare_contribution
def skills_sources(ctx: PluginContext) -> Iterable[SkillSource]:
    """Contribute folders of skills: ``FOLDER/NAME/SKILL.md``.

    Asked before each turn. A skill of the owner or of the workspace replaces one with the same
    name; otherwise the earlier plugin keeps the name.
    """
    raise NotImplementedError
