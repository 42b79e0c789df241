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

    from nanobot_core import PluginContext


class WebPlugin:
    """Implementations of hooks; one instance belongs to one application."""

    def __init__(self) -> None:
        self._ctx: PluginContext | None = None

    @on.describe_plugin
    def describe_plugin(self) -> PluginFacts:
        """Declare what the plugin needs and reaches."""
        return PluginFacts(
            requires=("http",),
            capabilities=(
                "gives whoever signs in by the terminal's link or the password the owner's rights",
            ),
        )

    @on.contribute_settings
    def contribute_settings(self) -> Iterable[SettingsSection]:
        """Declare the settings section."""
        return (SettingsSection("channels.web", "nanobot_webui.settings:WebSettings"),)

    @on.contribute_channels
    def contribute_channels(self, ctx: PluginContext) -> Iterable[ChannelSpec]:
        """Contribute the channel."""
        return (
            ChannelSpec(
                name="web",
                factory="nanobot_webui.channel:WebChannel",
                summary="the page in the browser",
                secrets=("password",),
                owner_id="owner",
            ),
        )

    @on.contribute_routes
    def contribute_routes(self, ctx: PluginContext) -> Iterable[Mount]:
        """Contribute the page."""
        # Open, because it has logins of its own, which say more than the gateway's secret.
        app = "nanobot_webui.app:build_app"
        return (Mount(path="/", app=app, access="open", start_limit_s=60.0),)

    @on.contribute_commands
    def contribute_commands(self, ctx: PluginContext) -> Iterable[SlashCommand]:
        """Contribute ``/web-login``."""
        return (
            SlashCommand(
                name="web-login",
                summary="a link that signs a browser in; for the command nanobot web",
                handler="nanobot_webui.commands:answer_login",
                control=True,
                owner_only=True,
            ),
        )

    @on.contribute_cli
    def contribute_cli(self) -> Iterable[CliGroup]:
        """Contribute ``nanobot web``."""
        return (
            CliGroup(
                name="web", summary="Open the page in the browser.", app="nanobot_webui.cli:web"
            ),
        )

    @on.start
    def start(self, ctx: PluginContext) -> None:
        """Keep the context for the hooks that watch turns."""
        self._ctx = ctx
