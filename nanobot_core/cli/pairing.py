"""``nanobot pairing``: admit unknown senders."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from nanobot_core.cli.options import home_of
from nanobot_core.cli.output import fail, print_json, render_table

if TYPE_CHECKING:
    from nanobot_core.channels.pairing import PairingStore

app: typer.Typer = typer.Typer(
    help="Admit unknown senders who wrote to a channel.", no_args_is_help=True
)


@app.command("list")
def list_(
    ctx: typer.Context,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """List pending codes and admitted senders."""
    store = _store(ctx)
    waiting, let_in = store.pending(), store.everyone()
    if as_json:
        print_json(
            {
                "pending": [
                    {"code": item.code, "channel": item.channel, "sender_id": item.sender_id}
                    for item in waiting
                ],
                "approved": [{"channel": name, "sender_id": who} for name, who in let_in],
            }
        )
        return
    rows = [(item.channel, item.sender_id, f"code {item.code}") for item in waiting]
    rows += [(channel, sender, "may write") for channel, sender in let_in]
    if rows:
        render_table(("Channel", "Sender", "State"), rows)
    else:
        typer.echo("No pending requests and no approved senders.")


@app.command()
def approve(ctx: typer.Context, code: Annotated[str, typer.Argument(help="The code.")]) -> None:
    """Admit the person who has this code."""
    asked = _store(ctx).approve(code)
    if asked is None:
        fail("no such code is valid; codes live for an hour, see nanobot pairing list")
    typer.echo(f"{asked.sender_id} may write on {asked.channel}.")


@app.command()
def revoke(
    ctx: typer.Context,
    channel: Annotated[str, typer.Argument(help="Name of the channel.")],
    sender_id: Annotated[str, typer.Argument(help="Id of the sender.")],
) -> None:
    """Remove a sender who was admitted by a code."""
    if not _store(ctx).revoke(channel, sender_id):
        fail(f"'{sender_id}' is not an admitted sender of '{channel}'; see nanobot pairing list")


def _store(ctx: typer.Context) -> PairingStore:
    from nanobot_core.channels.pairing import PairingStore
    from nanobot_core.clock import SystemClock

    return PairingStore(home_of(ctx) / "gateway" / "pairing.json", SystemClock())
