"""``nanobot providers``: which there are, and which serves a model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from nanobot_core.cli.explained_model import (
    cool_downs_of,
    explain_fallback,
    explain_model,
    render_model,
)
from nanobot_core.cli.login import describe_sign_in, login, logout
from nanobot_core.cli.options import AsJson, open_agent, options_of
from nanobot_core.cli.output import fail, print_json, render_table, stdout
from nanobot_core.errors import NoProvider

if TYPE_CHECKING:
    from nanobot_core.providers.match import ProviderRow

app: typer.Typer = typer.Typer(
    name="providers",
    help="List model providers, explain their choice, sign in.",
    rich_markup_mode=None,
    no_args_is_help=True,
)
app.command()(login)
app.command()(logout)


@app.command("list")
def list_providers(ctx: typer.Context, as_json: AsJson = False) -> None:
    """List the providers of enabled plugins, in the order in which they are tried.

    Example: nanobot providers list
    """
    agent = open_agent(options_of(ctx), lenient=True)
    cooling = {each.provider: str(each) for each in cool_downs_of(agent)}
    rows = [
        {
            "name": row.spec.name,
            "plugin": row.plugin,
            "usable": cooling.get(row.spec.name) or _condition(row),
            "summary": row.spec.summary,
        }
        for row in agent.models.rows()
    ]
    if as_json:
        print_json(rows)
    elif not rows:
        fail("no provider is installed; run python3 -m pip install 'nanobot-core[standard]'")
    else:
        render_table(
            ("Provider", "Plugin", "Usable", "About"), [tuple(row.values()) for row in rows]
        )


@app.command()
def explain(
    ctx: typer.Context,
    model: Annotated[
        str | None, typer.Argument(help="Model or preset; the configured one by default.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Explain step by step which provider serves a model, and how it is called.

    Example: nanobot providers explain anthropic/some-model
    """
    agent = open_agent(options_of(ctx), lenient=True)
    name = model or agent.loaded.settings.agents.defaults.model
    cooling = cool_downs_of(agent)
    try:
        explained = explain_model(agent, model, cooling)
    except NoProvider as error:
        if not as_json:
            raise
        print_json({"model": name, "provider": None, "error": str(error), "remedy": error.remedy})
        raise typer.Exit(1) from error
    chain = [
        explain_fallback(agent, fallback, cooling)
        for fallback in agent.models.defaults_of(model).fallback_models
    ]
    if as_json:
        print_json({**explained, "fallback_models": chain})
        return
    lines = [f"{number}. {step}" for number, step in enumerate(explained["steps"], 1)]
    lines += render_model(explained)
    for number, fallback in enumerate(chain, 1):
        lines += ["", f"Fallback {number}:", *render_model(fallback)]
    for line in lines:
        stdout().print(line, markup=False, soft_wrap=True)


def _condition(row: ProviderRow) -> str:
    spec = row.spec
    if spec.demo:
        return "yes, without a model"
    if spec.login:
        return describe_sign_in(row)
    if row.key:
        return "yes, has a key"
    if spec.needs_key:
        where = f"set providers.{spec.name}.api_key"
        return f"no, {where}" + (f" or {spec.api_key_env[0]}" if spec.api_key_env else "")
    has_base = row.base or spec.default_base is not None
    return "yes, needs no key" if has_base else "no, set its api_base"
