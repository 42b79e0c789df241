"""Entry point: the prompt's parts, the tool, the commands, and the hook for further skills."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from nanobot_core import (
    Check,
    CliGroup,
    LazyTool,
    SettingsSection,
    SlashCommand,
    on,
)
from nanobot_skills.contribution import skills_sources

if TYPE_CHECKING:
    from nanobot_core import ContextBlock, ContextRequested, ContributionHook, PluginContext
    from nanobot_skills.library import Library


class SkillsPlugin:
    """Implementations of hooks; one instance belongs to one application."""

    def __init__(self) -> None:
        self._library: Library | None = None
        self._built: tuple[object, Sequence[ContextBlock]] = (None, ())

    @on.contribute_hookspecs
    def contribute_hookspecs(self) -> Iterable[ContributionHook[object]]:
        """Let other packages add skills."""
        return (skills_sources,)

    @on.contribute_settings
    def contribute_settings(self) -> Iterable[SettingsSection]:
        """Declare the settings section; a skill may require any environment variable."""
        section = SettingsSection(
            "skills", "nanobot_skills.settings:SkillsSettings", environment=("*",)
        )
        return (section,)

    @on.contribute_tools
    def contribute_tools(self, ctx: PluginContext) -> Iterable[LazyTool]:
        """Contribute the tool that reads skills."""
        return (LazyTool("read_skill", "nanobot_skills.read_skill:ReadSkillTool"),)

    @on.contribute_commands
    def contribute_commands(self, ctx: PluginContext) -> Iterable[SlashCommand]:
        """Contribute ``/skills``."""
        command = SlashCommand(
            name="skills",
            summary="list skills: /skills, /skills show NAME, /skills approve NAME",
            handler="nanobot_skills.chat:answer_skills",
        )
        return (command,)

    @on.contribute_cli
    def contribute_cli(self) -> Iterable[CliGroup]:
        """Contribute ``nanobot skills``."""
        group = CliGroup(
            name="skills",
            summary="List, show, check, create and approve skills.",
            app="nanobot_skills.commands:app",
        )
        return (group,)

    @on.contribute_checks
    def contribute_checks(self) -> Iterable[Check]:
        """Contribute a check for broken skills."""
        return (Check(name="skill files", run="nanobot_skills.chat:check_skills"),)

    @on.start
    async def start(self, ctx: PluginContext) -> None:
        """Prepare the library; skills are read when the first turn needs them."""
        from nanobot_skills.library import Library

        self._library = await asyncio.to_thread(ctx.shared, Library)

    @on.gather_context
    async def gather_context(self, event: ContextRequested) -> Iterable[ContextBlock]:
        """Add the active skills and the list of the others to the system prompt."""
        from nanobot_skills.prompt import build_blocks

        if self._library is None:
            msg = "the skills plugin was used before its start hook was called"
            raise RuntimeError(msg)
        library = self._library
        skills = await library.load()
        library.report(skills)
        visible = library.visible(skills, is_owner=event.turn.is_owner)
        key = (visible, tuple(event.tools))
        former, blocks = self._built
        if former != key:
            blocks = build_blocks(visible, event.tools, library)
            self._built = key, blocks
        return blocks
