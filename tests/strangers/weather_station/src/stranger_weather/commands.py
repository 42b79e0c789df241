"""``nanobot weather`` and ``/weather``."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

import typer

from nanobot_core import CheckResult, CommandCall, PluginContext
from stranger_weather.settings import WeatherSettings

OpenContext = Callable[[], AbstractAsyncContextManager[PluginContext]]
app = typer.Typer(help="Look at the weather station.", no_args_is_help=True)


@app.callback()
def _group() -> None:
    """Keep ``place`` a subcommand although it is the only one."""


@app.command()
def place(ctx: typer.Context) -> None:
    """Say where the station stands."""
    typer.echo(asyncio.run(_place(ctx.obj)))


async def _place(open_context: OpenContext) -> str:
    async with open_context() as context:
        settings = context.settings(WeatherSettings)
        return f"{settings.place}, {settings.altitude_m} m"


async def answer(ctx: PluginContext, call: CommandCall) -> str:
    """Answer ``/weather``."""
    return f"{ctx.settings(WeatherSettings).place}: fair"


async def check_mast(ctx: PluginContext) -> CheckResult:
    """Say that the mast stands."""
    return CheckResult(status="ok", message="the mast stands")
