"""``nanobot approvals``: the calls that the owner always allows."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from nanobot_core.cli.options import AsJson, home_of
from nanobot_core.cli.output import fail, print_json, render_table

if TYPE_CHECKING:
    from nanobot_core.agent.always import AlwaysAllowed

app: typer.Typer = typer.Typer(
    help='List and remove calls that you allowed with "always".', no_args_is_help=True
)


@app.command("list")
def list_(ctx: typer.Context, as_json: AsJson = False) -> None:
    """List the calls that run without a question.

    Example: nanobot approvals list
    """
    found = _store(ctx).read()
    if as_json:
        print_json([asdict(call) for call in found])
    elif found:
        rows = [(str(n), call.tool, call.subject) for n, call in enumerate(found, 1)]
        render_table(("Number", "Tool", "Call"), rows)
    else:
        typer.echo("No calls are allowed without a question.")


@app.command()
def forget(
    ctx: typer.Context,
    number: Annotated[int, typer.Argument(min=1, help="Number in the list.")],
) -> None:
    """Ask about a call again.

    Example: nanobot approvals forget 2
    """
    store = _store(ctx)
    found = store.read()
    if number > len(found):
        fail(f"number {number} does not exist; nanobot approvals list shows all numbers")
    store.remove(found[number - 1])
    typer.echo(f"nanobot asks again about {found[number - 1].tool}: {found[number - 1].subject}")


def _store(ctx: typer.Context) -> AlwaysAllowed:
    from nanobot_core.agent.always import AlwaysAllowed

    return AlwaysAllowed.below(home_of(ctx))
