"""Starts the plugins and checks them, for ``nanobot doctor`` and ``onboard``."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Literal, NamedTuple

from nanobot_core.cli.output import printable, stdout
from nanobot_core.contracts.plugin import CheckResult
from nanobot_core.errors import ConfigError, NanobotError, PluginError
from nanobot_core.plugins.health import QUIET_STATES
from nanobot_core.plugins.manifest import OPEN_HOOKS

if TYPE_CHECKING:
    from nanobot_core.app.application import Nanobot
    from nanobot_core.plugins.health import PluginReport
    from nanobot_core.plugins.host import PluginHost
    from nanobot_core.plugins.manifest import Declaration

CHECK_LIMIT_S = 2.0
ENDING_S = 1.0
"""Seconds that tasks have to end after everything has stopped."""
Status = Literal["ok", "warning", "error"]
_STYLES: dict[Status, str] = {"ok": "green", "warning": "yellow", "error": "bold red"}
_CANNOT_START = frozenset({"failed", "settings-error", "quarantined"})
_UNREAD = {
    "contribute_jobs": "runs the jobs",
    "contribute_panels": "shows the pages",
    "contribute_triggers": "uses the triggers",
}
"""By open hook, what a reader does with the contributions."""


class Finding(NamedTuple):
    """One line of the report; `source` is ``core`` or the id of a plugin."""

    source: str
    name: str
    status: Status
    message: str
    remedy: str = ""


async def check_plugins(agent: Nanobot) -> list[Finding]:
    """Start the plugins as an agent does, check each, and stop them."""
    try:
        found = [*await _start(agent.plugins), *await _examine(agent.plugins)]
    finally:
        await agent.plugins.stop()
    return [*found, *await _tasks_left()]


async def _start(host: PluginHost) -> list[Finding]:
    found = []
    try:
        await host.start()
    except (PluginError, ConfigError) as error:
        found.append(Finding("core", "plugins.required", "error", f"no agent starts: {error}"))
    await host.load_tools()
    return found


async def _examine(host: PluginHost) -> list[Finding]:
    reports = host.reports()
    out = {report.id for report in reports if report.state in _CANNOT_START}
    declared = [item for item in host.declared("checks") if item[0] not in out]
    checks = [_run_check(host, plugin, declaration) for plugin, declaration in declared]
    health = [_check_health(host, report.id) for report in reports if _reports_health(host, report)]
    unread = _unread(host)
    return [*_troubles(reports), *_clashes(host), *unread, *await asyncio.gather(*health, *checks)]


def _troubles(reports: list[PluginReport]) -> Iterator[Finding]:
    if not reports:
        message = "none is installed, so there are no tools and no models"
        remedy = "pip install 'nanobot-core[standard]'"
        yield Finding("core", "plugins", "warning", message, remedy)
    for report in reports:
        if report.state not in QUIET_STATES:
            message = f"{report.state}: {report.reason}"
            yield Finding(report.id, "plugin", "error", message, report.remedy)


def _clashes(host: PluginHost) -> Iterator[Finding]:
    for clash in host.table.offering.clashes:
        message = f"{' and '.join(clash.plugins)} claim '{clash.name}': {clash.outcome}"
        yield Finding("core", "tools", "warning", message, clash.remedy)


def _unread(host: PluginHost) -> Iterator[Finding]:
    enabled = host.catalogue.enabled()
    read = {hook for plugin in enabled for hook in plugin.gives.facts.reads}
    for hook in sorted(OPEN_HOOKS.keys() - read):
        if givers := [plugin.id for plugin in enabled if hook in plugin.gives.hooks]:
            kind = hook.removeprefix("contribute_")
            message = f"no enabled plugin {_UNREAD[hook]} of {', '.join(givers)}"
            remedy = "pip install nanobot-cron, or enable it: nanobot plugins enable cron"
            yield Finding("core", kind, "warning", message, remedy)


def _reports_health(host: PluginHost, report: PluginReport) -> bool:
    selection = host.catalogue.selections.get(report.id)
    manifest = selection.plugin.manifest if selection else None
    running = report.state in {"active", "degraded"}
    return running and manifest is not None and "check_health" in manifest.hooks


async def _check_health(host: PluginHost, plugin: str) -> Finding:
    async def ask() -> CheckResult:
        health = await (await host.activate(plugin)).check_health()
        return CheckResult(
            status="ok" if health.ok else "error", message=health.message or "healthy"
        )

    return await _bounded(plugin, "check_health", ask)


async def _run_check(host: PluginHost, plugin: str, declaration: Declaration) -> Finding:
    from nanobot_core.plugins.loader import load_object

    try:
        context = await host.context_for(plugin)
        run = await asyncio.to_thread(load_object, plugin, str(declaration.detail["run"]))
    except NanobotError as error:
        return Finding(plugin, declaration.name, "error", str(error))

    async def ask() -> CheckResult:
        result: CheckResult = await run(context)  # type: ignore[operator]  # any failure of the call is a finding
        return result

    return await _bounded(plugin, declaration.name, ask)


async def _bounded(plugin: str, name: str, ask: Callable[[], Awaitable[CheckResult]]) -> Finding:
    """Ask a plugin; a failure or a timeout is a finding too."""
    try:
        async with asyncio.timeout(CHECK_LIMIT_S):
            result = await ask()
            return Finding(plugin, name, result.status, result.message, result.remedy)
    except TimeoutError:
        message = f"the check did not end within {CHECK_LIMIT_S:g} seconds"
        return Finding(plugin, name, "warning", message)
    except NanobotError as error:
        return Finding(plugin, name, "error", str(error))
    except Exception as error:  # noqa: BLE001 - isolation point: a broken check is a finding
        message = f"the check failed with {type(error).__name__}: {error}"
        return Finding(plugin, name, "error", message, "report it to the author of the plugin")


async def _tasks_left() -> list[Finding]:
    """Return a warning for each task that still runs after all plugins have stopped."""
    left = asyncio.all_tasks() - {asyncio.current_task()}
    if left:
        _, left = await asyncio.wait(left, timeout=ENDING_S)
    remedy = "its author should start it with ctx.spawn, and end it on cancellation"
    found = []
    for task in left:
        places = ", ".join(f"{at.f_code.co_filename}:{at.f_lineno}" for at in task.get_stack())
        message = f"task '{task.get_name()}' still runs after all plugins have stopped: {places}"
        found.append(Finding("core", "tasks", "warning", message, remedy))
    return found


def show_findings(findings: Iterable[Finding]) -> None:
    """Print findings, each with its remedy."""
    from rich.text import Text

    for finding in findings:
        # The health of a plugin has no name but that of its hook.
        about = (finding.source, finding.name)
        names = dict.fromkeys(each for each in about if each not in {"core", "check_health"})
        status = (f"{finding.status:<8}", _STYLES[finding.status])
        text = printable(f"{': '.join(names)}: {finding.message}")
        stdout().print(Text.assemble(status, text), soft_wrap=True)
        if finding.remedy:
            stdout().print(Text(f"{'':8}→ {printable(finding.remedy)}", "dim"), soft_wrap=True)
