"""Entry point: the HTTP server of the gateway."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nanobot_core import ServiceSpec, SettingsSection, on

if TYPE_CHECKING:
    from collections.abc import Iterable

    from nanobot_core import PluginContext


@on.contribute_settings
def contribute_settings() -> Iterable[SettingsSection]:
    """Declare the settings section."""
    return (SettingsSection("gateway.http", "nanobot_http.settings:HttpSettings"),)


@on.contribute_services
def contribute_services(ctx: PluginContext) -> Iterable[ServiceSpec]:
    """Contribute the server."""
    return (ServiceSpec(name="http", factory="nanobot_http.service:HttpService"),)
