"""Entry point: the route, the commands for keys, and the service behind them."""

from __future__ import annotations

from collections.abc import Awaitable, Iterable
from typing import TYPE_CHECKING

from nanobot_core import CliGroup, Mount, PluginFacts, ServiceSpec, SettingsSection, on

if TYPE_CHECKING:
    from nanobot_core import PluginContext, UsageRecorded

PATH = "/v1"
_START_LIMIT_S = 3_600.0
"""A whole answer begins when its turn has ended, and a tool call may wait for the owner."""
_NO_LIMIT_BYTES = 1 << 40
"""The application itself limits bodies, because it answers in the form that clients read."""


class ApiPlugin:
    """Implementations of hooks; one instance belongs to one application."""

    def __init__(self) -> None:
        self._ctx: PluginContext | None = None

    @on.describe_plugin
    def describe_plugin(self) -> PluginFacts:
        """Declare what the plugin needs and reaches."""
        return PluginFacts(
            requires=("http",),
            capabilities=("lets programs with a key use the agent and its models",),
        )

    @on.contribute_settings
    def contribute_settings(self) -> Iterable[SettingsSection]:
        """Declare the settings section."""
        return (SettingsSection("gateway.api", "nanobot_api.settings:ApiSettings"),)

    @on.contribute_routes
    def contribute_routes(self, ctx: PluginContext) -> Iterable[Mount]:
        """Contribute the route."""
        # Open, because each program has a key of its own.
        return (
            Mount(
                path=PATH,
                app="nanobot_api.app:build_app",
                access="open",
                start_limit_s=_START_LIMIT_S,
                max_body_bytes=_NO_LIMIT_BYTES,
                encoded_slash=True,  # the library openai encodes that of the names of models
            ),
        )

    @on.contribute_services
    def contribute_services(self, ctx: PluginContext) -> Iterable[ServiceSpec]:
        """Contribute the service that removes what is out of date."""
        return (ServiceSpec(name="api", factory="nanobot_api.service:ApiService", needs=("http",)),)

    @on.contribute_cli
    def contribute_cli(self) -> Iterable[CliGroup]:
        """Contribute ``nanobot api``."""
        return (
            CliGroup(
                name="api",
                summary="Manage the keys of programs.",
                app="nanobot_api.commands:app",
            ),
        )

    @on.start
    def start(self, ctx: PluginContext) -> None:
        """Keep the context for the hook that does not get it."""
        self._ctx = ctx

    @on.on_usage
    def on_usage(self, event: UsageRecorded) -> Awaitable[None] | None:
        """Count the tokens of a key, also those of requests that were cancelled."""
        prefix, _, rest = event.session_key.partition(":")
        if self._ctx is None or prefix != self._ctx.id or not event.usage.total_tokens:
            return None
        from nanobot_api.keys import count_tokens

        return count_tokens(self._ctx, rest.partition(":")[0], event.usage.total_tokens)
