"""``nanobot sessions``: list, show, export, search and delete sessions."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nanobot_core.cli.options import AsJson, Options, open_agent, options_of, running_gateway
from nanobot_core.cli.output import fail, print_json, printable, render_table, run_async
from nanobot_core.messages import CHANGED_BY, PASSAGES, Message, message_to_json

if TYPE_CHECKING:
    from nanobot_core.contracts.store import SessionStore

app: typer.Typer = typer.Typer(
    help="List, show, export, search and delete sessions.",
    no_args_is_help=True,
    epilog="Example:\n\n\b\n  nanobot sessions show cli:direct --last 10",
)
Key = Annotated[str, typer.Argument(help="Key of the session, such as cli:direct.")]
SNIPPET_CHARS = 80


@app.command("list")
def list_sessions(ctx: typer.Context, as_json: AsJson = False) -> None:
    """List all sessions, the latest first.

    Example: nanobot sessions list
    """

    async def work() -> None:
        async with _store(options_of(ctx)) as store:
            found = await store.summaries()
        if as_json:
            print_json(
                [
                    {"key": item.key, "updated_at": item.updated_at.isoformat(), "bytes": item.size}
                    for item in found
                ]
            )
            return
        rows = [
            (item.key, f"{item.updated_at.astimezone():%Y-%m-%d %H:%M}", item.size)
            for item in found
        ]
        render_table(("Session", "Updated", "Bytes"), rows)

    run_async(work())


@app.command()
def show(
    ctx: typer.Context,
    key: Key,
    last: Annotated[
        int | None, typer.Option("--last", min=1, help="Show the newest messages only.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show the messages of a session, with the plugin of each tool result.

    Example: nanobot sessions show cli:direct --last 10
    """
    messages = run_async(_read(options_of(ctx), key, last))
    if as_json:
        print_json([message_to_json(message) for message in messages])
        return
    for message in messages:
        print(printable(_plain(message)))


@app.command()
def export(
    ctx: typer.Context,
    key: Key,
    file: Annotated[
        Path | None, typer.Option("--output", "-o", help="File to write; else standard output.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Write a session as Markdown, or as JSON.

    Example: nanobot sessions export cli:direct --output session.md
    """
    messages = run_async(_read(options_of(ctx), key, None))
    if as_json:
        import json

        records = [message_to_json(message) for message in messages]
        text = json.dumps(records, indent=2, ensure_ascii=False) + "\n"
    else:
        text = f"# {key}\n\n" + "\n".join(f"## {_plain(message)}" for message in messages)
    if file is None:
        sys.stdout.write(text)
        return
    try:
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        fail(f"cannot write '{file}': {error.strerror}")


@app.command()
def delete(
    ctx: typer.Context,
    key: Key,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Delete a session permanently.

    Example: nanobot sessions delete cli:direct
    """
    if not yes:
        if not sys.stdin.isatty():
            fail("cannot ask without a terminal; add --yes to delete the session", 2)
        typer.confirm(f"Delete session '{key}' permanently?", abort=True)

    if not run_async(_delete(options_of(ctx), key)):
        fail(_unknown(key))


@app.command()
def search(
    ctx: typer.Context,
    text: Annotated[str, typer.Argument(help="Text to find; case is ignored.")],
    as_json: AsJson = False,
) -> None:
    """Find messages in all sessions; exit code 1 if none matches.

    Example: nanobot sessions search dentist
    """
    found = run_async(_search(options_of(ctx), text))
    if as_json:
        print_json([{"session": key, **message_to_json(message)} for key, message in found])
    elif found:
        rows = [
            (key, _time(message), message.role, _snippet(message.text, text))
            for key, message in found
        ]
        render_table(("Session", "Time", "Role", "Text"), rows)
    if not found:
        raise typer.Exit(1)


@asynccontextmanager
async def _store(options: Options) -> AsyncIterator[SessionStore]:
    """Open the store only; no plugin starts, unless it provides the store."""
    from nanobot_core.app.slots import create_session_store
    from nanobot_core.clock import SystemClock

    agent = open_agent(options, lenient=True)
    store = await create_session_store(agent.plugins, agent.loaded, SystemClock())
    try:
        yield store
    finally:
        await store.aclose()
        await agent.plugins.stop()


async def _delete(options: Options, key: str) -> bool:
    """Delete a session through the running gateway, which may have it in memory, or here."""
    from nanobot_core.app.lock import gateway_lock
    from nanobot_core.config.environment import process_environment, resolve_home

    if client := running_gateway(options):
        return await client.call("delete_session", key=key) is True
    # A gateway that starts meanwhile must not open the session.
    with gateway_lock(resolve_home(process_environment()) / "gateway"):
        async with _store(options) as store:
            return await store.delete(key)


async def _read(options: Options, key: str, last: int | None) -> list[Message]:
    async with _store(options) as store:
        messages = deque([message async for message in store.read(key)], maxlen=last)
    if not messages:
        fail(_unknown(key))
    return list(messages)


async def _search(options: Options, text: str) -> list[tuple[str, Message]]:
    wanted = text.casefold()
    async with _store(options) as store:
        return [
            (item.key, message)
            for item in await store.summaries()
            async for message in store.read(item.key)
            if wanted in message.text.casefold()
        ]


def _unknown(key: str) -> str:
    return f"unknown session '{key}'; nanobot sessions list shows all"


def _plain(message: Message) -> str:
    """Return a message as text: role, origin and time, then content and calls."""
    who = message.name if message.role == "tool" and message.name else message.role
    origin = f" from {message.origin}" if message.origin else ""
    calls = [f"↳ {call.name} {call.arguments}" for call in message.tool_calls]
    head = " ".join(part for part in (f"{who}{origin}", _time(message)) if part)
    notes = [
        f"({words} {', '.join(map(str, found))})"
        for key, words in ((CHANGED_BY, "changed by"), (PASSAGES, "after reading"))
        if isinstance(found := message.extra.get(key), list)
    ]
    return "\n".join([head, *([message.text] if message.text else []), *notes, *calls, ""])


def _time(message: Message) -> str:
    return f"{message.timestamp.astimezone():%Y-%m-%d %H:%M}" if message.timestamp else ""


def _snippet(text: str, wanted: str) -> str:
    flat = " ".join(text.split())
    start = max(flat.casefold().find(wanted.casefold()) - SNIPPET_CHARS // 4, 0)
    return flat[start : start + SNIPPET_CHARS]
