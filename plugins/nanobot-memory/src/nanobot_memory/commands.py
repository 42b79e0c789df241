"""``nanobot memory``."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from nanobot_core import OWNERS_MEMORY, MemoryEntry, PluginContext
from nanobot_memory.files import Memories, MemoryFiles
from nanobot_memory.notes import forget_entry, remember_text
from nanobot_memory.search import Index
from nanobot_memory.versions import restore as restore_version, show_log

if TYPE_CHECKING:
    from nanobot_core import CommandLine

T = TypeVar("T")

app: typer.Typer = typer.Typer(
    help="Show, search and change what the agent remembers.",
    no_args_is_help=True,
    epilog="Example:\n\n\b\n  nanobot memory search dentist",
)
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Scope = Annotated[
    str,
    typer.Option(help="Name of a memory, such as 'sender/telegram:42'; the owner's by default."),
]


@app.command()
def show(ctx: typer.Context, scope: Scope = OWNERS_MEMORY, as_json: AsJson = False) -> None:
    """Print the memory files.

    Example: nanobot memory show
    """
    texts = _with_files(ctx, scope, lambda _, files: {n: files.read(n) for n in files.names})
    if as_json:
        _print_json(texts)
        return
    for name, text in texts.items():
        typer.echo(f"--- {name}\n{text.rstrip() or '(empty)'}\n")


@app.command()
def search(
    ctx: typer.Context,
    query: Annotated[str, typer.Argument(help="Words to look for.")],
    limit: Annotated[int, typer.Option(min=1, max=100, help="Most entries.")] = 10,
    scope: Scope = OWNERS_MEMORY,
    as_json: AsJson = False,
) -> None:
    """Search history and memory files, best match first.

    Example: nanobot memory search "dentist appointment" --limit 3
    """
    found = _with_files(
        ctx, scope, lambda plugin, files: plugin.shared(Index).search(files, query, limit)
    )
    _print_entries(found, as_json)


@app.command()
def log(
    ctx: typer.Context,
    sha: Annotated[str, typer.Argument(help="A change; without it, the newest ones.")] = "",
    scope: Scope = OWNERS_MEMORY,
) -> None:
    """Show the changes of the memory files, or the diff of one.

    Example: nanobot memory log
    """
    command = "nanobot memory "
    typer.echo(_with_files(ctx, scope, lambda _, files: show_log(files, sha, command=command)))


@app.command()
def restore(
    ctx: typer.Context,
    sha: Annotated[str, typer.Argument(help="A change; without it, the newest one.")] = "",
    scope: Scope = OWNERS_MEMORY,
) -> None:
    """Revert one change of the memory files; later changes of other lines stay.

    Example: nanobot memory restore 1a2b3c4
    """
    typer.echo(
        _with_files(
            ctx, scope, lambda plugin, files: restore_version(files, sha, plugin.clock.now())
        )
    )


@app.command()
def dream(
    ctx: typer.Context,
    retry: Annotated[
        bool, typer.Option("--retry", help="Read again what was set aside; much may be removed.")
    ] = False,
) -> None:
    """Work new history into the owner's memory files now.

    A running gateway does it; only one Dream works at a time.

    Example: nanobot memory dream
    """
    terminal: CommandLine = ctx.obj
    typer.echo(terminal.slash("/dream retry" if retry else "/dream"))


@app.command()
def remember(
    ctx: typer.Context,
    text: Annotated[str, typer.Argument(help="One line.")],
    scope: Scope = OWNERS_MEMORY,
) -> None:
    """Add a line to MEMORY.md and print its id.

    Example: nanobot memory remember "The garage code is 4711."
    """
    try:
        entry = _with_files(ctx, scope, lambda _, files: remember_text(files, text))
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="TEXT") from error
    typer.echo(f"Added to {entry.place} as {entry.id}")


@app.command()
def forget(
    ctx: typer.Context,
    entry: Annotated[str, typer.Argument(help="Id of an entry, as 'search' prints it.")],
    scope: Scope = OWNERS_MEMORY,
) -> None:
    """Remove an entry of the history or a line of a file, and name what remains elsewhere.

    Example: nanobot memory forget history:12
    """
    done = _with_files(
        ctx, scope, lambda plugin, files: forget_entry(files, plugin.shared(Index), entry)
    )
    if not done.entries:
        typer.echo(f"There is no entry '{entry}'; nothing was removed.", err=True)
        raise typer.Exit(1)
    typer.echo("\n".join((f"Removed {entry}.", *(f"Still kept: {each}" for each in done.remains))))


def _with_files(
    ctx: typer.Context, scope: str, work: Callable[[PluginContext, MemoryFiles], T]
) -> T:
    terminal: CommandLine = ctx.obj

    async def run() -> T:
        async with terminal() as plugin:
            memories = plugin.shared(Memories)
            known = await asyncio.to_thread(memories.scopes)
            if scope not in known:
                names = ", ".join(f"'{name}'" for name in known)
                msg = f"there is no memory '{scope}'; these exist: {names}"
                raise typer.BadParameter(msg, param_hint="--scope")
            return await asyncio.to_thread(work, plugin, memories.files(scope))

    try:
        return asyncio.run(run())
    except OSError as error:
        typer.echo(
            f"Error: the memory cannot be used: {error}; put a regular file there, or remove it",
            err=True,
        )
        raise typer.Exit(1) from error


def _print_entries(entries: Sequence[MemoryEntry], as_json: bool) -> None:
    if as_json:
        _print_json([_row(entry) for entry in entries])
        return
    if not entries:
        typer.echo("Nothing is remembered that matches.", err=True)
    for entry in entries:
        time = f"  {entry.time:%Y-%m-%d %H:%M}" if entry.time else ""
        typer.echo(f"{entry.id}{time}\n{entry.text}\n")


def _row(entry: MemoryEntry) -> dict[str, str | None]:
    return {
        "id": entry.id,
        "text": entry.text,
        "time": entry.time.isoformat() if entry.time else None,
        "session": entry.session_key,
        "place": entry.place,
    }


def _print_json(value: object) -> None:
    typer.echo(json.dumps(value, indent=2, ensure_ascii=False))
