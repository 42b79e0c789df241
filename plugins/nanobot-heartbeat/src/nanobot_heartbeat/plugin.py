"""Entry point: the job, its settings, commands and check."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from nanobot_core import (
    Check,
    CliGroup,
    Every,
    PluginFacts,
    SettingsSection,
    SlashCommand,
    SystemJob,
    on,
)

if TYPE_CHECKING:
    from nanobot_core import AssignmentFinished, PluginContext


class HeartbeatPlugin:
    """Implementations of hooks; one instance belongs to one application."""

    def __init__(self) -> None:
        self._ctx: PluginContext | None = None

    @on.describe_plugin
    def describe_plugin(self) -> PluginFacts:
        """Declare what the plugin reaches."""
        return PluginFacts(capabilities=("starts work by itself, from a file of the workspace",))

    @on.contribute_settings
    def contribute_settings(self) -> Iterable[SettingsSection]:
        """Declare the settings section."""
        section = "nanobot_heartbeat.settings:HeartbeatSettings"
        return (SettingsSection("gateway.heartbeat", section),)

    @on.contribute_jobs
    def contribute_jobs(self, ctx: PluginContext) -> Iterable[SystemJob]:
        """Contribute the beat."""
        from nanobot_heartbeat.heart import Heart

        heart = ctx.shared(Heart)
        settings = heart.settings
        return (
            SystemJob(
                id="heartbeat",
                summary="check HEARTBEAT.md, and do what is due",
                schedule=Every(settings.interval_s) if settings.enabled else None,
                run=heart.beat,
            ),
        )

    @on.contribute_commands
    def contribute_commands(self, ctx: PluginContext) -> Iterable[SlashCommand]:
        """Contribute ``/heartbeat``."""
        return (
            SlashCommand(
                name="heartbeat",
                summary="show the heartbeat, or run it now: /heartbeat, /heartbeat trigger",
                handler="nanobot_heartbeat.replies:answer_heartbeat",
                owner_only=True,
                control=True,
            ),
        )

    @on.contribute_cli
    def contribute_cli(self) -> Iterable[CliGroup]:
        """Contribute ``nanobot heartbeat``."""
        return (
            CliGroup(
                name="heartbeat",
                summary="Show the heartbeat, or run it now.",
                app="nanobot_heartbeat.commands:app",
            ),
        )

    @on.contribute_checks
    def contribute_checks(self) -> Iterable[Check]:
        """Contribute a check of the checklist."""
        return (Check(name="heartbeat", run="nanobot_heartbeat.replies:check_heartbeat"),)

    @on.start
    async def start(self, ctx: PluginContext) -> None:
        """Create the checklist in a gateway."""
        self._ctx = ctx
        if ctx.gateway is not None:
            from nanobot_heartbeat.heart import Heart

            await ctx.shared(Heart).prepare()

    @on.after_assignment
    async def after_assignment(self, event: AssignmentFinished) -> None:
        """Note the result of a beat."""
        if self._ctx is not None and event.assignment.plugin == self._ctx.id:
            from nanobot_heartbeat.heart import Heart

            await self._ctx.shared(Heart).finish(event)
