"""Entry point: the hooks that the plugin implements."""

from __future__ import annotations

from collections.abc import Awaitable, Iterable
from typing import TYPE_CHECKING

from nanobot_core import Check, ContextBlock, Deny, LazyTool, SettingsSection, on

if TYPE_CHECKING:
    from nanobot_core import (
        ContextRequested,
        Decision,
        PluginContext,
        ToolCallProposed,
        ToolDefinition,
        ToolsOffered,
    )
    from nanobot_shell.sandbox import Probe
    from nanobot_shell.settings import ExecSettings
    from nanobot_shell.shell import Shell

TOOL_NAMES = frozenset({"exec", "exec_session"})


class ShellPlugin:
    """Implementations of hooks; one instance belongs to one application."""

    def __init__(self) -> None:
        self._ctx: PluginContext | None = None

    @on.contribute_settings
    def contribute_settings(self) -> Iterable[SettingsSection]:
        """Declare the settings section."""
        return (
            SettingsSection(
                "tools.exec",
                "nanobot_shell.settings:ExecSettings",
                # The owner names further variables in `allowed_env_keys`.
                environment=("HOME", "LANG", "TERM", "PATH", "*"),
            ),
        )

    @on.contribute_tools
    def contribute_tools(self, ctx: PluginContext) -> Iterable[LazyTool]:
        """Contribute `exec` and `exec_session`."""
        return (
            LazyTool("exec", "nanobot_shell.exec_tool:ExecTool"),
            LazyTool("exec_session", "nanobot_shell.session_tool:ExecSessionTool"),
        )

    @on.contribute_checks
    def contribute_checks(self) -> Iterable[Check]:
        """Contribute the check of the sandbox."""
        return (Check(name="command sandbox", run="nanobot_shell.status:check_sandbox"),)

    @on.start
    def start(self, ctx: PluginContext) -> None:
        """Keep the context; in a gateway, end earlier commands and log which sandbox is used."""
        self._ctx = ctx
        if ctx.gateway is not None:
            ctx.spawn(self._prepare(), name="sandbox of commands")

    @on.rewrite_tools
    def rewrite_tools(self, event: ToolsOffered) -> tuple[ToolDefinition, ...] | None:
        """Offer the tools only in the channels that the settings name."""
        channels = self._settings.channels
        if not channels or event.turn.channel in channels:
            return None
        return tuple(each for each in event.tools if each.name not in TOOL_NAMES)

    @on.authorize_tool_call
    def authorize_tool_call(self, event: ToolCallProposed) -> Decision | None:
        """Refuse calls from channels without the tools; the tools judge the others themselves."""
        # An alias gives a tool another name; its origin stays.
        is_ours = event.origin.partition("@")[0] == self._context.id
        channels = self._settings.channels
        if not is_ours or not channels or event.turn.channel in channels:
            return None
        return Deny(f"{event.call.name} is not available in channel '{event.turn.channel}'")

    @on.gather_context
    def gather_context(
        self, event: ContextRequested
    ) -> Awaitable[Iterable[ContextBlock]] | Iterable[ContextBlock] | None:
        """Describe the shell to the model."""
        channels = self._settings.channels
        if channels and event.turn.channel not in channels:
            return None
        known = self._shell.known_probe
        return self._probe_and_describe() if known is None else self._describe(known)

    async def _probe_and_describe(self) -> Iterable[ContextBlock]:
        return self._describe(await self._shell.probe())

    def _describe(self, probe: Probe) -> Iterable[ContextBlock]:
        from nanobot_shell.status import render_briefing

        text = render_briefing(self._settings, probe)
        return (ContextBlock(name="Shell", text=text, placement="stable", max_tokens=200),)

    async def _prepare(self) -> None:
        from nanobot_shell.status import check_sandbox

        await self._shell.end_former()
        finding = await check_sandbox(self._context)
        level = "INFO" if finding.status == "ok" else "WARNING"
        self._context.logger.log(level, "{}", finding.message)

    @property
    def _shell(self) -> Shell:
        from nanobot_shell.shell import Shell

        return self._context.shared(Shell)

    @property
    def _settings(self) -> ExecSettings:
        from nanobot_shell.settings import ExecSettings

        return self._context.settings(ExecSettings)

    @property
    def _context(self) -> PluginContext:
        if self._ctx is None:
            msg = "the shell plugin was used before its start hook was called"
            raise RuntimeError(msg)
        return self._ctx
