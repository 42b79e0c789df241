"""``nanobot pairing``: approve people who wrote to a channel."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from nanobot_core.cli.options import AsJson, home_of
from nanobot_core.cli.output import fail, print_json, render_table

if TYPE_CHECKING:
    from nanobot_core.channels.pairing import PairingStore

app: typer.Typer = typer.Typer(help="Approve people who wrote to a channel.", no_args_is_help=True)


@app.command("list")
def list_(ctx: typer.Context, as_json: AsJson = False) -> None:
    """List pending codes and approved senders.

    Example: nanobot pairing list
    """
    store = _store(ctx)
    pending, approved = store.pending(), store.everyone()
    if as_json:
        print_json(
            {
                "pending": [
                    {"code": item.code, "channel": item.channel, "sender_id": item.sender_id}
                    for item in pending
                ],
                "approved": [{"channel": name, "sender_id": who} for name, who in approved],
            }
        )
        return
    rows = [(item.channel, item.sender_id, f"code {item.code}") for item in pending]
    rows += [(channel, sender, "approved") for channel, sender in approved]
    if rows:
        render_table(("Channel", "Sender", "State"), rows)
    else:
        typer.echo("No pending requests and no approved senders.")


@app.command()
def approve(ctx: typer.Context, code: Annotated[str, typer.Argument(help="The code.")]) -> None:
    """Approve the sender who has this code.

    Example: nanobot pairing approve K7WM2RQP
    """
    asked = _store(ctx).approve(code)
    if asked is None:
        fail("unknown or expired code; codes are valid for an hour, see nanobot pairing list")
    typer.echo(f"{asked.sender_id} can now write on {asked.channel}.")


@app.command()
def revoke(
    ctx: typer.Context,
    channel: Annotated[str, typer.Argument(help="Name of the channel.")],
    sender_id: Annotated[str, typer.Argument(help="Id of the sender.")],
) -> None:
    """Remove a sender who was approved with a code.

    Example: nanobot pairing revoke telegram 42
    """
    if not _store(ctx).revoke(channel, sender_id):
        fail(f"'{sender_id}' is not approved on '{channel}'; see nanobot pairing list")


def _store(ctx: typer.Context) -> PairingStore:
    from nanobot_core.channels.pairing import PairingStore
    from nanobot_core.clock import SystemClock

    return PairingStore(home_of(ctx) / "gateway" / "pairing.json", SystemClock())
