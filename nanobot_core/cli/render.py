"""Views of a turn: what a terminal or a pipe shows while the agent works."""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    asynccontextmanager,
    contextmanager,
    nullcontext,
)
from typing import TYPE_CHECKING, Protocol

from nanobot_core.cli.output import print_error, printable, stderr, stdout, write
from nanobot_core.events import (
    MessageSent,
    NoticeGiven,
    ProgressMade,
    RunEvent,
    StreamRestarted,
    TextStreamed,
    ToolCallFinished,
    ToolCallStarted,
    TurnOutcome,
)

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
    from rich.live import Live

    from nanobot_core.messages import OutboundMessage

HELD_CHARS = 400
"""Length from which a pipe gets an answer while it is written, and not only when it is complete.

Text before a tool call is not part of the answer, and looks the same until the call arrives."""
REFRESHES_PER_S = 12
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")


class View(Protocol):
    """Shows turns one after the other, each in ``async with view.turn():``."""

    def turn(self) -> AbstractAsyncContextManager[None]:
        """Show that the agent is working, and release the terminal at the end."""

    async def show(self, event: RunEvent) -> None:
        """Show an event of the turn."""

    def paused(self) -> AbstractContextManager[None]:
        """Release the terminal, for example for a question."""


class PlainView:
    """Shows the answer on stdout; progress, hints and notices on stderr.

    Args:
        held_chars: length up to which text is held back, because it may precede a tool call.
    """

    def __init__(self, held_chars: int = HELD_CHARS) -> None:
        self._held_chars = held_chars
        self._held = ""
        self._written: list[str] = []

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """See `View.turn`."""
        yield

    async def show(self, event: RunEvent) -> None:
        """See `View.show`."""
        match event:
            case TextStreamed():
                self._held += event.text
                if self._written or len(self._held) > self._held_chars:
                    self._write(self._held)
                    self._held = ""
            case ProgressMade():
                self._begin_again()
                print_dim(event.text)
            case ToolCallStarted():
                self._begin_again()
                print_dim(f"↳ {event.hint}")
            case StreamRestarted():
                self._begin_again()
                print_dim(f"{event.reason}; the answer begins again")
            case NoticeGiven():
                print_dim(event.text)
            case MessageSent():
                self._begin_again()
                self._write(f"{_message_text(event.message)}\n\n")
                self._written.clear()
            case TurnOutcome():
                self._finish(event)

    def paused(self) -> AbstractContextManager[None]:
        """See `View.paused`."""
        return nullcontext()

    def _begin_again(self) -> None:
        if self._written:
            self._write("\n\n")
        self._held = ""
        self._written.clear()

    def _finish(self, outcome: TurnOutcome) -> None:
        reply = "" if outcome.error else outcome.reply or ""
        written = "".join(self._written)
        if not reply.startswith(written.rstrip()):
            self._begin_again()
            written = ""
        rest = reply[len(written) :]
        if written or rest:
            self._write(rest if (written + rest).endswith("\n") else f"{rest}\n")
        self._held = ""
        self._written.clear()
        report_failure(outcome)

    def _write(self, text: str) -> None:
        write(printable(text) if sys.stdout.isatty() else text)
        self._written.append(text)


class MarkdownView:
    """Shows growing Markdown on a terminal: complete passages stay, the last one is redrawn."""

    def __init__(self) -> None:
        self._live: Live | None = None
        self._passages = Passages()
        self._streamed: list[str] = []
        self._doing = "thinking"

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """See `View.turn`."""
        self._streamed.clear()
        self._doing = "thinking"
        self._start()
        async with asyncio.TaskGroup() as group:
            ticks = group.create_task(self._tick())
            try:
                yield
            finally:
                ticks.cancel()
                self._stop()

    async def show(self, event: RunEvent) -> None:
        """See `View.show`."""
        match event:
            case TextStreamed():
                self._grow(printable(event.text))
            case ProgressMade():
                said = self._end_passage()
                if event.text.strip() != said:
                    print_dim(event.text)
            case ToolCallStarted():
                self._end_passage()
                print_dim(f"↳ {event.hint}")
                self._doing = f"running {event.call.name}"
            case ToolCallFinished():
                if event.result.is_error:
                    print_dim(f"  {event.call.name} failed: {_first_line(event.result.text)}")
                self._doing = "thinking"
            case StreamRestarted():
                self._passages.take_rest()
                self._streamed.clear()
                print_dim(f"{event.reason}; the answer begins again")
            case NoticeGiven():
                print_dim(event.text)
            case MessageSent():
                self._end_passage()
                self._print(printable(_message_text(event.message)))
            case TurnOutcome():
                self._finish(event)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """See `View.paused`."""
        self._end_passage()
        self._stop()
        try:
            yield
        finally:
            self._start()

    def _start(self) -> None:
        from rich.live import Live

        self._live = Live(
            get_renderable=self._render, console=stdout(), auto_refresh=False, transient=True
        )
        self._live.start(refresh=True)

    async def _tick(self) -> None:
        """Redraw from the loop, because rich's thread would draw between two of our prints."""
        while True:
            await asyncio.sleep(1 / REFRESHES_PER_S)
            if self._live is not None:
                self._live.refresh()

    def _stop(self) -> None:
        self._print(self._passages.take_rest())
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _render(self) -> RenderableType:
        """Return the last passage; if it is higher than the screen, its end without formatting."""
        from rich.spinner import Spinner
        from rich.text import Text

        tail = self._passages.rest
        if not tail.strip():
            return Spinner("dots", text=Text(f"{self._doing} …", style="dim"), style="dim")
        lines = tail.splitlines()
        room = max(stdout().height - 2, 1)
        if len(lines) > room:
            return Text("\n".join(lines[-room:]))
        return Passage(tail)

    def _grow(self, text: str) -> None:
        self._streamed.append(text)
        self._print(self._passages.feed(text))

    def _end_passage(self) -> str:
        """Print the rest of the passage, and return the text since the last call."""
        self._print(self._passages.take_rest())
        said = "".join(self._streamed).strip()
        self._streamed.clear()
        return said

    def _finish(self, outcome: TurnOutcome) -> None:
        said = self._end_passage()
        reply = "" if outcome.error else (outcome.reply or "").strip()
        self._stop()
        if reply != said and not said.endswith(reply):
            self._print(printable(reply))
        report_failure(outcome)

    def _print(self, text: str) -> None:
        if text.strip():
            stdout().print(Passage(text))
            stdout().print()


class Passages:
    """Divides growing Markdown into passages, at blank lines outside code blocks.

    Each line is read once.
    """

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._open: list[str] = []
        self._fence = ""

    @property
    def rest(self) -> str:
        """The last, incomplete passage."""
        return "".join([*self._lines, *self._open])

    def feed(self, text: str) -> str:
        """Return the passages that `text` completes."""
        whole: list[str] = []
        for piece in text.splitlines(keepends=True):
            self._open.append(piece)
            if not piece.endswith("\n"):
                continue
            line = "".join(self._open)
            self._open.clear()
            self._lines.append(line)
            if self._ends_passage(line):
                whole += self._lines
                self._lines.clear()
        return "".join(whole)

    def take_rest(self) -> str:
        """Return `rest` and start again."""
        rest = self.rest
        self._lines.clear()
        self._open.clear()
        self._fence = ""
        return rest

    def _ends_passage(self, line: str) -> bool:
        mark = _FENCE.match(line)
        if self._fence:
            if mark and mark[1].startswith(self._fence):
                self._fence = ""
            return False
        if mark:
            self._fence = mark[1]
        return not line.strip()


class Passage:
    """Formatted Markdown without blank lines around it and with visible URLs."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Render the lines between the first and the last that are not blank."""
        from rich.cells import cell_len
        from rich.markdown import Markdown
        from rich.segment import Segment

        formatted = Markdown(self._text, code_theme="ansi_dark", hyperlinks=False)
        lines = console.render_lines(formatted, options, pad=False)
        texts = ["".join(part.text for part in line).rstrip() for line in lines]
        filled = [index for index, text in enumerate(texts) if text]
        for index in range(filled[0], filled[-1] + 1) if filled else ():
            yield from Segment.adjust_line_length(lines[index], cell_len(texts[index]), pad=False)
            yield Segment.line()


def print_dim(text: str) -> None:
    """Print a hint or a notice on stderr."""
    write("")  # the answer so far appears first
    if sys.stderr.isatty():
        from rich.text import Text

        # The live display belongs to the console of stdout: printing there keeps the two apart.
        console = stdout() if sys.stdout.isatty() else stderr()
        console.print(Text(printable(text), style="dim"))
    else:
        print(text, file=sys.stderr, flush=True)


def report_failure(outcome: TurnOutcome) -> None:
    """Print the error of a turn, if it has one."""
    if outcome.error:
        print_error(outcome.error)


def _message_text(message: OutboundMessage) -> str:
    """Return the text of a message from a tool, with the paths of its files."""
    files = [f"File: {path}" for path in message.media]
    return "\n".join([*([message.content] if message.content else []), *files])


def _first_line(text: str) -> str:
    return next(iter(text.strip().splitlines()), "")[:120]
