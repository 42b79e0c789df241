"""``nanobot agent``: one message, or a chat."""

from __future__ import annotations

import os
import stat
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from nanobot_core.cli.options import Options, options_of
from nanobot_core.cli.output import fail, print_json, run_async, warn
from nanobot_core.record import dataclass

if TYPE_CHECKING:
    from nanobot_core.cli.render import View
    from nanobot_core.events import TurnOutcome


DEFAULT_SESSION = "cli:direct"
LARGE_INPUT_BYTES = 1_000_000
"""Size of piped input above which a warning is printed."""
MAX_INPUT_BYTES = 16_000_000
"""Size of piped input above which it is refused."""


@dataclass(frozen=True, slots=True)
class ChatOptions:
    """Options of a chat.

    Attributes:
        session: key of the session.
        model: overrides the configured model, unless it is ``None``.
        markdown: format answers on a terminal.
    """

    session: str = DEFAULT_SESSION
    model: str | None = None
    markdown: bool = True


def agent(
    ctx: typer.Context,
    message: Annotated[
        str | None,
        typer.Option("--message", "-m", help="Message to send; without it a chat starts."),
    ] = None,
    session: Annotated[
        str, typer.Option("--session", "-s", help="Session to continue.")
    ] = DEFAULT_SESSION,
    model: Annotated[
        str | None, typer.Option("--model", help="Use this model instead of the configured one.")
    ] = None,
    markdown: Annotated[
        bool, typer.Option("--markdown/--no-markdown", help="Format answers on a terminal.")
    ] = True,
    as_json: Annotated[bool, typer.Option("--json", help="Print the outcome as JSON.")] = False,
) -> None:
    """Send one message with -m or through a pipe, or start a chat.

    For example:

    \b
      nanobot agent                              a chat; press Ctrl-D to leave
      nanobot agent -m "What changed today?"
      git diff | nanobot agent -m "Review this"  standard input is appended to the message
      nanobot agent -s cli:work -m "Go on"       in a separate session
      nanobot agent -m "Count the files" --json  answer, usage and tools for a script
    """  # noqa: D301 - a line of its own with \b keeps the lines below it as they are
    chat_options = ChatOptions(session, model, markdown)
    text = _whole_message(message)
    if text is None:
        if as_json:
            fail("--json needs a message: give one with -m, or through a pipe", 2)
        from nanobot_core.cli.chat import chat

        run_async(chat(options_of(ctx), chat_options))
        return
    if not text.strip():
        fail("the message is empty: give one with -m, or through a pipe", 2)
    outcome = run_async(_answer(options_of(ctx), chat_options, text, as_json=as_json))
    if as_json:
        print_json(_outcome_json(outcome))
    if outcome.error or outcome.stop_reason == "budget":
        raise typer.Exit(1)


async def _answer(
    options: Options, chat_options: ChatOptions, text: str, *, as_json: bool
) -> TurnOutcome:
    from nanobot_core.cli.backend import open_backend
    from nanobot_core.cli.render import HELD_CHARS, MarkdownView, PlainView

    on_terminal = sys.stdout.isatty()
    view: View = PlainView(0 if on_terminal else HELD_CHARS)
    if on_terminal and chat_options.markdown and not as_json:
        view = MarkdownView()
    async with open_backend(options, view) as backend, view.turn():
        return await backend.answer(chat_options, text, None if as_json else view)


def _whole_message(message: str | None) -> str | None:
    """Return the message followed by standard input; ``None`` starts a chat.

    If there is a message, standard input is read only from a pipe or a file: services and
    schedulers start processes with an input that never ends.
    """
    if sys.stdin.isatty():
        return message
    if message is None:
        return _piped_text()
    mode = os.fstat(sys.stdin.fileno()).st_mode
    piped = _piped_text().strip() if stat.S_ISFIFO(mode) or stat.S_ISREG(mode) else ""
    return f"{message}\n\n{piped}" if piped else message


def _piped_text() -> str:
    """Return standard input as text, with U+FFFD for bytes that are not UTF-8."""
    data = sys.stdin.buffer.read(MAX_INPUT_BYTES + 1)
    if len(data) > MAX_INPUT_BYTES:
        fail(
            f"standard input has more than {MAX_INPUT_BYTES // 1_000_000} MB, which is too much; "
            "save it as a file in the workspace and name the file in the message",
            2,
        )
    if len(data) > LARGE_INPUT_BYTES:
        warn(f"all {len(data) / 1_000_000:.1f} MB of standard input are sent to the model")
    text = data.decode("utf-8", errors="replace")
    if text.encode() != data:
        warn("standard input is not UTF-8; invalid bytes are replaced by U+FFFD")
    return text.replace("\r\n", "\n")


def _outcome_json(outcome: TurnOutcome) -> dict[str, object]:
    return {
        "reply": None if outcome.error else outcome.reply,
        "error": outcome.error,
        "stop_reason": outcome.stop_reason,
        "session": outcome.turn.session_key,
        "model": outcome.model,
        "iterations": outcome.iterations,
        "tools_used": list(outcome.tools_used),
        "usage": {**asdict(outcome.usage), "total_tokens": outcome.usage.total_tokens},
        "duration_s": round(outcome.duration_s, 3),
    }
