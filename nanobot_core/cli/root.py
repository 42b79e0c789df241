"""``nanobot``: the global options and the commands."""

from __future__ import annotations

import errno
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar, NoReturn

import typer

from nanobot_core.cli.group import Entry, LazyGroup
from nanobot_core.errors import NanobotError

if TYPE_CHECKING:
    from collections.abc import Sequence

_CLI = "nanobot_core.cli"
_OF_THE_DISK = (
    *(errno.ENOSPC, errno.EDQUOT, errno.EFBIG),
    *(errno.EROFS, errno.EACCES, errno.EPERM),
)
EXAMPLES = """\
Examples:

\b
  nanobot onboard                     create a configuration and a workspace
  nanobot agent                       talk in the terminal
  nanobot agent -m "Tidy my notes"    one message, one answer
  git diff | nanobot agent -m "Review this"
  nanobot plugins list                what is installed, and whether it runs
"""


class RootGroup(LazyGroup):
    """The commands of ``nanobot``."""

    extends: ClassVar[str | None] = ""
    table: ClassVar[Sequence[Entry]] = (
        Entry("onboard", "Create a configuration and a workspace.", f"{_CLI}.onboard:onboard"),
        Entry("agent", "Talk to the agent: one message, or a chat.", f"{_CLI}.agent:agent"),
        Entry("gateway", "Run the gateway, or control the running one.", f"{_CLI}.gateway:app"),
        Entry("channels", "Show channels, sign in to their platforms.", f"{_CLI}.channels:app"),
        Entry("pairing", "Approve people who wrote to a channel.", f"{_CLI}.pairing:app"),
        Entry("approvals", "Show and remove permanent approvals.", f"{_CLI}.approvals:app"),
        Entry("deadletters", "List and resend undeliverable messages.", f"{_CLI}.deadletters:app"),
        Entry("status", "Show configuration, keys, plugins and gateway.", f"{_CLI}.status:status"),
        Entry("doctor", "Look for problems and say how to fix them.", f"{_CLI}.doctor:doctor"),
        Entry("plugins", "List, install, enable and disable plugins.", f"{_CLI}.plugins:app"),
        Entry("install", "Install plugins, as nanobot plugins add.", f"{_CLI}.install:add"),
        Entry("config", "Show, change and check the configuration.", f"{_CLI}.config:app"),
        Entry("providers", "List model providers, explain the choice.", f"{_CLI}.providers:app"),
        Entry("models", "List the models that can be used now.", f"{_CLI}.models:app"),
        Entry("sessions", "List, show, export, search, delete sessions.", f"{_CLI}.sessions:app"),
        Entry("backup", "Write the home to one file.", f"{_CLI}.backup:backup"),
        Entry("restore", "Make a home from a backup.", f"{_CLI}.backup:restore"),
        Entry("explain", "Show where a tool or setting comes from.", f"{_CLI}.explain:app"),
    )


app: typer.Typer = typer.Typer(
    cls=RootGroup,
    name="nanobot",
    help="An AI agent made of plugins.",
    epilog=EXAMPLES,
    rich_markup_mode=None,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        from nanobot_core._version import __version__

        typer.echo(f"nanobot {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    config: Annotated[
        Path | None, typer.Option("--config", "-c", help="Configuration file to use.")
    ] = None,
    profile: Annotated[
        str | None, typer.Option("--profile", "-p", help="Overlay from 'profiles' to apply.")
    ] = None,
    safe: Annotated[
        bool, typer.Option("--safe", help="Leave out all third-party plugins.")
    ] = False,
    without: Annotated[
        list[str] | None,
        typer.Option("--without", metavar="ID", help="Leave out one plugin; may be repeated."),
    ] = None,
    debug: Annotated[
        bool, typer.Option("--debug", help="Log everything, tracebacks included.")
    ] = False,
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Show the version and exit."
        ),
    ] = False,
) -> None:
    """Commands read these options from the context, see `options_of`."""
    from nanobot_core.config.environment import (
        process_environment,
        provide_temporary_folder,
        resolve_home,
    )

    provide_temporary_folder(resolve_home(process_environment()))


def run() -> NoReturn:
    """Run the command line of this process and exit: 0 done, 1 failed, 2 wrong use."""
    command = typer.main.get_command(app)
    try:
        command(prog_name="nanobot")
    except Exception as error:  # noqa: BLE001 - isolation point: people read sentences
        _report(error)
    sys.exit(1)


def _report(error: Exception) -> None:
    from nanobot_core.cli.output import describe_error, print_error

    if "--debug" in sys.argv[1:]:
        sys.excepthook(type(error), error, error.__traceback__)
    elif isinstance(error, NanobotError):
        print_error(describe_error(error))
    elif isinstance(error, OSError) and error.errno in _OF_THE_DISK:
        where = f" '{error.filename}'" if error.filename else ""
        print_error(
            f"cannot write{where}: {error.strerror}; free some space, or make the folder writable "
            "for this account"
        )
    else:
        print_error(
            # Not the error's own words: an unforeseen error may contain a secret.
            f"nanobot itself failed with {type(error).__name__}; "
            "run the command again with 'nanobot --debug …' and report what it prints"
        )
