"""Entry point: what the plugin contributes, and the hooks that concern jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nanobot_core import (
    Check,
    CliGroup,
    LazyTool,
    PluginFacts,
    ServiceSpec,
    SettingsSection,
    SlashCommand,
    on,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Iterable

    from nanobot_core import (
        AssignmentFinished,
        Panel,
        PluginContext,
        Trigger,
        TurnStarted,
        WorkStopped,
    )
    from nanobot_cron.message_trigger import Watchers


class CronPlugin:
    """Implementations of hooks; one instance belongs to one application."""

    def __init__(self) -> None:
        self._ctx: PluginContext | None = None
        self._watchers: Watchers | None = None

    @on.describe_plugin
    def describe_plugin(self) -> PluginFacts:
        """Declare what the plugin does and reads."""
        return PluginFacts(
            summary="runs tasks at a time, at an interval or on an event",
            capabilities=("runs the agent without a message from a person",),
            reads=("contribute_jobs", "contribute_triggers"),
        )

    @on.contribute_settings
    def contribute_settings(self) -> Iterable[SettingsSection]:
        """Declare the settings section."""
        return (SettingsSection("cron", "nanobot_cron.settings:CronSettings"),)

    @on.contribute_triggers
    def contribute_triggers(self, ctx: PluginContext) -> Iterable[Trigger]:
        """Contribute the triggers ``file`` and ``message``."""
        from nanobot_cron.file_trigger import FileTrigger
        from nanobot_cron.message_trigger import MessageTrigger, Watchers

        self._watchers = ctx.shared(Watchers)
        return (FileTrigger(ctx), MessageTrigger(ctx))

    @on.contribute_services
    def contribute_services(self, ctx: PluginContext) -> Iterable[ServiceSpec]:
        """Contribute the scheduler."""
        return (ServiceSpec(name="cron", factory="nanobot_cron.scheduler:CronService"),)

    @on.contribute_tools
    def contribute_tools(self, ctx: PluginContext) -> Iterable[LazyTool]:
        """Contribute ``cron``."""
        return (LazyTool("cron", "nanobot_cron.tool:CronTool"),)

    @on.contribute_commands
    def contribute_commands(self, ctx: PluginContext) -> Iterable[SlashCommand]:
        """Contribute ``/cron``."""
        return (
            SlashCommand(
                name="cron",
                summary="scheduled jobs: /cron list, add, remove, enable, disable, run, history",
                handler="nanobot_cron.replies:answer_cron",
                control=True,
                owner_only=True,
            ),
        )

    @on.contribute_cli
    def contribute_cli(self) -> Iterable[CliGroup]:
        """Contribute ``nanobot cron``."""
        return (
            CliGroup(
                name="cron",
                summary="Show and change scheduled jobs.",
                app="nanobot_cron.commands:app",
            ),
        )

    @on.contribute_panels
    def contribute_panels(self, ctx: PluginContext) -> Iterable[Panel]:
        """Contribute the page with the jobs."""
        from nanobot_cron.panel import jobs_panel

        return (jobs_panel(ctx),)

    @on.contribute_checks
    def contribute_checks(self) -> Iterable[Check]:
        """Contribute a check of the jobs."""
        return (Check(name="scheduled jobs", run="nanobot_cron.check:check_jobs"),)

    @on.start
    def start(self, ctx: PluginContext) -> None:
        """Keep the context for hooks that do not get it."""
        self._ctx = ctx

    @on.before_turn
    def before_turn(self, event: TurnStarted) -> Awaitable[None] | None:
        """Start the jobs that wait for such a message."""
        return self._watchers.see(event) if self._watchers else None

    @on.after_assignment
    async def after_assignment(self, event: AssignmentFinished) -> None:
        """Record the end of a run."""
        from nanobot_cron.runner import Runner

        if self._ctx is not None and event.assignment.plugin == self._ctx.id:
            await self._ctx.shared(Runner).finish(event)

    @on.on_stop
    async def on_stop(self, event: WorkStopped) -> None:
        """Drop the runs of the session that wait for their turn."""
        from nanobot_cron.runner import Runner

        if self._ctx is not None:
            await self._ctx.shared(Runner).stop_waiting(event.session_key)
