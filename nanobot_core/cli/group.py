"""LazyGroup: a group of commands whose modules are imported when they run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, ClassVar

import typer
from typer.core import TyperCommand, TyperGroup

from nanobot_core.cli.options import (
    Options,
    load_catalogue,
    options_of,
    read_settings,
)
from nanobot_core.errors import NanobotError, PluginError, PluginRejected
from nanobot_core.record import dataclass

if TYPE_CHECKING:
    from typer._click.core import Command, Context
    from typer._click.formatting import HelpFormatter
    from typer._click.shell_completion import CompletionItem

    from nanobot_core.plugins.index import InstalledPlugin


@dataclass(frozen=True, slots=True)
class Entry:
    """A command whose module is not imported yet.

    Attributes:
        summary: its line in ``--help``.
        target: ``package.module:name`` of a `typer.Typer`, or of a function for one command.
        plugin: id of the plugin that provides it; empty for commands of the core.
    """

    name: str
    summary: str
    target: str
    plugin: str = ""


class LazyGroup(TyperGroup):
    """Lists commands from a table and from the manifests of plugins.

    ``--help`` and completion of names import neither a command's module nor any plugin. The names
    of core commands are reserved.

    Attributes:
        table: the core's lazy commands; more may be registered on the Typer as usual.
        extends: the `CliGroup.parent` of the groups that plugins add here; ``None`` for none.
    """

    table: ClassVar[Sequence[Entry]] = ()
    extends: ClassVar[str | None] = None
    _only_names = False

    @cached_property
    def entries(self) -> dict[str, Entry]:
        """The lazy commands by name, those of plugins last."""
        entries = {entry.name: entry for entry in self.table}
        if self.extends is not None:
            for entry in plugin_entries(self.extends):
                if entry.name not in self.commands:
                    entries.setdefault(entry.name, entry)
        return entries

    def list_commands(self, ctx: Context) -> list[str]:
        """Return the names of all commands, in the order of ``--help``."""
        return [*self.commands, *self.entries]

    def get_command(self, ctx: Context, cmd_name: str) -> Command | None:
        """Return the command, its module imported; ``None`` if the name is unknown.

        Raises:
            PluginError: the plugin that provides it is disabled or broken.
        """
        if cmd_name in self.commands:
            return self.commands[cmd_name]
        entry = self.entries.get(cmd_name)
        if entry is None:
            return None
        # Completion must not import plugins; their subcommands are not completed.
        if self._only_names or (entry.plugin and ctx.resilient_parsing):
            return TyperCommand(cmd_name, help=entry.summary, rich_markup_mode=None)
        return _plugin_command(ctx, entry) if entry.plugin else _core_command(entry)

    def format_commands(self, ctx: Context, formatter: HelpFormatter) -> None:
        """Write the list of commands."""
        with self._names_only():
            super().format_commands(ctx, formatter)

    def shell_complete(self, ctx: Context, incomplete: str) -> list[CompletionItem]:
        """Return the names that begin with `incomplete`."""
        with self._names_only():
            return super().shell_complete(ctx, incomplete)

    def resolve_command(
        self, ctx: Context, args: list[str]
    ) -> tuple[str | None, Command | None, list[str]]:
        """Return the command that `args` begin with; for a near miss the error names it."""
        from nanobot_core.plugins.published import Published
        from nanobot_core.text import nearest

        name = args[0]
        known = self.list_commands(ctx)
        if name not in known and not name.startswith("-") and not ctx.resilient_parsing:
            close = " or ".join(f"'{word}'" for word in nearest(name, known))
            hint = f", did you mean {close}?" if close else ""
            if ctx.parent is None and (package := Published.load().with_command(name)):
                hint = f"; it comes with {package}: run nanobot plugins add {package}"
            ctx.fail(f"no such command '{name}'{hint}")
        return super().resolve_command(ctx, args)

    @contextmanager
    def _names_only(self) -> Iterator[None]:
        self._only_names = True
        try:
            yield
        finally:
            self._only_names = False


def plugin_entries(parent: str) -> Iterator[Entry]:
    """Yield the groups that installed plugins add below `parent`, without importing any.

    A mistake in the configuration never breaks ``--help``: only its valid part is read, and only to
    find plugins in single files and to examine a new plugin without a manifest. A group of a
    disabled plugin is listed, and fails with the reason. A name that several plugins claim becomes
    ``plugin__name`` for each of them.
    """
    from nanobot_core.config.environment import process_environment, resolve_home
    from nanobot_core.plugins.index import load_declarations

    found: dict[str, list[Entry]] = {}
    home = resolve_home(process_environment())
    for plugin, group in load_declarations(home, "cli", _describe_new):
        if (group["detail"].get("parent") or "") == parent:
            entry = Entry(group["name"], group["summary"], group["detail"]["app"], plugin)
            found.setdefault(entry.name, []).append(entry)
    for name, claims in sorted(found.items()):
        for entry in claims:
            shown = name if len(claims) == 1 else f"{entry.plugin}__{name}"
            yield Entry(shown, entry.summary, entry.target, entry.plugin)


def _describe_new() -> Iterator[InstalledPlugin]:
    """Describe enabled plugins that have no manifest; yield those in single files."""
    from nanobot_core.config.loading import read_config

    with suppress(NanobotError):
        selections = load_catalogue(Options(), read_config(None)).selections
        yield from (item.plugin for item in selections.values() if item.plugin.file)


def _core_command(entry: Entry) -> Command:
    module, _, name = entry.target.partition(":")
    return _build(entry, getattr(import_module(module), name))


def _plugin_command(ctx: Context, entry: Entry) -> Command:
    """Import the plugin's commands; their ``ctx.obj()`` opens the plugin's context."""
    from nanobot_core.cli.command import PluginCommandLine
    from nanobot_core.plugins.loader import load_entry, load_object

    options = options_of(ctx)
    selection = load_catalogue(options, read_settings(options)).selections.get(entry.plugin)
    if selection is not None and not selection.enabled:
        raise PluginError(entry.plugin, selection.condition.reason, selection.condition.remedy)
    if selection is not None and selection.plugin.file:
        load_entry(selection.plugin)  # its module is not on the search path
    command = _build(entry, load_object(entry.plugin, entry.target))
    ctx.obj = PluginCommandLine(options, entry.plugin)
    return command


def _build(entry: Entry, found: object) -> Command:
    """Make a command of a Typer or of a function."""
    if isinstance(found, typer.Typer):
        found.rich_markup_mode = None
        command: Command = typer.main.get_group(found)
        command.name = entry.name
        return command
    if not callable(found):
        raise PluginRejected(entry.plugin, f"'{entry.target}' is neither a Typer nor a function")
    app = typer.Typer(add_completion=False, rich_markup_mode=None)
    app.command(entry.name)(found)
    return typer.main.get_command(app)
