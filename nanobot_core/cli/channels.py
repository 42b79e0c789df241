"""``nanobot channels``: show their state, and sign in."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from nanobot_core.cli.gateway import gateway_status, when
from nanobot_core.cli.options import AsJson, gateway_client, open_agent, options_of
from nanobot_core.cli.output import print_json, render_table, run_async

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nanobot_core.cli.options import Options
    from nanobot_core.contracts.service import RunStatus

app: typer.Typer = typer.Typer(
    help="Show channels and sign in to their platforms.", no_args_is_help=True
)


@app.command()
def status(ctx: typer.Context, as_json: AsJson = False) -> None:
    """Show each channel: its state in the running gateway, or whether it is enabled.

    Example: nanobot channels status
    """
    is_running = gateway_client(ctx).is_there
    if is_running:
        running = [item for item in gateway_status(ctx).running if item.kind == "channel"]
        if as_json:
            print_json([asdict(item) for item in running])
            return
        if running:
            _print_channels(running)
            return
    rows = _configured(options_of(ctx), is_running=is_running)
    if as_json:
        print_json(
            [{"name": name, "plugin": plugin, "state": state} for name, plugin, state in rows]
        )
    elif rows:
        render_table(("Name", "Plugin", "State"), rows)
    else:
        typer.echo(
            "No channel is installed. Install one, for example: pip install nanobot-telegram"
        )


@app.command()
def login(
    ctx: typer.Context,
    name: Annotated[str, typer.Argument(help="Name of the channel.")],
) -> None:
    """Sign in to a channel's platform, or check its credentials.

    Example: nanobot channels login telegram
    """
    typer.echo(run_async(_login(options_of(ctx), name)))


async def _login(options: Options, name: str) -> str:
    from nanobot_core.channels.manager import sign_in
    from nanobot_core.cli.login import TerminalPrompt

    agent = open_agent(options)
    try:
        return await sign_in(agent.plugins, name, TerminalPrompt(opens=True))
    finally:
        await agent.plugins.stop()


def _print_channels(running: Sequence[RunStatus]) -> None:
    rows = [
        (
            item.name,
            item.account,
            item.state,
            when(item.last_contact),
            when(item.last_received),
            when(item.last_sent),
            item.last_error or "",
        )
        for item in running
    ]
    columns = ("Name", "Account", "State", "Last contact", "Received", "Sent", "Last error")
    render_table(columns, rows)


def _configured(options: Options, *, is_running: bool) -> list[tuple[str, str, str]]:
    agent = open_agent(options, lenient=True)
    rows = []
    for plugin, declaration in agent.plugins.declared("channels"):
        section = agent.loaded.settings.section(f"channels.{declaration.name}")
        # A channel that knows its owner runs without a section.
        if section is None and not declaration.detail.get("owner_id"):
            state = f"not configured: add channels.{declaration.name} to the configuration"
        elif section is not None and section.get("enabled", True) is not True:
            state = "disabled"
        elif is_running:
            state = "enabled after the gateway started: run nanobot gateway reload"
        else:
            state = "enabled; the gateway is not running"
        rows.append((declaration.name, plugin, state))
    return rows
