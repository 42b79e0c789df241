"""``nanobot subagents``: ``/subagents`` at the terminal."""

from __future__ import annotations

from typing import Annotated

import typer

from nanobot_core import CommandLine

app: typer.Typer = typer.Typer(help="List, show and stop subagents.", no_args_is_help=True)
RunId = Annotated[str, typer.Argument(help="Id of the run, as listed.")]


@app.command("list")
def list_runs(
    ctx: typer.Context,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """List the running, waiting and newest ended subagents.

    Example: nanobot subagents list
    """
    _answer(ctx.obj, "list --json" if as_json else "list")


@app.command()
def show(ctx: typer.Context, run_id: RunId) -> None:
    """Show a subagent: its task, its last steps and its result.

    Example: nanobot subagents show 1a2b3c4d
    """
    _answer(ctx.obj, f"show {run_id}")


@app.command()
def stop(ctx: typer.Context, run_id: RunId) -> None:
    """Stop a subagent; its result is not reported.

    Example: nanobot subagents stop 1a2b3c4d
    """
    _answer(ctx.obj, f"stop {run_id}")


@app.command()
def profiles(ctx: typer.Context) -> None:
    """List the profiles in the folder agents of the workspace, and their problems.

    Example: nanobot subagents profiles
    """
    _answer(ctx.obj, "profiles")


def _answer(line: CommandLine, command: str) -> None:
    typer.echo(line.slash(f"/subagents {command}"))
