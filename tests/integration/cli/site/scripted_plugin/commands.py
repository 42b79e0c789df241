"""Commands of the plugin ``extras``."""

from __future__ import annotations

import asyncio

import typer

app = typer.Typer(help="Commands of a plugin.")


@app.command()
def where(ctx: typer.Context) -> None:
    """Print the id of the plugin whose context the command gets."""

    async def work() -> None:
        async with ctx.obj() as context:
            typer.echo(context.id)

    asyncio.run(work())
