"""``nanobot doctor``: problems and how to fix them."""

from __future__ import annotations

import asyncio
import os
import stat
import tempfile
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from nanobot_core.cli.checkup import Finding, Status, check_plugins, show_findings
from nanobot_core.cli.options import (
    AsJson,
    Options,
    agent_of,
    changes_since_lock,
    options_of,
    read_settings,
)
from nanobot_core.cli.output import print_json, run_async
from nanobot_core.errors import NoProvider
from nanobot_core.sign_in import login_command

if TYPE_CHECKING:
    from pathlib import Path

    from nanobot_core.app.application import Nanobot
    from nanobot_core.app.model_list import ServiceList
    from nanobot_core.config.loading import LoadedConfig
    from nanobot_core.errors import ConfigProblem
    from nanobot_core.providers.match import ProviderMatch

SAMPLE_BYTES = 1_000_000
"""Bytes that must fit on the disk."""


def doctor(
    ctx: typer.Context,
    as_json: AsJson = False,
    fix: Annotated[
        bool, typer.Option("--fix", help="Fix what needs no decision from you.")
    ] = False,
    online: Annotated[
        bool,
        typer.Option("--online", help="Check the keys with their services; costs nothing."),
    ] = False,
) -> None:
    """Find problems and say how to fix them; exit code 1 on errors.

    Example: nanobot doctor --online
    """
    findings = run_async(_examine(options_of(ctx), fix=fix, online=online))
    if as_json:
        print_json([finding._asdict() for finding in findings])
    else:
        show_findings(findings)
    if any(finding.status == "error" for finding in findings):
        raise typer.Exit(1)


async def _examine(options: Options, *, fix: bool, online: bool) -> list[Finding]:
    from nanobot_core.app.checks import find_problems

    agent = agent_of(options, read_settings(options))
    loaded = agent.loaded
    problems = find_problems(loaded, agent.plugins.catalogue)
    findings = [
        *_configuration(loaded, problems, fix=fix),
        *_home(loaded.home, fix=fix),
        _workspace(loaded),
        *_scripts(),
        *_lock(loaded),
        *await _failed(loaded.home),
    ]
    if any(problem.level != "warning" for problem in loaded.findings):
        return findings  # no agent starts
    reported = [str(problem) for problem in problems]
    found = await check_plugins(agent)
    findings += [each for each in found if not any(text in each.message for text in reported)]
    findings.append(_provider(agent))
    if online:
        again = agent_of(options, loaded)
        findings += await _online(again)
    return findings


def _configuration(
    loaded: LoadedConfig, problems: list[ConfigProblem], *, fix: bool
) -> Iterator[Finding]:
    name = "configuration"
    for problem in problems:
        status: Status = "warning" if problem.level == "warning" else "error"
        yield Finding("core", name, status, str(problem))
    if loaded.path is None:
        yield Finding(
            "core", name, "warning", "no configuration file exists", "run nanobot onboard"
        )
        return
    if not loaded.path.exists():
        return
    if all(problem.level == "warning" for problem in problems):
        yield Finding("core", name, "ok", f"{loaded.path} is valid")
    if stat.S_IMODE(loaded.path.stat().st_mode) & 0o077:
        if fix:
            loaded.path.chmod(0o600)
            yield Finding(
                "core", "secrets", "ok", f"{loaded.path} is now readable by its owner only"
            )
        else:
            message = f"other accounts can read {loaded.path}"
            yield Finding("core", "secrets", "warning", message, f"chmod 600 {loaded.path}")


def _home(home: Path, *, fix: bool) -> Iterator[Finding]:
    from nanobot_core.disk import damaged_files, is_loose, tighten

    yield from _writable(home)
    if is_loose(home):
        if fix and tighten(home):
            yield Finding("core", "home", "ok", f"{home} is now readable by its owner only")
        else:
            message = f"other accounts can read {home}"
            yield Finding("core", "home", "warning", message, f"chmod 700 {home}")
    for file in damaged_files(home):
        message = f"a damaged file is kept as {file}; a part of it could not be recovered"
        remedy = "the log of that day says what was recovered; delete the file afterwards"
        yield Finding("core", "damage", "warning", message, remedy)


def _writable(home: Path) -> Iterator[Finding]:
    """Write a file as a session does: on a full or read-only disk nothing else works."""
    if not home.is_dir():
        return
    try:
        with tempfile.TemporaryFile(dir=home) as file:
            file.write(bytes(SAMPLE_BYTES))
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        message = f"cannot write in {home}: {error.strerror}"
        remedy = "free some space, or make the folder writable for this account"
        yield Finding("core", "disk", "error", message, remedy)


def _workspace(loaded: LoadedConfig) -> Finding:
    folder = loaded.workspace
    if not folder.is_dir():
        message = f"{folder} does not exist"
        return Finding("core", "workspace", "warning", message, "run nanobot onboard")
    if not os.access(folder, os.W_OK):
        return Finding(
            "core", "workspace", "error", f"{folder} is not writable", f"chmod u+w {folder}"
        )
    return Finding("core", "workspace", "ok", str(folder))


def _scripts() -> Iterator[Finding]:
    """Yield a warning if another distribution, such as nanobot-ai, installs the same command."""
    from importlib.metadata import entry_points

    scripts = entry_points(group="console_scripts", name="nanobot")
    owners = sorted({entry.dist.name for entry in scripts if entry.dist} - {"nanobot-core"})
    if owners:
        yield Finding(
            "core",
            "command",
            "warning",
            f"the command 'nanobot' is also installed by {' and '.join(owners)}",
            f"pip uninstall {owners[0]}, then reinstall nanobot-core; until then use "
            "python -m nanobot_core",
        )


def _lock(loaded: LoadedConfig) -> Iterator[Finding]:
    if changes := changes_since_lock(loaded):
        yield Finding("core", "lock", "warning", changes)


async def _failed(home: Path) -> list[Finding]:
    """Report the channels and services of a running gateway that do not run."""
    from nanobot_core.app.client import ControlClient
    from nanobot_core.app.wire import ControlError, from_json
    from nanobot_core.contracts.service import GatewayStatus

    client = ControlClient(home / "gateway")
    if not client.is_there:
        return []
    try:
        status = from_json(GatewayStatus, await client.call("status"))
    except ControlError as error:
        return [Finding("core", "gateway", "warning", str(error))]
    remedy = "correct it, then run nanobot gateway reload"
    return [
        Finding(item.plugin, f"{item.kind} {item.name}", "error", item.last_error or "", remedy)
        for item in status.running
        if item.state == "failed" or (item.kind == "service" and item.state == "waiting")
    ]


def _provider(agent: Nanobot) -> Finding:
    try:
        match = agent.models.match(None)
    except NoProvider as error:
        return Finding("core", "model", "error", str(error))
    if match.row.spec.demo:
        return _demo(agent, match.row.spec.name)
    if match.row.spec.login:
        return _signed_in(match)
    return Finding("core", "model", "ok", f"{match.model} by {match.row.spec.name}")


def _demo(agent: Nanobot, name: str) -> Finding:
    model = agent.loaded.settings.agents.defaults.model
    if model and model != name:
        message = f"agents.defaults.provider is '{name}', so model '{model}' is not used"
        remedy = "remove agents.defaults.provider, or set the provider of the model"
    elif any(not row.spec.demo for row in agent.models.rows()):
        message, remedy = f"no model is configured, so '{name}' answers", "run nanobot onboard"
    else:
        message = f"no model provider is installed, so '{name}' answers"
        remedy = "pip install 'nanobot-core[standard]', then run nanobot onboard"
    return Finding("core", "model", "warning", message, remedy)


def _signed_in(match: ProviderMatch) -> Finding:
    name, sign_in = match.row.spec.name, match.row.sign_in
    if match.row.lacks:
        problem = sign_in.problem if sign_in else "not signed in"
        message = f"{match.model} by {name}: {problem}"
        return Finding("core", "model", "error", message, f"run {login_command(name)}")
    account = f", signed in as {sign_in.account}" if sign_in and sign_in.account else ", signed in"
    return Finding("core", "model", "ok", f"{match.model} by {name}{account}")


async def _online(agent: Nanobot) -> list[Finding]:
    """Ask each service for its models, which checks its key and costs nothing."""
    from nanobot_core.app.model_list import ask_service, usable_rows

    rows = usable_rows(agent.models, agent.loaded.settings)
    try:
        lists = await asyncio.gather(*(ask_service(agent.models, row) for row in rows))
    finally:
        await agent.plugins.stop()
    if not lists:
        message = "no provider has a key or a base URL"
        return [Finding("core", "providers online", "warning", message, "run nanobot onboard")]
    return [_service(found) for found in lists]


def _service(found: ServiceList) -> Finding:
    spec = found.row.spec
    name = f"provider {spec.name}"
    if found.is_refused:
        remedy = f"set a valid key in providers.{spec.name}.api_key"
        if spec.login:
            remedy = f"run {login_command(spec.name)}"
        elif spec.api_key_env:
            remedy += f" or {spec.api_key_env[0]}"
        return Finding("core", name, "error", found.error, remedy)
    if found.error:
        return Finding("core", name, "error", found.error)
    if not found.models:
        message = "the service does not list its models, so its key cannot be checked without a "
        remedy = f'try nanobot agent --model {spec.name}/MODEL -m "Hi"'
        return Finding("core", name, "warning", f"{message}paid call", remedy)
    amount = "1 model" if len(found.models) == 1 else f"{len(found.models)} models"
    return Finding("core", name, "ok", f"the service answers and offers {amount}")
