"""``nanobot acp``."""

from __future__ import annotations

import asyncio
import signal

import typer

from nanobot_acp.agent import EditorAgent
from nanobot_acp.attachment import media_of
from nanobot_acp.transport import claim_stdio, open_transport
from nanobot_core import CommandLine

INTERRUPTED_CODE = 130


def acp(ctx: typer.Context) -> None:
    """Serve an editor that speaks the Agent Client Protocol, on standard input and output.

    The editor starts this command. It uses the agent of the running gateway, or else one of its
    own, and ends when the editor closes standard input.

    Example: nanobot acp
    """
    try:
        asyncio.run(_serve(ctx.obj))
    except (KeyboardInterrupt, asyncio.CancelledError):
        raise typer.Exit(INTERRUPTED_CODE) from None


async def _serve(line: CommandLine) -> None:
    if serving := asyncio.current_task():
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, serving.cancel)
    # Before the agent starts, so that no program that it starts can write to the editor.
    incoming, outgoing = claim_stdio()
    transport = await open_transport(incoming, outgoing)
    async with line.client() as client, asyncio.TaskGroup() as group:
        await EditorAgent(client, media_of(line), group.create_task).serve(transport)
