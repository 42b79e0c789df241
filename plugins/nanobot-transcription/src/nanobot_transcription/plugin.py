"""Entry point: the hooks that the plugin implements."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from nanobot_core import Check, PluginFacts, SettingsSection, TranscriberSpec, on
from nanobot_transcription.services import SERVICES

if TYPE_CHECKING:
    from nanobot_core import PluginContext


@on.describe_plugin
def describe_plugin() -> PluginFacts:
    """Declare what the plugin reaches."""
    return PluginFacts(
        capabilities=("sends voice messages to a transcription service",),
        hosts=tuple(service.host for service in SERVICES.values() if service.host),
    )


@on.contribute_settings
def contribute_settings() -> Iterable[SettingsSection]:
    """Declare the settings section."""
    return (
        SettingsSection(
            "transcription",
            "nanobot_transcription.settings:TranscriptionSettings",
            environment=tuple(service.key_variable for service in SERVICES.values()),
        ),
    )


@on.contribute_transcribers
def contribute_transcribers(ctx: PluginContext) -> Iterable[TranscriberSpec]:
    """Contribute the transcriber; a setting selects its service."""
    return (
        TranscriberSpec(
            name="openai-compatible",
            factory="nanobot_transcription.transcriber:build_transcriber",
        ),
    )


@on.contribute_checks
def contribute_checks() -> Iterable[Check]:
    """Contribute the check of key and address."""
    return (Check(name="voice messages", run="nanobot_transcription.checks:check_endpoint"),)
