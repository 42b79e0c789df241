"""``nanobot explain``: the origin of a tool, a command, a setting or a hook."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from nanobot_core.cli.options import AsJson, open_agent, options_of
from nanobot_core.cli.output import fail, print_facts, run_async
from nanobot_core.errors import PluginError
from nanobot_core.text import nearest

if TYPE_CHECKING:
    from nanobot_core.app.application import Nanobot
    from nanobot_core.config.loading import LoadedConfig
    from nanobot_core.config.tree import KeyPath
    from nanobot_core.messages import JsonValue
    from nanobot_core.plugins.catalogue import Selection

app: typer.Typer = typer.Typer(
    help="Show the origin of a tool, command, setting or hook.",
    no_args_is_help=True,
    epilog="Example:\n\n\b\n  nanobot explain setting agents.defaults.model",
)
UNKNOWN_SOURCE = "unknown; the plugin has no tool of that name at the moment"


@app.command()
def tool(
    ctx: typer.Context,
    name: Annotated[str, typer.Argument(help="Name of the tool, such as read_file.")],
    as_json: AsJson = False,
) -> None:
    """Show which plugin provides a tool, its source, and which other plugins use its name.

    Example: nanobot explain tool read_file
    """
    agent = _agent(ctx)
    alias = agent.loaded.settings.tools.aliases.get(name)
    plugin, _, bare = (alias or name).rpartition("/")
    claims = _claims(agent, "tools", bare, plugin)
    if not claims:
        _fail_unknown("tool", name, _declared(agent, "tools"))
    facts = {"tool": name, "alias_of": alias or "", "provided_by": claims}
    is_known = bare in _declared(agent, "tools")
    print_facts(
        {**facts, "comes_from": "" if is_known else run_async(_source_of(agent, bare))},
        as_json=as_json,
    )


@app.command()
def command(
    ctx: typer.Context,
    name: Annotated[str, typer.Argument(help="Name of the slash command, such as help.")],
    as_json: AsJson = False,
) -> None:
    """Show which plugin provides a slash command, and which others use its name.

    Example: nanobot explain command help
    """
    from nanobot_core.turns.commands import CORE_COMMANDS

    agent, bare = _agent(ctx), name.removeprefix("/")
    claims = _claims(agent, "commands", bare)
    if bare in CORE_COMMANDS:
        claims.insert(0, "nanobot-core")
    if not claims:
        _fail_unknown("command", bare, {*CORE_COMMANDS, *_declared(agent, "commands")})
    print_facts({"command": f"/{bare}", "provided_by": claims}, as_json=as_json)


@app.command()
def setting(
    ctx: typer.Context,
    path: Annotated[str, typer.Argument(help="Key path, such as agents.defaults.model.")],
    as_json: AsJson = False,
) -> None:
    """Show the value of a setting, where it is set, and which plugin it belongs to.

    Example: nanobot explain setting agents.defaults.model
    """
    from nanobot_core.app.checks import section_models
    from nanobot_core.config.tree import parse_path, render_path, resolve

    agent = _agent(ctx)
    loaded = agent.loaded
    steps = parse_path(path)
    found, value = resolve(loaded.masked(), steps)
    origin = loaded.origins.get(render_path(found)) if len(found) == len(steps) else None
    place = "not set; the default applies"
    if origin is not None:
        place = f"{origin.source}:{origin.line}" if origin.line else origin.source
    owners = [
        (selection, at, model)
        for selection in agent.plugins.catalogue.selections.values()
        if selection.plugin.manifest
        for at, model in section_models(selection.plugin.manifest).items()
        if f"{path}.".startswith(f"{at}.")
    ]
    print_facts(
        {
            "setting": path,
            "value": value if origin is not None else _default(loaded, steps, owners),
            "set_in": place,
            "belongs_to": [owner.plugin.label for owner, _, _ in owners] or ["nanobot-core"],
        },
        as_json=as_json,
    )


def _default(
    loaded: LoadedConfig, steps: KeyPath, owners: Iterable[tuple[Selection, str, str]]
) -> JsonValue:
    """Return a setting's default, masked, in a model of the core or of an enabled plugin.

    A section has none.
    """
    from nanobot_core.config.secrets import mask_tree
    from nanobot_core.config.tree import nest, overlay, parse_path, resolve
    from nanobot_core.plugins.examine import settings_model
    from nanobot_core.plugins.loader import load_entry

    values = loaded.settings.model_dump(mode="json", by_alias=True)
    for owner, at, model in owners:
        if model and owner.enabled and owner.plugin.isolation is None:
            with suppress(PluginError, ValueError):  # nanobot config check reports it
                if owner.plugin.file:  # its module has no name before it is loaded from there
                    load_entry(owner.plugin)
                defaults = settings_model(owner.plugin.id, model)()
                dumped = defaults.model_dump(mode="json", by_alias=True)
                overlay(values, nest(parse_path(at), dumped), {}, {})
    found, value = resolve(mask_tree(values, loaded.redactor), steps)
    return None if len(found) < len(steps) or isinstance(value, dict) else value


@app.command()
def hook(
    ctx: typer.Context,
    name: Annotated[str, typer.Argument(help="Name of the hook, such as before_turn.")],
    as_json: AsJson = False,
) -> None:
    """Print the contract of a hook, and which plugins implement it, in the order of their calls.

    Example: nanobot explain hook before_turn
    """
    from nanobot_core.cli.hook_facts import hook_facts, implementers, known_hooks

    agent = _agent(ctx)
    known = known_hooks(agent.plugins.catalogue)
    if name not in known:
        _fail_unknown("hook", name, known, "nanobot plugins hooks lists all hooks")
    declared_by, point = known[name]

    async def in_order() -> list[str]:
        """Return them in order, which is known only while the plugins run."""
        try:
            await agent.plugins.start()
            found = agent.plugins.hooks.implementations.get(name, ())
            return [
                f"{item.plugin} does not run, so this refuses"
                if item.plugin not in agent.plugins.table.active
                else f"{item.plugin}@{item.version}"
                for item in found
            ]
        finally:
            await agent.plugins.stop()

    facts = {"hook": name, "declared_by": declared_by, **hook_facts(point)}
    found = run_async(in_order()) or list(implementers(agent.plugins.catalogue, name))
    print_facts({**facts, "implemented_by": found}, as_json=as_json)


async def _source_of(agent: Nanobot, name: str) -> str:
    """Return the source of a tool whose name the plugin learns when it runs."""
    from nanobot_core.contracts.tool import Tool

    try:
        for claim in agent.plugins.catalogue.claimants("tools", name):
            if claim.enabled:
                active = await agent.plugins.activate(claim.plugin.id)
                for item in active.published:
                    if item.name == name and isinstance(item, Tool):
                        return item.source
        return UNKNOWN_SOURCE
    finally:
        await agent.plugins.stop()


def _agent(ctx: typer.Context) -> Nanobot:
    return open_agent(options_of(ctx), lenient=True)


def _claims(agent: Nanobot, kind: str, name: str, plugin: str = "") -> list[str]:
    claimants = agent.plugins.catalogue.claimants(kind, name)
    return [
        f"{claim.plugin.label}: {'enabled' if claim.enabled else 'not enabled'}, "
        f"{claim.condition.reason}"
        for claim in sorted(claimants, key=lambda claim: not claim.enabled)
        if plugin in {"", claim.plugin.id}
    ]


def _declared(agent: Nanobot, kind: str) -> set[str]:
    return {declaration.name for _, declaration in agent.plugins.declared(kind)}


def _fail_unknown(
    what: str,
    name: str,
    known: Iterable[str],
    remedy: str = "nanobot plugins list shows what is installed",
) -> NoReturn:
    close = " or ".join(f"'{word}'" for word in nearest(name, known))
    hint = f"did you mean {close}?" if close else remedy
    fail(f"no installed plugin has a {what} '{name}'; {hint}")
