"""Entry point: the memory backend, its commands, tool, jobs and check."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from nanobot_core import (
    Check,
    CliGroup,
    LazyTool,
    MemorySpec,
    PluginFacts,
    SettingsSection,
    SlashCommand,
    on,
)

if TYPE_CHECKING:
    from nanobot_core import Panel, PluginContext, SystemJob


@on.describe_plugin
def describe_plugin() -> PluginFacts:
    """Declare what the plugin reaches."""
    return PluginFacts(
        capabilities=(
            "keeps what people say in files of the workspace",
            "sends conversations to the model to summarise them",
        )
    )


@on.contribute_settings
def contribute_settings() -> Iterable[SettingsSection]:
    """Declare the settings section."""
    return (SettingsSection("memory", "nanobot_memory.settings:MemorySettings"),)


@on.contribute_memory
def contribute_memory(ctx: PluginContext) -> Iterable[MemorySpec]:
    """Contribute the backend ``nanobot``."""
    return (MemorySpec(name="nanobot", factory="nanobot_memory.backend:FileMemory"),)


@on.contribute_tools
def contribute_tools(ctx: PluginContext) -> Iterable[LazyTool]:
    """Contribute ``search_memory``."""
    return (LazyTool("search_memory", "nanobot_memory.tool:SearchMemoryTool"),)


@on.contribute_jobs
def contribute_jobs(ctx: PluginContext) -> Iterable[SystemJob]:
    """Contribute Dream and the archive."""
    from nanobot_memory.job import jobs_of

    return jobs_of(ctx)


@on.contribute_commands
def contribute_commands(ctx: PluginContext) -> Iterable[SlashCommand]:
    """Contribute ``/dream``, ``/dream-log`` and ``/dream-restore``."""
    return (
        SlashCommand(
            name="dream",
            summary="work new history into the memory files",
            handler="nanobot_memory.replies:answer_dream",
            owner_only=True,
        ),
        SlashCommand(
            name="dream-log",
            summary="show the changes of the memory files, or one of them",
            handler="nanobot_memory.replies:answer_log",
            owner_only=True,
        ),
        SlashCommand(
            name="dream-restore",
            summary="revert a change of the memory files",
            handler="nanobot_memory.replies:answer_restore",
            owner_only=True,
        ),
    )


@on.contribute_cli
def contribute_cli() -> Iterable[CliGroup]:
    """Contribute ``nanobot memory``."""
    return (
        CliGroup(
            name="memory",
            summary="Show, search and change what the agent remembers.",
            app="nanobot_memory.commands:app",
        ),
    )


@on.contribute_panels
def contribute_panels(ctx: PluginContext) -> Iterable[Panel]:
    """Contribute the page with the memory files and their versions."""
    from nanobot_memory.panel import memory_panel

    return (memory_panel(ctx),)


@on.contribute_checks
def contribute_checks() -> Iterable[Check]:
    """Contribute a check of the memory files."""
    return (Check(name="memory", run="nanobot_memory.check:check_memory"),)
