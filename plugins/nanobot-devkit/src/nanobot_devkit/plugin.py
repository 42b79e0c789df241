"""Entry point: commands under ``nanobot plugins``."""

from __future__ import annotations

from collections.abc import Iterable

from nanobot_core import CliGroup, on


@on.contribute_cli
def contribute_cli() -> Iterable[CliGroup]:
    """Contribute the commands of plugin authors."""
    return (
        CliGroup(
            name="new",
            summary="Write a new plugin package that passes its tests.",
            app="nanobot_devkit.commands:new",
            parent="plugins",
        ),
        CliGroup(
            name="build",
            summary="Derive a plugin's manifest from its code.",
            app="nanobot_devkit.commands:build",
            parent="plugins",
        ),
        CliGroup(
            name="check",
            summary="Report what prevents a plugin from being published.",
            app="nanobot_devkit.commands:check",
            parent="plugins",
        ),
        CliGroup(
            name="compat",
            summary="Say which releases of nanobot-core a wheel fits.",
            app="nanobot_devkit.compat:compat",
            parent="plugins",
        ),
        CliGroup(
            name="bisect",
            summary="Find the plugin that makes a command fail.",
            app="nanobot_devkit.bisection:bisect",
            parent="plugins",
        ),
        CliGroup(
            name="dev",
            summary="Chat with a plugin that is loaded again on each save.",
            app="nanobot_devkit.dev:dev",
            parent="plugins",
        ),
        CliGroup(
            name="record",
            summary="Write the hook calls of a run to a file that tests replay.",
            app="nanobot_devkit.record:record",
            parent="plugins",
        ),
    )
