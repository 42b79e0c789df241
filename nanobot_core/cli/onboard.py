"""``nanobot onboard``: a first configuration and workspace."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nanobot_core.app.workspace import sync_templates
from nanobot_core.cli.options import Options, open_agent, options_of
from nanobot_core.cli.output import fail, run_async
from nanobot_core.config.environment import expand_home
from nanobot_core.folder import Folder
from nanobot_core.tokens import login_command

if TYPE_CHECKING:
    from nanobot_core.app.application import Nanobot
    from nanobot_core.providers.match import ProviderRow

HEADER = "# Configuration of nanobot. 'nanobot config schema' describes every key.\n"


def onboard(
    ctx: typer.Context,
    provider: Annotated[
        str | None, typer.Option("--provider", help="Model provider to use.")
    ] = None,
    model: Annotated[str | None, typer.Option("--model", help="Model to use.")] = None,
    api_key: Annotated[
        str | None,
        typer.Option("--api-key", help="Key of the provider, or ${NAME} of a variable with it."),
    ] = None,
    api_base: Annotated[
        str | None, typer.Option("--api-base", help="Base URL of the provider.")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Ask nothing.")] = False,
) -> None:
    """Create a configuration and a workspace; what exists is kept.

    On a terminal it asks for provider, base URL, model and key. It may be run again at any time.
    """
    options = options_of(ctx)
    agent = open_agent(_existing(options), lenient=True)
    rows = {row.spec.name: row for row in agent.models.rows()}
    may_ask = sys.stdin.isatty() and not yes
    if provider is None and may_ask and rows:
        provider = _ask_provider(agent, rows)
    row = _known(provider, rows) if provider else None
    if row is not None and may_ask:
        api_base = api_base or _ask_base(row)
        model = model or _ask_model(agent, row)
        api_key = api_key or _ask_key(row)
    if (api_key or api_base) and row is None:
        fail("--api-key and --api-base need --provider, which says whose they are", 2)
    if row is not None and not api_base and _needs_base(row):
        fail(f"provider '{row.spec.name}' needs its address; add --api-base URL", 2)
    path = _write_config(
        options, agent, provider, model, {"api_key": api_key, "api_base": api_base}
    )
    made = sync_templates(Folder(agent.loaded.workspace))
    _show_result(agent, path, made)
    _show_checks(options)
    if row is not None and row.spec.login and row.lacks:
        typer.echo(f"\nFirst sign in: {login_command(row.spec.name)}")
    typer.echo('\nNext: nanobot agent -m "Hello", or nanobot doctor when something is wrong.')


def _existing(options: Options) -> Options:
    """Return `options` without the name of a file that does not exist yet."""
    from dataclasses import replace

    is_new = options.config is not None and not expand_home(options.config).exists()
    return replace(options, config=None) if is_new else options


def _known(name: str, rows: Mapping[str, ProviderRow]) -> ProviderRow:
    from nanobot_core.text import nearest

    if name in rows:
        return rows[name]
    close = " or ".join(f"'{word}'" for word in nearest(name, rows)) or ", ".join(rows)
    hint = f"choose {close}" if close else "pip install 'nanobot-core[standard]'"
    return fail(f"no enabled plugin provides '{name}'; {hint}", 2)


def _ask_provider(agent: Nanobot, rows: Mapping[str, ProviderRow]) -> str:
    ready = [name for name, row in rows.items() if row.key]
    typer.echo("Which service should answer?\n")
    for name, row in rows.items():
        note = "  (its key is set)" if name in ready else ""
        typer.echo(f"  {name:<14}{row.spec.summary}{note}")
    default = agent.loaded.settings.agents.defaults.provider or next(iter(ready or rows))
    while (name := str(typer.prompt("\nProvider", default=default))) not in rows:
        typer.echo(f"There is no '{name}' in the list.")
    return name


def _needs_base(row: ProviderRow) -> bool:
    has_default = row.spec.needs_key or row.spec.demo or row.spec.default_base is not None
    return not has_default and not row.base


def _ask_base(row: ProviderRow) -> str | None:
    if not _needs_base(row):
        return None
    return str(typer.prompt("Base URL of the service, such as http://127.0.0.1:8000/v1"))


def _ask_model(agent: Nanobot, row: ProviderRow) -> str | None:
    if row.spec.demo:
        return None
    default = agent.loaded.settings.agents.defaults.model
    return str(typer.prompt("Model, as the service calls it", default=default))


def _ask_key(row: ProviderRow) -> str | None:
    if not row.spec.needs_key or row.key:
        return None
    variables = row.spec.api_key_env
    variable = f", or empty to set {variables[0]} yourself" if variables else ""
    return (
        str(
            typer.prompt(
                f"Key (not shown{variable})", default="", show_default=False, hide_input=True
            )
        )
        or None
    )


def _write_config(
    options: Options,
    agent: Nanobot,
    provider: str | None,
    model: str | None,
    access: Mapping[str, str | None],
) -> Path:
    """Write what was chosen, and to a new file the list of the plugins that are installed now."""
    from nanobot_core.config.editing import add_to_list, set_value
    from nanobot_core.config.environment import process_environment, resolve_config_path
    from nanobot_core.disk import replace_file

    path = resolve_config_path(options.config, process_environment(), agent.loaded.home)
    if not path.exists():
        replace_file(path, "" if path.suffix == ".json" else HEADER)
        for selection in agent.plugins.catalogue.selections.values():
            if selection.enabled:
                add_to_list(path, "plugins.enabled", selection.plugin.id)
    if provider:
        set_value(path, "agents.defaults.provider", provider)
        for key, value in access.items():
            if value:
                set_value(path, f"providers.{provider}.{key}", value)
    if model:
        set_value(path, "agents.defaults.model", model)
    return path


def _show_checks(options: Options) -> None:
    """Print what plugins report on this machine, such as the sandbox that commands run in."""
    from nanobot_core.cli.checkup import check_plugins, show_findings

    found = run_async(check_plugins(open_agent(_existing(options), lenient=True)))
    checks = [each for each in found if each.source != "core" and each.name != "check_health"]
    if checks:
        typer.echo("")
        show_findings(checks)


def _show_result(agent: Nanobot, path: Path, made: list[str]) -> None:
    typer.echo(f"Configuration  {path}")
    typer.echo(f"Workspace      {agent.loaded.workspace}")
    if made:
        typer.echo(f"New files      {', '.join(made)}")
    if not agent.plugins.catalogue.selections:
        typer.echo("\nNo plugin is installed; run pip install 'nanobot-core[standard]'")
