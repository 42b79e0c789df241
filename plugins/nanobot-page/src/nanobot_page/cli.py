"""``nanobot web``: open the page in the browser, signed in."""

from __future__ import annotations

import subprocess
import sys
import time
import webbrowser
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

if TYPE_CHECKING:
    from nanobot_core import CommandLine

START_LIMIT_S: Final = 30.0
_POLL_S: Final = 0.1
_NOT_RUNNING: Final = "No gateway is running"
_NO_SERVER: Final = "The gateway's HTTP server is not running"


def web(
    ctx: typer.Context,
    *,
    should_open: Annotated[
        bool, typer.Option("--open/--no-open", help="Open the browser, or print the link.")
    ] = True,
) -> None:
    """Open the page in the browser, signed in; starts a gateway if none is running.

    Example: nanobot web
    """
    terminal: CommandLine = ctx.obj
    reply = terminal.slash("/web-login")
    if reply.startswith(_NOT_RUNNING):
        _start_gateway(ctx)
    ends_s = time.monotonic() + START_LIMIT_S
    while reply.startswith((_NOT_RUNNING, _NO_SERVER)) and time.monotonic() < ends_s:
        time.sleep(_POLL_S)
        reply = terminal.slash("/web-login")
    if not reply.startswith(("http://", "https://")):
        typer.echo(f"{reply}\nThe log says more: nanobot gateway logs", err=True)
        raise typer.Exit(1)
    link = reply.strip()
    if should_open and webbrowser.open(link):
        typer.echo("The page is open in the browser.")
    else:
        typer.echo(f"Open this link within a minute; it works once:\n{link}")


def _start_gateway(ctx: typer.Context) -> None:
    """Start a gateway that outlives this command, with the same options as this command."""
    words = sys.orig_argv[1:]
    # The words before the command's own name are the interpreter's and nanobot's options.
    at = len(words) - 1 - words[::-1].index(str(ctx.info_name))
    typer.echo("Starting the gateway; stop it with: nanobot gateway stop")
    subprocess.Popen(
        [sys.executable, *words[:at], "gateway", "run"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd=Path.cwd(),
        start_new_session=True,
    )
