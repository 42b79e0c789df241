"""Settings."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field

from nanobot_core import PluginSettings


class SkillsSettings(PluginSettings):
    """Section ``skills``.

    Attributes:
        enabled: patterns of names; other skills are left out.
        disabled: patterns of names that are left out in any case.
        folders: further folders of skills; they come after the workspace.
        guests: what senders other than the owner get: the skills that packages install, all, or
            none.
        max_active_tokens: tokens that the full text of active skills may take in the prompt.
        max_list_tokens: tokens that the list of the other skills may take.
    """

    enabled: tuple[str, ...] = ("*",)
    disabled: tuple[str, ...] = ()
    folders: tuple[Path, ...] = ()
    guests: Literal["installed", "all", "none"] = "installed"
    max_active_tokens: int = Field(default=5_000, ge=0, le=100_000)
    max_list_tokens: int = Field(default=2_000, ge=0, le=100_000)
