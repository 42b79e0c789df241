"""The reference of commands and their options, rendered from the command line itself."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import typer.main
from typer.core import TyperGroup

from nanobot_core.cli.root import app

if TYPE_CHECKING:
    from typer._click.core import Command, Context

_GENERAL = frozenset({"--help", "--install-completion", "--show-completion"})


def render_commands() -> str:
    """Return all commands of the core and of the plugins that are installed."""
    root = typer.main.get_group(app)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "config.yaml")
        file.write_text("{}\n", "utf-8")  # in which every plugin that is installed runs
        context = root.context_class(root, info_name="nanobot")
        context.params = {"config": file}
        blocks = ["## Options before a command", _table(root, context)]
        for name, command in _below(root, context):
            blocks += [f"## `nanobot {name}`", *_blocks(command, context)]
    return "\n\n".join(block for block in blocks if block)


def _blocks(command: Command, parent: Context) -> Iterator[str]:
    """Yield what is said about a command and those below it."""
    context = command.context_class(command, info_name=command.name, parent=parent)
    yield _paragraph(command.help)
    yield _table(command, context)
    if isinstance(command, TyperGroup):
        for name, below in _below(command, context):
            yield f"### `{context.command_path} {name}`"
            yield from _blocks(below, context)


def _below(group: TyperGroup, context: Context) -> Iterator[tuple[str, Command]]:
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if command is not None:
            yield name, command


def _paragraph(text: str | None) -> str:
    # What follows these marks is an example.
    shown = " ".join((text or "").split("\b")[0].split("\n\nExample")[0].split())
    return shown.removesuffix(" For example:")


def _table(command: Command, context: Context) -> str:
    rows = []
    for each in command.get_params(context):
        record = None if _GENERAL & set(each.opts) else each.get_help_record(context)
        if record is not None:
            name, meaning = (" ".join(text.split()).replace("|", "\\|") for text in record)
            rows.append(f"| `{name}` | {meaning} |")
    if not rows:
        return ""
    return "\n".join(["| option or argument | meaning |", "| --- | --- |", *rows])
