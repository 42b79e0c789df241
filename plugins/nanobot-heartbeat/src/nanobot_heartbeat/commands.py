"""``nanobot heartbeat``."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from nanobot_core import CommandLine

app: typer.Typer = typer.Typer(
    help="Show the heartbeat, or run it now.",
    no_args_is_help=True,
    epilog="Example:\n\n\b\n  nanobot heartbeat trigger",
)


AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@app.command()
def status(ctx: typer.Context, as_json: AsJson = False) -> None:
    """Show the interval, the chat for answers, and the newest beats.

    Example: nanobot heartbeat status
    """
    terminal: CommandLine = ctx.obj
    typer.echo(terminal.slash(f"/heartbeat status{' --json' if as_json else ''}"))


@app.command()
def trigger(ctx: typer.Context, as_json: AsJson = False) -> None:
    """Check HEARTBEAT.md in the running gateway now, even in quiet hours.

    Example: nanobot heartbeat trigger
    """
    terminal: CommandLine = ctx.obj
    answer = terminal.slash("/heartbeat trigger --json")
    done = json.loads(answer)
    typer.echo(answer if as_json else done["text"], err=not (as_json or done["has_gateway"]))
    if not done["has_gateway"]:
        raise typer.Exit(1)
