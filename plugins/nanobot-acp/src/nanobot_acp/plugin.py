"""Entry point: the command. The library of the protocol is imported when it runs."""

from __future__ import annotations

from collections.abc import Iterable

from nanobot_core import CliGroup, PluginFacts, on


@on.describe_plugin
def describe_plugin() -> PluginFacts:
    """Declare what the command reaches."""
    return PluginFacts(
        capabilities=(
            "lets the editor that starts nanobot acp use the agent with the owner's rights",
        ),
    )


@on.contribute_cli
def contribute_cli() -> Iterable[CliGroup]:
    """Contribute ``nanobot acp``."""
    return (
        CliGroup(
            name="acp",
            summary="Serve an editor that speaks the Agent Client Protocol.",
            app="nanobot_acp.command:acp",
        ),
    )
