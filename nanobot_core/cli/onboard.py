"""``nanobot onboard``: a first configuration and workspace."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated

import typer

from nanobot_core.app.workspace import sync_templates
from nanobot_core.cli.options import Options, open_agent, options_of
from nanobot_core.cli.output import fail, run_async
from nanobot_core.config.environment import expand_home
from nanobot_core.folder import Folder
from nanobot_core.sign_in import login_command

if TYPE_CHECKING:
    from nanobot_core.app.application import Nanobot
    from nanobot_core.cli.local_servers import LocalServer
    from nanobot_core.providers.match import ProviderRow

_SHOWN_MODELS = 5
Provider = Annotated[str | None, typer.Option("--provider", help="Provider to use.")]
Model = Annotated[str | None, typer.Option("--model", help="Model to use.")]
ApiKey = Annotated[
    str | None,
    typer.Option("--api-key", help="Key of the provider, or ${NAME} of a variable with it."),
]
ApiBase = Annotated[str | None, typer.Option("--api-base", help="Base URL of the provider.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Ask nothing.")]
NoProbe = Annotated[
    bool, typer.Option("--no-probe", help="Do not look for model servers on this machine.")
]
Source = Annotated[
    Path | None,
    typer.Option("--from-nanobot-ai", metavar="PATH", help="Move this home of nanobot-ai in."),
]
Owners = Annotated[
    list[str] | None,
    typer.Option("--owner", metavar="CHANNEL:ID", help="Move: who may control the agent."),
]
Replace = Annotated[
    bool, typer.Option("--replace", help="Move: put the new home in place of one in use.")
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Move: only show what would be done.")]
AsJson = Annotated[bool, typer.Option("--json", help="Move: print JSON.")]
HEADER = "# Configuration of nanobot. 'nanobot config schema' describes every key.\n"


def onboard(
    ctx: typer.Context,
    provider: Provider = None,
    model: Model = None,
    api_key: ApiKey = None,
    api_base: ApiBase = None,
    *,
    yes: Yes = False,
    no_probe: NoProbe = False,
    from_nanobot_ai: Source = None,
    owner: Owners = None,
    replace: Replace = False,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Create a configuration and a workspace; what exists is kept.

    On a terminal it asks for provider, base URL, model and key. It may be run again at any time.
    It shows the model servers that run on this machine; --yes alone chooses none of them.

    With --from-nanobot-ai it shows what it moves and what it cannot, asks, and writes a new home;
    the original stays unchanged.

    For example:

    \b
      nanobot onboard          ask for provider, model and key
      nanobot onboard --yes    ask nothing; no model is chosen
      nanobot onboard --provider ollama --model qwen3:8b
      nanobot onboard --from-nanobot-ai ~/.nanobot --dry-run
    """  # noqa: D301 - a line of its own with \b keeps the lines below it as they are
    options = options_of(ctx)
    if from_nanobot_ai or owner or replace or dry_run or as_json:
        from nanobot_core.cli.moving import MoveOptions, move_in

        owners = tuple(owner or ())
        move_in(options, MoveOptions(from_nanobot_ai, owners, replace, dry_run, yes, as_json))
        return
    agent = open_agent(_existing(options), lenient=True)
    rows = {row.spec.name: row for row in agent.models.rows()}
    has_provider, may_ask = _has_provider(rows), sys.stdin.isatty() and not yes
    named = _known(provider, rows) if provider else None
    is_settled = api_base or (named is not None and not named.spec.is_local) or (provider and model)
    servers = {} if no_probe or is_settled else _find_servers(options, provider)
    if provider is None and may_ask and has_provider:
        provider = _ask_provider(agent, rows, servers)
    row = _known(provider, rows) if provider else None
    served = servers[provider].models if provider in servers else ()
    if row is not None and may_ask:
        api_base = api_base or _ask_base(row)
        model = model or _ask_model(agent, row, served)
        api_key = api_key or _ask_key(row)
    elif row is not None and model is None and len(served) == 1:
        model = served[0]
    elif servers:
        _suggest(next(iter(servers.values())))
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
    _show_next(row, has_provider=has_provider)


def _has_provider(rows: Mapping[str, ProviderRow]) -> bool:
    return any(not row.spec.demo for row in rows.values())


def _show_next(row: ProviderRow | None, *, has_provider: bool) -> None:
    if row is not None and row.spec.login and row.lacks:
        typer.echo(f"\nFirst sign in: {login_command(row.spec.name)}")
    if not has_provider:
        typer.echo("\nFor a model, run pip install 'nanobot-core[standard]' and onboard again.")
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


def _find_servers(options: Options, provider: str | None) -> dict[str, LocalServer]:
    """Return the model servers of this machine by provider, and show them.

    Args:
        options: of the command.
        provider: the only provider of interest, or ``None`` for all.
    """
    from nanobot_core.cli.local_servers import find_local_servers

    found = run_async(find_local_servers(open_agent(_existing(options), lenient=True)))
    servers = {each.provider: each for each in found if provider in {None, each.provider}}
    if servers:
        typer.echo("Model servers on this machine:\n")
    width = max(map(len, servers), default=0) + 2
    for name, server in servers.items():
        shown = ", ".join(server.models[:_SHOWN_MODELS])
        more = len(server.models) - _SHOWN_MODELS
        others = f" and {more} more" if more > 0 else ""
        typer.echo(f"  {name:<{width}}{server.base}  {shown}{others}")
    if servers:
        typer.echo("")
    return servers


def _suggest(server: LocalServer) -> None:
    chosen = f"--provider {server.provider} --model {quote(server.models[0])}"
    typer.echo(f"To use one: nanobot onboard {chosen}\n")


def _ask_provider(
    agent: Nanobot, rows: Mapping[str, ProviderRow], servers: Mapping[str, LocalServer]
) -> str:
    ready = [name for name, row in rows.items() if row.key]
    typer.echo("Which service should answer?\n")
    width = max(map(len, rows), default=0) + 2
    for name, row in rows.items():
        note = "  (its key is set)" if name in ready else ""
        note = "  (runs on this machine)" if name in servers else note
        typer.echo(f"  {name:<{width}}{row.spec.summary}{note}")
    configured = agent.loaded.settings.agents.defaults.provider
    default = configured or next(iter([*ready, *servers, *rows]))
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


def _ask_model(agent: Nanobot, row: ProviderRow, served: Sequence[str]) -> str | None:
    """Return the model that the person chooses, by name or by its number in the list."""
    if row.spec.demo:
        return None
    default = agent.loaded.settings.agents.defaults.model
    if not served:
        return str(typer.prompt("Model, as the service calls it", default=default))
    for number, name in enumerate(served, 1):
        typer.echo(f"  {number:>2}  {name}")
    first = default if default in served else served[0]
    chosen = str(typer.prompt("\nModel, its name or number", default=first))
    is_number = chosen.isdecimal() and chosen not in served and 0 < int(chosen) <= len(served)
    return served[int(chosen) - 1] if is_number else chosen


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
