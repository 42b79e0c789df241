"""``nanobot status``: how things stand, at a glance."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Annotated

import typer

from nanobot_core._version import __version__
from nanobot_core.cli.options import open_agent, options_of
from nanobot_core.cli.output import print_facts
from nanobot_core.disk import damaged_files
from nanobot_core.errors import NoProvider
from nanobot_core.plugins.report import QUIET_STATES

if TYPE_CHECKING:
    from nanobot_core.app.application import Nanobot


def status(
    ctx: typer.Context,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show configuration, model and plugins at a glance; nothing is started."""
    agent = open_agent(options_of(ctx))
    agent.plugins.catalogue.examine_undescribed(agent.loaded.home / "cache")
    print_facts(_facts(agent), as_json=as_json)


def _facts(agent: Nanobot) -> dict[str, object]:
    loaded = agent.loaded
    reports = agent.plugins.reports()
    try:
        match = agent.models.match(None)
        model, provider = match.model, match.row.spec.name
    except NoProvider as error:
        model, provider = loaded.settings.agents.defaults.model or "none", f"none: {error.remedy}"
    return {
        "version": __version__,
        "configuration": str(loaded.path) if loaded.path else "none; run nanobot onboard",
        "workspace": str(loaded.workspace),
        "model": model,
        "provider": provider,
        "plugins": dict(Counter(report.state for report in reports)),
        "trouble": [
            "; ".join(part for part in (f"{item.id}: {item.reason}", item.remedy) if part)
            for item in reports
            if item.state not in QUIET_STATES
        ]
        + [f"a damaged file is kept as {file}" for file in damaged_files(loaded.home)],
    }
