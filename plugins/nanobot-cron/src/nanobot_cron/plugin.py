"""Entry point: settings, the service that starts jobs, and the end of their runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nanobot_core import PluginFacts, SettingsSection, on

if TYPE_CHECKING:
    from collections.abc import Iterable


@on.describe_plugin
def describe_plugin() -> PluginFacts:
    """Declare what the plugin does and reads."""
    return PluginFacts(
        summary="does tasks at a time, at an interval or on an event",
        capabilities=("does tasks that nobody is asking for at that moment",),
        reads=("contribute_jobs", "contribute_triggers"),
    )


@on.contribute_settings
def contribute_settings() -> Iterable[SettingsSection]:
    """Declare the settings section."""
    return (SettingsSection("cron", "nanobot_cron.settings:CronSettings"),)
