"""``nanobot plugins dev``: a chat with a plugin that is loaded again on each save."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Protocol

import typer

from nanobot_core import (
    ApprovalRequested,
    JsonValue,
    Nanobot,
    Ticket,
    ToolCallFinished,
    TurnOutcome,
    on,
    shorten,
)
from nanobot_devkit.faults import place_of_import
from nanobot_devkit.overlay import Source, find_source, write_overlay
from nanobot_devkit.program import answer_of
from nanobot_devkit.reloading import Reloader, watch

FAREWELLS = frozenset({"exit", "quit", "/exit", "/quit"})
_ARGUMENT_CHARS = 100


def dev(
    ctx: typer.Context,
    path: Annotated[Path, typer.Argument(metavar="PATH", help="Folder or file of the plugin.")],
    session: Annotated[
        str, typer.Option("--session", "-s", help="Session to continue.")
    ] = "cli:dev",
    model: Annotated[
        str | None, typer.Option("--model", help="Use this model instead of the configured one.")
    ] = None,
) -> None:
    """Chat with a plugin loaded from its source, which is loaded again on each save.

    The plugin need not be installed. Errors of its code are printed as they happen, with file and
    line; if a new version fails, the former one continues. If a gateway runs, the plugin is loaded
    again there, and the chat is wherever you write to the gateway.

    Example: nanobot plugins dev ./nanobot-weather
    """
    source = find_source(path)
    with tempfile.TemporaryDirectory(prefix="nanobot-dev-") as folder:
        if answer_of("gateway", "status") is not None:
            asyncio.run(_reload_in_gateway(source))
            return
        paths = write_overlay(source, Path(folder))
        # The first entry is where the program is, and does not count as a place of plugins.
        sys.path[1:1] = paths
        given = ctx.find_root().params
        config, profile = given.get("config"), given.get("profile")
        bot = Nanobot.from_config(
            config,
            profile=profile,
            without=given.get("without") or (),
            overrides=_overrides(source, config, profile),
        )
        asyncio.run(_develop(bot, source, paths, session, model))


def _overrides(source: Source, config: Path | None, profile: str | None) -> dict[str, JsonValue]:
    """Return the settings with which the plugin is enabled, whatever the policy is."""
    key = "plugins.enabled" if source.project else "plugins.local"
    options = [("--config", config), ("--profile", profile)]
    words = [word for name, value in options if value for word in (name, str(value))]
    found: object = json.loads(answer_of(*words, "config", "get", key, "--json") or "[]")
    listed = [str(each) for each in found] if isinstance(found, list) else []
    own = source.id if source.project else str(source.code)
    return {key: [*listed, own]}


async def _develop(
    bot: Nanobot, source: Source, paths: Sequence[str], session: str, model: str | None
) -> None:
    from loguru import logger

    async with open_terminal() as terminal, bot:
        reloader = Reloader(bot, source, paths, terminal.tell)
        logger.remove()
        logger.add(reloader.show, level="DEBUG", format="{message}")
        await bot.plugins.register(TerminalApproval(terminal), "terminal")
        await reloader.start()
        async with asyncio.TaskGroup() as group:
            watching = group.create_task(watch(source, reloader.reload))
            try:
                await _chat(bot, terminal, session, model)
            finally:
                watching.cancel()


async def _reload_in_gateway(source: Source) -> None:
    """Have the running gateway load the plugin again on each save, until Ctrl-C."""

    def explain(reason: str) -> None:
        paths = [str(source.path)] if source.path else []
        place = place_of_import(source.module, paths, source.code)
        typer.echo(f"{source.id} not loaded: {place}{': ' if place else ''}{reason}")

    async def reload(_changed: object) -> None:
        # The gateway refuses code that does more than its manifest says.
        where = str(source.project or source.code)
        for step in (("plugins", "build", where), ("plugins", "reload", source.id)):
            said = await asyncio.to_thread(answer_of, *step, explain=explain)
            if said is None:
                return
        typer.echo(str(said).strip())

    await reload(())
    typer.echo("the gateway loads it again on each save; Ctrl-C ends this")
    ending = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGINT, ending.set)
    async with asyncio.TaskGroup() as group:
        watching = group.create_task(watch(source, reload))
        await ending.wait()
        watching.cancel()


# --- the chat --------------------------------------------------------------------------------


class Terminal(Protocol):
    """Where the author writes and reads."""

    def tell(self, line: str) -> None:
        """Print a line, above what is being typed."""

    async def ask(self, prompt: str) -> str | None:
        """Return a line; ``None`` at the end."""


class TypedTerminal:
    """A terminal with a person."""

    def __init__(self) -> None:
        from prompt_toolkit import PromptSession

        self._session: PromptSession[str] = PromptSession()

    def tell(self, line: str) -> None:
        """See `Terminal`."""
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()

    async def ask(self, prompt: str) -> str | None:
        """See `Terminal`. Ctrl-C discards what was typed."""
        try:
            return await self._session.prompt_async(prompt)
        except EOFError:
            return None
        except KeyboardInterrupt:
            self.tell("Ctrl-D or exit to leave")
            return ""


class PipedTerminal:
    """Lines of a pipe."""

    def tell(self, line: str) -> None:
        """See `Terminal`."""
        typer.echo(line)

    async def ask(self, prompt: str) -> str | None:
        """See `Terminal`."""
        typer.echo(prompt, nl=False)
        return (await asyncio.to_thread(sys.stdin.readline)).rstrip("\n") or None


@asynccontextmanager
async def open_terminal() -> AsyncIterator[Terminal]:
    """Yield what the standard input is: a terminal with a person, or a pipe."""
    if not sys.stdin.isatty():
        yield PipedTerminal()
        return
    from prompt_toolkit.patch_stdout import patch_stdout

    with patch_stdout(raw=True):
        yield TypedTerminal()


class TerminalApproval:
    """Asks the author about tool calls that need it."""

    def __init__(self, terminal: Terminal) -> None:
        self._terminal = terminal

    @on.choose_approval
    async def choose_approval(self, event: ApprovalRequested) -> Ticket | None:
        """Show the call with its exact arguments, and wait for an answer."""
        self._terminal.tell(event.question)
        self._terminal.tell(f"{event.call.name} {json.dumps(event.call.arguments, indent=2)}")
        said = await self._terminal.ask("Allow it? [y/N] ")
        return Ticket((said or "").strip().lower() in {"y", "yes"}, "terminal")


async def _chat(bot: Nanobot, terminal: Terminal, session: str, model: str | None) -> None:
    loop = asyncio.get_running_loop()
    while (text := await terminal.ask("> ")) is not None:
        if text.strip().lower() in FAREWELLS:
            return
        if not text.strip():
            continue
        async with asyncio.TaskGroup() as group:
            turn = group.create_task(_answer(bot, terminal, text, session, model))
            loop.add_signal_handler(signal.SIGINT, turn.cancel)
        loop.remove_signal_handler(signal.SIGINT)
        if turn.cancelled():
            terminal.tell("stopped")


async def _answer(
    bot: Nanobot, terminal: Terminal, text: str, session: str, model: str | None
) -> None:
    async for event in bot.stream(text, session=session, model=model):
        match event:
            case ToolCallFinished():
                word = "failed" if event.result.is_error else "done"
                arguments = shorten(
                    json.dumps(event.call.arguments, ensure_ascii=False), _ARGUMENT_CHARS
                )
                terminal.tell(f"-> {event.call.name} {arguments}: {word}")
            case TurnOutcome():
                terminal.tell(f"{event.error or event.reply or '(no answer)'}\n")
