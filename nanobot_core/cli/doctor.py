"""``nanobot doctor``: what is wrong, and how to mend it."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from nanobot_core.cli.checkup import Finding, check_plugins, show_findings
from nanobot_core.cli.options import Options, open_agent, options_of
from nanobot_core.cli.output import print_json, run_async
from nanobot_core.errors import ConfigError, ConfigInvalid, NoProvider

if TYPE_CHECKING:
    from pathlib import Path

    from nanobot_core.app.application import Nanobot
    from nanobot_core.config.loading import LoadedConfig


def doctor(
    ctx: typer.Context,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    fix: Annotated[
        bool, typer.Option("--fix", help="Mend what can be mended without a decision.")
    ] = False,
) -> None:
    """Look for problems and say how to mend them; exit code 1 when something is broken."""
    findings = run_async(_examine(options_of(ctx), fix=fix))
    if as_json:
        print_json([finding._asdict() for finding in findings])
    else:
        show_findings(findings)
    if any(finding.status == "error" for finding in findings):
        raise typer.Exit(1)


async def _examine(options: Options, *, fix: bool) -> list[Finding]:
    try:
        agent = open_agent(options)
    except ConfigInvalid as error:
        return [
            Finding("core", "configuration", "error", str(problem)) for problem in error.problems
        ]
    except ConfigError as error:
        return [Finding("core", "configuration", "error", str(error))]
    return [
        *_configuration(agent.loaded, fix=fix),
        *_home(agent.loaded.home, fix=fix),
        _workspace(agent.loaded),
        *_scripts(),
        *await check_plugins(agent),
        _provider(agent),
    ]


def _configuration(loaded: LoadedConfig, *, fix: bool) -> Iterator[Finding]:
    name = "configuration"
    if loaded.path is None:
        yield Finding("core", name, "warning", "there is no file", "run nanobot onboard")
        return
    yield Finding("core", name, "ok", f"{loaded.path} is valid")
    for warning in loaded.warnings:
        yield Finding("core", name, "warning", str(warning))
    if stat.S_IMODE(loaded.path.stat().st_mode) & 0o077:
        if fix:
            loaded.path.chmod(0o600)
            yield Finding("core", "secrets", "ok", f"{loaded.path} is now for its owner alone")
        else:
            message = f"{loaded.path} can be read by others"
            yield Finding("core", "secrets", "warning", message, f"chmod 600 {loaded.path}")


def _home(home: Path, *, fix: bool) -> Iterator[Finding]:
    from nanobot_core.disk import damaged_files, is_loose, tighten

    if is_loose(home):
        if fix and tighten(home):
            yield Finding("core", "home", "ok", f"{home} is now for its owner alone")
        else:
            message = f"other accounts can look into {home}"
            yield Finding("core", "home", "warning", message, f"chmod 700 {home}")
    for file in damaged_files(home):
        message = f"a damaged file is kept as {file}; not everything in it could be saved"
        remedy = "the log of its day says what was saved; remove it when you no longer need it"
        yield Finding("core", "damage", "warning", message, remedy)


def _workspace(loaded: LoadedConfig) -> Finding:
    folder = loaded.workspace
    if not folder.is_dir():
        message = f"{folder} does not exist"
        return Finding("core", "workspace", "warning", message, "run nanobot onboard")
    if not os.access(folder, os.W_OK):
        return Finding("core", "workspace", "error", f"{folder} cannot be written", "chmod u+w it")
    return Finding("core", "workspace", "ok", str(folder))


def _scripts() -> Iterator[Finding]:
    """The command of nanobot-ai has the same name: the one installed later replaced the other."""
    from importlib.metadata import entry_points

    scripts = entry_points(group="console_scripts", name="nanobot")
    owners = sorted({entry.dist.name for entry in scripts if entry.dist} - {"nanobot-core"})
    if owners:
        yield Finding(
            "core",
            "command",
            "warning",
            f"the command 'nanobot' also comes with {' and '.join(owners)}",
            f"pip uninstall {owners[0]}, then reinstall nanobot-core; until then use "
            "python -m nanobot_core",
        )


def _provider(agent: Nanobot) -> Finding:
    try:
        match = agent.models.match(None)
    except NoProvider as error:
        return Finding("core", "model", "error", str(error))
    if match.row.spec.demo:
        message = f"no model is configured, '{match.row.spec.name}' stands in"
        return Finding("core", "model", "warning", message, "run nanobot onboard")
    return Finding("core", "model", "ok", f"{match.model} by {match.row.spec.name}")
