"""Entry point: the tools, the command, the service, and the hooks that follow runs."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING

from nanobot_core import (
    Check,
    CliGroup,
    ContextBlock,
    LazyTool,
    PluginFacts,
    ServiceSpec,
    SettingsSection,
    SlashCommand,
    on,
)

if TYPE_CHECKING:
    from nanobot_core import (
        AssignmentFinished,
        ChatRequest,
        ContextRequested,
        LLMResponse,
        ModelCallRequested,
        PluginContext,
        ToolDefinition,
        ToolsOffered,
        TurnInfo,
        WorkStopped,
    )
    from nanobot_subagents.limit import TokenLimit
    from nanobot_subagents.run import Run
    from nanobot_subagents.runs import Runs

SOURCE = "subagent"
NO_PROFILES_S = 2.0
"""Seconds after which a workspace without profiles is examined again."""


class SubagentsPlugin:
    """Implementations of hooks; one instance belongs to one application.

    The modules that runs need are imported with the first run: every program has these hooks.
    """

    def __init__(self) -> None:
        self._ctx: PluginContext | None = None
        self._limit: TokenLimit | None = None
        self._no_profiles_until_s = -math.inf

    @on.describe_plugin
    def describe_plugin(self) -> PluginFacts:
        """Declare what the plugin does."""
        return PluginFacts(capabilities=("runs the agent for tasks that the agent delegates",))

    @on.contribute_settings
    def contribute_settings(self) -> Iterable[SettingsSection]:
        """Declare the settings section."""
        return (SettingsSection("subagents", "nanobot_subagents.settings:SubagentsSettings"),)

    @on.contribute_tools
    def contribute_tools(self, ctx: PluginContext) -> Iterable[LazyTool]:
        """Contribute ``delegate`` and ``spawn``."""
        return (
            LazyTool("delegate", "nanobot_subagents.tools:DelegateTool"),
            LazyTool("spawn", "nanobot_subagents.tools:SpawnTool"),
        )

    @on.contribute_commands
    def contribute_commands(self, ctx: PluginContext) -> Iterable[SlashCommand]:
        """Contribute ``/subagents``."""
        return (
            SlashCommand(
                name="subagents",
                summary="list subagents: /subagents, /subagents show ID, stop ID, profiles",
                handler="nanobot_subagents.chat:answer_subagents",
                control=True,
            ),
        )

    @on.contribute_cli
    def contribute_cli(self) -> Iterable[CliGroup]:
        """Contribute ``nanobot subagents``."""
        return (
            CliGroup(
                name="subagents",
                summary="List, show and stop subagents.",
                app="nanobot_subagents.commands:app",
            ),
        )

    @on.contribute_services
    def contribute_services(self, ctx: PluginContext) -> Iterable[ServiceSpec]:
        """Contribute the service that watches runs."""
        return (ServiceSpec(name="subagents", factory="nanobot_subagents.service:SubagentService"),)

    @on.contribute_checks
    def contribute_checks(self) -> Iterable[Check]:
        """Contribute a check of the profiles."""
        return (Check(name="subagent profiles", run="nanobot_subagents.chat:check_profiles"),)

    @on.start
    async def start(self, ctx: PluginContext) -> None:
        """Read the runs in a gateway, where those of the previous process may continue at once."""
        self._ctx = ctx
        if ctx.gateway is not None:
            runs = await asyncio.to_thread(self._runs)
            await runs.load()

    @on.gather_context
    def gather_context(
        self, event: ContextRequested
    ) -> Iterable[ContextBlock] | Awaitable[Iterable[ContextBlock]]:
        """List the profiles in the system prompt, if the turn can use them."""
        if not {"delegate", "spawn"}.intersection(event.tools):
            return ()
        is_known = self._started.clock.monotonic_s() < self._no_profiles_until_s
        return () if is_known else self._listed_profiles()

    async def _listed_profiles(self) -> Iterable[ContextBlock]:
        ctx = self._started
        if not await asyncio.to_thread((ctx.workspace / "agents").is_dir):
            # Most workspaces have no profiles, and the module need not be imported.
            self._no_profiles_until_s = ctx.clock.monotonic_s() + NO_PROFILES_S
            return ()
        from nanobot_subagents.order import listed_profiles
        from nanobot_subagents.profile import ProfileFolder, render_profiles

        profiles = await (await asyncio.to_thread(ctx.shared, ProfileFolder)).load()
        if not profiles.usable:
            return ()
        text = listed_profiles(render_profiles(profiles.usable.values()))
        return (ContextBlock(name="Subagents", text=text, placement="stable", position=350),)

    @on.rewrite_tools
    def rewrite_tools(self, event: ToolsOffered) -> tuple[ToolDefinition, ...] | None:
        """Offer ``spawn`` only where its result can be reported: in chats of a gateway."""
        if event.turn.source == "chat" and self._started.gateway is not None:
            return None
        kept = tuple(each for each in event.tools if each.name != "spawn")
        return None if len(kept) == len(event.tools) else kept

    @on.wrap_model_call
    def wrap_model_call(
        self,
        event: ModelCallRequested,
        call_next: Callable[[ChatRequest], Awaitable[LLMResponse]],
    ) -> Awaitable[LLMResponse] | None:
        """Count the model calls of runs, and end runs at their limits."""
        run = self._run_of(event.turn)
        if run is None:
            return None
        if self._limit is None:
            from nanobot_subagents.limit import TokenLimit

            self._limit = TokenLimit(self._runs())
        return self._limit.call(run, event, call_next)

    @on.after_assignment
    async def after_assignment(self, event: AssignmentFinished) -> None:
        """Store the result of a run, and report it."""
        if event.assignment.source == SOURCE:
            if self._limit is not None:
                self._limit.forget(event.assignment.id)
            await self._runs().finish(event)

    @on.on_stop
    async def on_stop(self, event: WorkStopped) -> None:
        """Drop the waiting runs of a session."""
        await self._runs().stop_all(event.session_key)

    def _run_of(self, turn: TurnInfo) -> Run | None:
        if turn.source != SOURCE:
            return None
        from nanobot_subagents.run import run_of

        run_id = run_of(turn.assignment)
        return self._runs().get(run_id) if run_id else None

    def _runs(self) -> Runs:
        from nanobot_subagents.runs import Runs

        return self._started.shared(Runs)

    @property
    def _started(self) -> PluginContext:
        if self._ctx is None:
            msg = "the subagents plugin was used before its start hook was called"
            raise RuntimeError(msg)
        return self._ctx
