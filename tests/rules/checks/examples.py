"""Commands whose help shows no example, and examples that their command would refuse."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

import typer
from typer._click.exceptions import ClickException
from typer.core import TyperGroup

if TYPE_CHECKING:
    from typer._click.core import Command, Context

_BEGIN = re.compile(r"^(?:For example|Examples?):", re.MULTILINE)
_OPERATORS = frozenset("|;>")


def example_findings(app: typer.Typer, config: Path) -> Iterator[str]:
    """Report commands without an example of their own, and examples that do not parse.

    Args:
        app: all commands; those of installed plugins are among those of the core's.
        config: an empty configuration, with which every installed plugin runs.
    """
    root = typer.main.get_group(app)
    context = root.context_class(root, info_name="nanobot")
    context.params = {"config": config}
    for path, command in [("nanobot", root), *_below(root, context)]:
        shown = set()
        for words in _examples(command):
            try:
                shown.add(_run_by(root, words, config))
            except ClickException as error:
                yield f"{path}: the example '{shlex.join(words)}' fails: {error.format_message()}"
        if not isinstance(command, TyperGroup) and path not in shown:
            yield f"{path}: its help has no example of it; add 'Example: {path} …'"


def _below(group: TyperGroup, context: Context) -> Iterator[tuple[str, Command]]:
    """Yield all commands and groups below a group with their words."""
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if command is not None:
            inner = command.context_class(command, info_name=name, parent=context)
            yield inner.command_path, command
            if isinstance(command, TyperGroup):
                yield from _below(command, inner)


def _examples(command: Command) -> Iterator[list[str]]:
    """Yield the words of each call of nanobot in the examples of a command."""
    for text in (command.help or "", command.epilog or ""):
        for line in "".join(_BEGIN.split(text, maxsplit=1)[1:]).replace("\b", "").splitlines():
            call = re.split(r" {2,}", line.strip())[0]  # what it does may follow
            lexer = shlex.shlex(call, posix=True, punctuation_chars="".join(_OPERATORS))
            lexer.whitespace_split = True
            for is_operator, words in groupby(lexer, lambda word: set(word) <= _OPERATORS):
                found = [] if is_operator else list(words)
                if found[:1] == ["nanobot"]:
                    yield found


def _run_by(root: TyperGroup, words: list[str], config: Path) -> str:
    """Return the command, as its help names it, that these words run.

    Raises:
        ClickException: it does not exist, or refuses what follows.
    """
    command: Command = root
    (name, *rest), parent = words, None
    while True:
        context = command.make_context(name, rest, parent=parent)
        context.find_root().params["config"] = config
        # Here a group keeps the name of the command that runs.
        rest = [*context._protected_args, *context.args]
        if not isinstance(command, TyperGroup) or not rest:
            return context.command_path
        _, found, rest = command.resolve_command(context, rest)
        if found is None:
            context.fail("no such command")
        name, command, parent = found.name or "", found, context
