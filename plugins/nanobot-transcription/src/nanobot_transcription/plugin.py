"""Entry point: what the plugin gives."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from nanobot_core import Check, PluginFacts, SettingsSection, TranscriberSpec, on
from nanobot_transcription.services import SERVICES

if TYPE_CHECKING:
    from nanobot_core import PluginContext


@on.describe_plugin
def describe_plugin() -> PluginFacts:
    """Say what it reaches."""
    return PluginFacts(
        capabilities=("sends voice messages to a transcription service",),
        hosts=tuple(service.host for service in SERVICES.values() if service.host),
    )


@on.contribute_settings
def contribute_settings() -> Iterable[SettingsSection]:
    """Say where the settings stand."""
    return (
        SettingsSection(
            "transcription",
            "nanobot_transcription.settings:TranscriptionSettings",
            environment=tuple(service.key_variable for service in SERVICES.values()),
        ),
    )


@on.contribute_transcribers
def contribute_transcribers(ctx: PluginContext) -> Iterable[TranscriberSpec]:
    """Give the one transcriber; which service it uses is a setting."""
    return (
        TranscriberSpec(
            name="openai-compatible",
            factory="nanobot_transcription.transcriber:build_transcriber",
        ),
    )


@on.contribute_checks
def contribute_checks() -> Iterable[Check]:
    """Give the check of key and address."""
    return (Check(name="voice messages", run="nanobot_transcription.checks:check_endpoint"),)
