"""What makes a plugin that may run start at once, instead of when something asks for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nanobot_core.hooks.caller import declared_hooks
from nanobot_core.hooks.kinds import Kind
from nanobot_core.plugins.manifest import CHANNEL_CONDITION, Manifest

if TYPE_CHECKING:
    from nanobot_core.config.models import Settings


def listens(manifest: Manifest, settings: Settings) -> bool:
    """Whether a plugin implements a hook of the agent's work, or must react to its start."""
    points = declared_hooks()
    quiet = {Kind.OWN, Kind.CONTRIBUTE}
    return any(
        name in points
        and points[name].kind not in quiet
        and holds(manifest.when.get(name, ""), settings)
        for name in manifest.hooks
    )


def holds(condition: str, settings: Settings) -> bool:
    """Whether the channel that a condition names is switched on; no condition always holds."""
    if not condition:
        return True
    section = settings.section(f"channels.{condition.removeprefix(CHANNEL_CONDITION)}")
    return section is not None and section.get("enabled", True) is True


def brings_tools(manifest: Manifest) -> bool:
    """Whether a plugin has tools, now or at run time."""
    return bool(manifest.of_kind("tools") or manifest.facts.tool_names)
