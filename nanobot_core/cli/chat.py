"""``nanobot agent`` on a terminal: a chat."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import WordCompleter
from prompt_toolkit.history import FileHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from rich.text import Text

from nanobot_core._version import __version__
from nanobot_core.cli.backend import Backend, open_backend
from nanobot_core.cli.options import Options
from nanobot_core.cli.output import describe_error, print_error, stdout, warn
from nanobot_core.cli.render import MarkdownView, PlainView, View, print_dim
from nanobot_core.disk import make_folder
from nanobot_core.errors import NanobotError

if TYPE_CHECKING:
    from nanobot_core.cli.agent import ChatOptions

FAREWELLS = frozenset({"exit", "quit", "/exit", "/quit"})
PROMPT = "> "


async def chat(options: Options, chat_options: ChatOptions) -> None:
    """Run a chat until the person leaves with Ctrl-D or ``exit``."""
    view = MarkdownView() if chat_options.markdown else PlainView(0)
    async with open_backend(options, view) as backend, backend.watched():
        _greet(backend, chat_options)
        prompt = _prompt(backend.home / "history", await backend.commands())
        while (text := await _ask(prompt)) is not None:
            if text.strip():
                stdout().print()
                await _take_turn(backend, chat_options, text, view)


async def _ask(prompt: PromptSession[str]) -> str | None:
    """Return the typed text, or ``None`` when the person leaves."""
    try:
        text = await prompt.prompt_async(PROMPT)
    except EOFError:
        return None
    except KeyboardInterrupt:
        print_dim("Ctrl-D or exit to leave")
        return ""
    return None if text.strip().lower() in FAREWELLS else text


async def _take_turn(backend: Backend, chat_options: ChatOptions, text: str, view: View) -> None:
    """Answer `text`. Ctrl-C stops the turn, not the program."""
    loop = asyncio.get_running_loop()
    former = signal.getsignal(signal.SIGINT)
    try:
        async with view.turn(), asyncio.TaskGroup() as group:
            turn = group.create_task(_answered(backend, chat_options, text, view))
            loop.add_signal_handler(signal.SIGINT, turn.cancel)
    finally:
        loop.remove_signal_handler(signal.SIGINT)
        signal.signal(signal.SIGINT, former)
    if turn.cancelled():
        print_dim("stopped; the results so far are kept")


async def _answered(backend: Backend, chat_options: ChatOptions, text: str, view: View) -> None:
    """Answer `text`. Errors, for example of a gateway that restarts, do not end the chat."""
    try:
        await backend.answer(chat_options, text, view)
    except NanobotError as error:
        print_error(describe_error(error))


def _greet(backend: Backend, chat_options: ChatOptions) -> None:
    stdout().print(
        Text.assemble(
            ("nanobot ", "bold"),
            (__version__, "bold"),
            (f"  {backend.who(chat_options)}  {chat_options.session}", "dim"),
        )
    )
    for problem in backend.problems():
        warn(problem)
    print_dim("/help lists commands; Alt-Enter or \\ at the end starts a new line; Ctrl-D leaves\n")


def _prompt(history: Path, commands: Mapping[str, str]) -> PromptSession[str]:
    make_folder(history.parent)
    history.touch(mode=0o600)
    names = {f"/{name}": summary for name, summary in commands.items()}
    return PromptSession(
        history=FileHistory(str(history)),
        completer=WordCompleter(list(names), meta_dict=names, sentence=True),
        complete_while_typing=True,
        multiline=True,
        key_bindings=_bindings(),
        prompt_continuation="  ",
    )


def _bindings() -> KeyBindings:
    bindings = KeyBindings()

    @bindings.add("enter")
    def _send(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        if buffer.document.text_before_cursor.endswith("\\"):
            buffer.delete_before_cursor()
            buffer.insert_text("\n")
        else:
            buffer.validate_and_handle()

    @bindings.add("escape", "enter")
    def _go_on(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text("\n")

    return bindings
