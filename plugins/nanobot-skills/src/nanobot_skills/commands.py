"""``nanobot skills``."""

from __future__ import annotations

import asyncio
import errno
import json
import shutil
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path, PurePath
from typing import Annotated, TypeAlias

import typer

from nanobot_core import Folder, NanobotError, PluginContext, shorten
from nanobot_skills.library import Library, Skills
from nanobot_skills.overview import approve_by_name, describe_state, find_skill, render_skill
from nanobot_skills.skill import FILE_NAME, is_valid_name

app = typer.Typer(help="List, show, check, create and approve skills.", no_args_is_help=True)

OpenContext: TypeAlias = Callable[[], AbstractAsyncContextManager[PluginContext]]
Name: TypeAlias = Annotated[str, typer.Argument(help="Name of the skill.")]
_TEMPLATE = """\
---
name: {name}
description: {description}
---

# {name}

Say here, step by step, how to do the task.
"""
_COLUMNS = ("name", "state", "source", "description")
_DESCRIPTION = "What this skill does. Use it when the user asks for that."


class SkillNotCreated(NanobotError):
    """The file of a new skill could not be written."""

    def __init__(self, file: Path, reason: str) -> None:
        super().__init__(f"cannot create {file}: {reason}")


@app.command("list")
def list_skills(
    ctx: typer.Context,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """List all skills with their state and source.

    Example: nanobot skills list
    """
    skills = asyncio.run(_load(ctx.obj))
    rows = [
        {
            "name": each.name,
            "state": describe_state(each),
            "source": each.found.place.label,
            "description": each.skill.description,
            "file": each.found.shown,
        }
        for each in sorted(skills.loaded, key=lambda each: (each.name, each.shadowed_by != ""))
    ]
    if as_json:
        typer.echo(json.dumps(rows, indent=2, ensure_ascii=False))
    else:
        _print_table([[row[key] for key in _COLUMNS] for row in rows])
    for problem in (*skills.problems, *map(str, skills.broken)):
        typer.echo(problem, err=True)


@app.command()
def show(ctx: typer.Context, name: Name) -> None:
    """Show a skill: its state, what it requires, and its instructions.

    Example: nanobot skills show weather
    """
    typer.echo(render_skill(find_skill(asyncio.run(_load(ctx.obj)), name)))


@app.command()
def check(
    ctx: typer.Context,
    name: Annotated[str, typer.Argument(help="Name of the skill; by default all.")] = "",
) -> None:
    """Check skills against the Agent Skills format; exit with 1 if one breaks a rule.

    Example: nanobot skills check weather
    """
    skills = asyncio.run(_load(ctx.obj))
    loaded = [each for each in skills.loaded if name in {"", each.name}]
    broken = [each for each in skills.broken if name in {"", each.found.name}]
    if name and not loaded and not broken:
        find_skill(skills, name)
    errors = len(broken)
    for problem in (*(() if name else skills.problems), *map(str, broken)):
        typer.echo(problem)
    for each in loaded:
        for finding in each.skill.findings:
            errors += finding.is_error
            kind = "" if finding.is_error else "advice: "
            typer.echo(f"{each.found.shown}:{finding.line}: {kind}{finding.message}")
    count = len(loaded) + len(broken)
    typer.echo(f"{count} skill{'' if count == 1 else 's'} checked, {errors} errors", err=True)
    if errors:
        raise typer.Exit(1)


@app.command()
def new(
    ctx: typer.Context,
    name: Name,
    description: Annotated[
        str, typer.Option(help="What the skill does and when to use it.")
    ] = _DESCRIPTION,
) -> None:
    """Create a skill in the workspace.

    Example: nanobot skills new release-notes
    """
    if not is_valid_name(name):
        raise typer.BadParameter("use at most 64 lower-case letters, digits and single hyphens")
    typer.echo(f"Wrote {asyncio.run(_create(ctx.obj, name, description))}")


@app.command()
def approve(ctx: typer.Context, name: Name) -> None:
    """Approve the present content of a skill in the workspace, and show it.

    Example: nanobot skills approve release-notes
    """
    typer.echo(asyncio.run(_approve(ctx.obj, name)))


async def _load(open_context: OpenContext) -> Skills:
    async with open_context() as plugin:
        return await plugin.shared(Library).load()


async def _create(open_context: OpenContext, name: str, description: str) -> str:
    async with open_context() as plugin:
        workspace, file = Folder(plugin.workspace), PurePath("skills") / name / FILE_NAME
        text = _TEMPLATE.format(name=name, description=json.dumps(description, ensure_ascii=False))
        try:
            await asyncio.to_thread(_write_new, workspace, file, text.encode())
        except OSError as error:
            raise SkillNotCreated(workspace.path / file, str(error.strerror)) from error
        return str(workspace.path / file)


def _write_new(workspace: Folder, file: PurePath, data: bytes) -> None:
    workspace.make(file.parent, mode=0o755)
    try:
        workspace.stat(file)
    except FileNotFoundError:
        workspace.replace(file, data)
    else:
        raise FileExistsError(errno.EEXIST, "it exists already")


async def _approve(open_context: OpenContext, name: str) -> str:
    async with open_context() as plugin:
        library = plugin.shared(Library)
        return await approve_by_name(library, await library.load(), name)


def _print_table(rows: list[list[str]]) -> None:
    """Print rows in columns; the last one is cut at the width of the terminal."""
    if not rows:
        typer.echo("There are no skills.", err=True)
        return
    rows = [[name.upper() for name in _COLUMNS], *rows]
    widths = [max(map(len, column)) for column in list(zip(*rows, strict=True))[:-1]]
    room = max(shutil.get_terminal_size().columns - sum(widths) - 2 * len(widths), 30)
    for *first, last in rows:
        padded = [cell.ljust(width) for cell, width in zip(first, widths, strict=True)]
        typer.echo("  ".join([*padded, shorten(last, room)]))
