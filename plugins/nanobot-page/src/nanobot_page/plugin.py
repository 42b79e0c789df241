"""Entry point: the page, the channel behind it, and the hooks that it watches."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nanobot_core import (
    ChannelSpec,
    CliGroup,
    Mount,
    PluginFacts,
    SettingsSection,
    SlashCommand,
    on,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from nanobot_core import (
        ApprovalResolved,
        IterationStarted,
        PluginContext,
        TextStreamed,
        ToolBatchStarted,
        ToolCallFinished,
        TurnOutcome,
        TurnStarted,
    )
    from nanobot_page.live import Live


class WebPlugin:
    """Implementations of hooks; one instance belongs to one application."""

    def __init__(self) -> None:
        self._ctx: PluginContext | None = None

    @on.describe_plugin
    def describe_plugin(self) -> PluginFacts:
        """Declare what the plugin needs and reaches."""
        return PluginFacts(
            requires=("http",),
            reads=("contribute_panels",),
            capabilities=(
                "gives a browser with the terminal's link or the password the rights of the owner",
            ),
            secret_files=("logins.json",),
        )

    @on.contribute_settings
    def contribute_settings(self) -> Iterable[SettingsSection]:
        """Declare the settings section."""
        return (SettingsSection("channels.web", "nanobot_page.settings:WebSettings"),)

    @on.contribute_channels
    def contribute_channels(self, ctx: PluginContext) -> Iterable[ChannelSpec]:
        """Contribute the channel."""
        return (
            ChannelSpec(
                name="web",
                factory="nanobot_page.channel:WebChannel",
                summary="the page in the browser",
                secrets=("password", "guests"),
                owner_id="owner",
            ),
        )

    @on.contribute_routes
    def contribute_routes(self, ctx: PluginContext) -> Iterable[Mount]:
        """Contribute the page."""
        # Open, because it has logins of its own, which say more than the gateway's secret.
        app = "nanobot_page.app:build_app"
        return (Mount(path="/", app=app, access="open", start_limit_s=60.0),)

    @on.contribute_commands
    def contribute_commands(self, ctx: PluginContext) -> Iterable[SlashCommand]:
        """Contribute ``/web-login``."""
        return (
            SlashCommand(
                name="web-login",
                summary="a link that signs a browser in; for the command nanobot web",
                handler="nanobot_page.commands:answer_login",
                control=True,
                owner_only=True,
            ),
        )

    @on.contribute_cli
    def contribute_cli(self) -> Iterable[CliGroup]:
        """Contribute ``nanobot web``."""
        return (
            CliGroup(
                name="web", summary="Open the page in the browser.", app="nanobot_page.cli:web"
            ),
        )

    @on.start
    def start(self, ctx: PluginContext) -> None:
        """Keep the context for the hooks that watch turns."""
        self._ctx = ctx

    @on.before_turn
    async def before_turn(self, event: TurnStarted) -> None:
        """Show that a message is being answered."""
        if live := self._live:
            await live.begin(event)

    @on.before_iteration
    async def before_iteration(self, event: IterationStarted) -> None:
        """Show which messages the turn has taken over meanwhile."""
        if live := self._live:
            await live.join(event)

    @on.on_stream
    async def on_stream(self, event: TextStreamed) -> None:
        """Show what was written."""
        if live := self._live:
            await live.write(event)

    @on.before_execute_tools
    async def before_execute_tools(self, event: ToolBatchStarted) -> None:
        """Show tool calls that begin."""
        if live := self._live:
            await live.call(event)

    @on.after_execute_tool
    async def after_execute_tool(self, event: ToolCallFinished) -> None:
        """Show the result of a tool call."""
        if live := self._live:
            await live.finish_call(event)

    @on.after_approval
    async def after_approval(self, event: ApprovalResolved) -> None:
        """Remove the card of a question."""
        if live := self._live:
            await live.cards.update()

    @on.after_turn
    async def after_turn(self, event: TurnOutcome) -> None:
        """Show the stored messages of a turn."""
        if live := self._live:
            await live.end(event)

    @property
    def _live(self) -> Live | None:
        """What follows turns; ``None`` outside a gateway."""
        if self._ctx is None or self._ctx.gateway is None:
            return None
        from nanobot_page.live import Live

        return self._ctx.shared(Live)
