"""``nanobot status``: configuration, model, keys, plugins and gateway."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

import typer

from nanobot_core._version import __version__
from nanobot_core.cli.options import AsJson, agent_of, options_of, read_settings
from nanobot_core.cli.output import print_facts, run_async
from nanobot_core.disk import damaged_files
from nanobot_core.errors import NoProvider
from nanobot_core.plugins.health import QUIET_STATES

if TYPE_CHECKING:
    from pathlib import Path

    from nanobot_core.app.application import Nanobot


def status(ctx: typer.Context, as_json: AsJson = False) -> None:
    """Show configuration, model, keys, plugins and gateway; nothing is started.

    Example: nanobot status
    """
    options = options_of(ctx)
    agent = agent_of(options, read_settings(options))
    print_facts(_facts(agent), as_json=as_json)


def _facts(agent: Nanobot) -> dict[str, object]:
    loaded = agent.loaded
    try:
        match = agent.models.match(None)
        model, provider = match.model, match.row.spec.name
    except NoProvider as error:
        model, provider = loaded.settings.agents.defaults.model or "none", f"none: {error.remedy}"
    keys = {row.spec.name: bool(row.key) for row in agent.models.rows() if row.spec.needs_key}
    return {
        "version": __version__,
        "configuration": str(loaded.path) if loaded.path else "none; run nanobot onboard",
        "workspace": str(loaded.workspace),
        "model": model,
        "provider": provider,
        "keys_present": ", ".join(name for name, has_key in keys.items() if has_key) or "none",
        "keys_missing": ", ".join(name for name, has_key in keys.items() if not has_key) or "none",
        "gateway": _gateway(loaded.home),
        "plugins": dict(Counter(report.state for report in agent.plugins.reports())),
        "trouble": list(_problems(agent)),
    }


def _gateway(home: Path) -> str:
    from nanobot_core.app.client import ControlClient
    from nanobot_core.app.wire import ControlError, from_json
    from nanobot_core.contracts.service import GatewayStatus

    client = ControlClient(home / "gateway")
    if not client.is_there:
        return "not running"
    try:
        found = from_json(GatewayStatus, run_async(client.call("status")))
    except ControlError as error:
        return f"running, but it does not answer: {error}"
    channels = [item.name for item in found.running if item.kind == "channel"]
    names = f", channels: {', '.join(channels)}" if channels else ""
    ended = f"{found.totals.turns} ended, {found.totals.failed_turns} of them failed"
    return f"{found.state}, process {found.pid}, {found.turns} turns running, {ended}{names}"


def _problems(agent: Nanobot) -> Iterator[str]:
    from nanobot_core.app.checks import find_problems

    problems = find_problems(agent.loaded, agent.plugins.catalogue)
    if problems:
        gravest = min(problems, key=lambda problem: problem.level == "warning")
        more = len(problems) - 1
        yield f"{gravest} (and {more} more: nanobot config check)" if more else str(gravest)
    for report in agent.plugins.reports():
        if report.state not in QUIET_STATES:
            yield "; ".join(filter(None, (f"{report.id}: {report.reason}", report.remedy)))
    for file in damaged_files(agent.loaded.home):
        yield f"a damaged file is kept as {file}"
