"""``nanobot deadletters``: messages that could not be delivered or answered."""

from __future__ import annotations

from contextlib import AsyncExitStack
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from nanobot_core.cli.options import gateway_client, open_agent, options_of
from nanobot_core.cli.output import fail, print_json, render_table, run_async

if TYPE_CHECKING:
    from nanobot_core.messages import JsonValue

app: typer.Typer = typer.Typer(
    help="List, resend or delete messages that could not be delivered or answered.",
    no_args_is_help=True,
)
SHOWN_CHARS = 60


@app.command("list")
def list_(
    ctx: typer.Context,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, payload included.")] = False,
) -> None:
    """List dead letters, newest first.

    Example: nanobot deadletters list
    """
    letters = run_async(_ask(ctx, "dead_letters"))
    if as_json:
        print_json(letters)
        return
    rows = []
    for letter in letters if isinstance(letters, list) else ():
        if isinstance(letter, dict) and isinstance(message := letter["message"], dict):
            chat = f"{message['channel']}:{message['chat_id']}"
            text = " ".join(str(message["content"]).split())[:SHOWN_CHARS]
            rows.append((letter["id"], letter["buried_at"], chat, letter["reason"], text))
    if rows:
        render_table(("Id", "Since", "Chat", "Reason", "Content"), rows)
    else:
        typer.echo("No dead letters.")


@app.command()
def retry(ctx: typer.Context, letter: Annotated[str, typer.Argument(metavar="ID")]) -> None:
    """Put a dead letter back into its queue.

    Example: nanobot deadletters retry 12
    """
    _changed(run_async(_ask(ctx, "retry", letter)), letter)


@app.command()
def drop(ctx: typer.Context, letter: Annotated[str, typer.Argument(metavar="ID")]) -> None:
    """Delete a dead letter.

    Example: nanobot deadletters drop 12
    """
    _changed(run_async(_ask(ctx, "drop", letter)), letter)


def _changed(done: JsonValue, letter: str) -> None:
    if done is not True:
        fail(f"unknown dead letter '{letter}'; nanobot deadletters list shows all")


async def _ask(ctx: typer.Context, do: str, letter: str = "") -> JsonValue:
    """Ask the running gateway; if none runs, open its queue."""
    client = gateway_client(ctx)
    if client.is_there:
        return await client.call(do, id=letter)
    from nanobot_core.app.lock import gateway_lock
    from nanobot_core.app.slots import create_bus
    from nanobot_core.clock import SystemClock

    # A gateway that starts meanwhile must not share the queue with this process.
    with gateway_lock(client.folder):
        agent = open_agent(options_of(ctx), lenient=True)
        async with AsyncExitStack() as stack:
            stack.push_async_callback(agent.plugins.stop)
            bus = await create_bus(agent.plugins, agent.loaded, SystemClock())
            stack.push_async_callback(bus.aclose)
            match do:
                case "retry":
                    return await bus.revive(letter)
                case "drop":
                    return await bus.drop(letter)
            return [asdict(found) for found in await bus.dead_letters()]
