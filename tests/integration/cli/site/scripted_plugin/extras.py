"""Entry module of the plugin ``extras``, which gives groups of commands."""

from __future__ import annotations

from collections.abc import Iterable

from nanobot_core import CliGroup, on


@on.contribute_cli
def contribute_cli() -> Iterable[CliGroup]:
    yield CliGroup(name="extras", summary="Works.", app="scripted_plugin.commands:app")
    yield CliGroup(name="ruin", summary="Is broken.", app="scripted_plugin.absent:app")
    yield CliGroup(name="agent", summary="Wants a core name.", app="scripted_plugin.commands:app")
