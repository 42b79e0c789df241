"""``nanobot models``: what can be used now, and what is known of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer
from typer.core import TyperGroup

from nanobot_core.cli.options import AsJson, open_agent, options_of
from nanobot_core.cli.output import fail, print_json, render_table, run_async, warn

if TYPE_CHECKING:
    from typer._click.core import Context

    from nanobot_core.app.application import Nanobot
    from nanobot_core.app.model_list import ListedModel, ServiceList
    from nanobot_core.contracts.provider import ModelInfo


class _ListByDefault(TyperGroup):
    """Runs ``list`` if the first argument is not a command."""

    def parse_args(self, ctx: Context, args: list[str]) -> list[str]:
        """Insert the default command."""
        if not args or (args[0] not in self.commands and args[0] not in {"-h", "--help"}):
            args = ["list", *args]
        return super().parse_args(ctx, args)


app: typer.Typer = typer.Typer(
    cls=_ListByDefault,
    name="models",
    help="List the models that can be used: nanobot models [TEXT].",
    rich_markup_mode=None,
)
Provider = Annotated[str | None, typer.Option("--provider", help="Only this provider.")]


@app.command("list")
def list_models(
    ctx: typer.Context,
    text: Annotated[str | None, typer.Argument(help="Only names that contain this.")] = None,
    provider: Provider = None,
    as_json: AsJson = False,
) -> None:
    """List models with window, price and abilities; presets first. Uses no network.

    The price is in US dollars for a million tokens of requests and of answers.

    Example: nanobot models --provider openai mini
    """
    from nanobot_core.app.model_list import list_models, silent_providers

    agent = open_agent(options_of(ctx), lenient=True)
    settings = agent.loaded.settings
    listed = [
        model
        for model in list_models(agent.models, settings)
        if (text or "").lower() in f"{model.name} {model.model}".lower()
        and provider in {None, model.provider}
    ]
    if as_json:
        print_json([_fields(model) for model in listed])
        return
    for name in silent_providers(agent.models, settings):
        if provider in {None, name}:
            warn(f"no model of '{name}' is known; run nanobot models refresh")
    if not listed:
        fail(_nothing(text, provider))
    columns = ("Model", "Provider", "Window", "Price", "Abilities", "Note")
    render_table(columns, [_cells(model) for model in listed])


@app.command()
def refresh(ctx: typer.Context, provider: Provider = None) -> None:
    """Ask the services which models they offer; costs nothing.

    A service that does not answer keeps its former data. Exit code 1 if there is one.

    Example: nanobot models refresh --provider openai
    """
    agent = open_agent(options_of(ctx), lenient=True)
    lists = run_async(_refresh(agent, provider))
    render_table(
        ("Provider", "Models", "Note"),
        [(each.row.spec.name, len(each.models) or "", _outcome(each)) for each in lists],
    )
    if any(each.error for each in lists):
        raise typer.Exit(1)


async def _refresh(agent: Nanobot, provider: str | None) -> list[ServiceList]:
    from nanobot_core.app.model_list import refresh_models, usable_rows

    rows = usable_rows(agent.models, agent.loaded.settings)
    if provider is not None:
        rows = [row for row in agent.models.rows() if row.spec.name == provider]
    if not rows:
        fail(_nothing(None, provider))
    try:
        return await refresh_models(agent.models, rows)
    finally:
        await agent.plugins.stop()


def _nothing(text: str | None, provider: str | None) -> str:
    if provider is not None:
        return f"no model of '{provider}' can be used; see nanobot providers list"
    if text:
        return f"no model that can be used contains '{text}'; nanobot models lists all"
    return "no model can be used; run nanobot onboard"


def _outcome(found: ServiceList) -> str:
    return found.error or ("" if found.models else "does not list its models")


def _fields(model: ListedModel) -> dict[str, object]:
    info = model.info
    return {
        "name": model.name,
        "model": model.model,
        "provider": model.provider or None,
        "preset": model.is_preset,
        "default": model.is_default,
        **(describe_info(info) if info else {}),
        "problem": model.problem or None,
    }


def describe_info(info: ModelInfo) -> dict[str, object]:
    """Return the facts about a model for JSON."""
    return {
        "window_tokens": info.window_tokens,
        "max_answer_tokens": info.max_answer_tokens,
        "input_usd": info.input_usd,
        "cached_usd": info.cached_usd,
        "output_usd": info.output_usd,
        "abilities": None if info.abilities is None else sorted(info.abilities),
    }


def _cells(model: ListedModel) -> tuple[str, ...]:
    info = model.info
    notes = [
        "default" if model.is_default else "",
        f"preset of {model.model}" if model.is_preset else "",
        f"cannot be used: {model.problem}" if model.problem else "",
    ]
    return (
        model.name,
        model.provider,
        describe_tokens(info.window_tokens) if info and info.window_tokens else "",
        describe_price(info) if info else "",
        ", ".join(sorted(info.abilities or ())) if info else "",
        ", ".join(filter(None, notes)),
    )


def describe_tokens(tokens: int) -> str:
    """Return a number of tokens in a few characters."""
    if tokens >= 1_000_000:
        return f"{tokens / 1_000_000:.2f}".rstrip("0").rstrip(".") + "M"
    return f"{tokens // 1_000}k" if tokens >= 1_000 else str(tokens)


def describe_price(info: ModelInfo) -> str:
    """Return the price for a million tokens sent and received, or an empty string."""
    if info.input_usd is None or info.output_usd is None:
        return ""
    return f"${info.input_usd:g} / ${info.output_usd:g}"
