"""Log lines written by a thread, so that nothing that takes them slowly holds an event loop."""

from __future__ import annotations

import copy
import math
import threading
import time
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Final, TextIO

from loguru import logger

from nanobot_core.tasks import LOG_END_S

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from loguru import Logger

GATHER_S: Final = 0.05
"""Seconds from one write to the next. A line that comes after a rest is written at once."""
MAX_WAITING: Final = 10_000
TELL_S: Final = 60.0
"""Seconds from one report of lines that a sink did not take to the next."""


class ThreadedSink:
    """A sink for loguru that hands lines to another one, those of a moment together.

    An event loop that logs must not wait for the reader of the lines: a pipe that nobody reads is
    full one day.

    Beyond `MAX_WAITING` lines, newer ones are dropped, and a warning says how many. Lines that the
    sink refuses, as a full disk does, are dropped too, and a warning every `TELL_S` seconds says
    how many and why. A process that is killed loses what came in its last `GATHER_S` seconds.

    Args:
        writer: a logger without sinks, of which this takes a copy.
        sink: where the lines go.
        now_s: a clock that only goes forward, in seconds.
        **options: what ``loguru.logger.add`` takes beyond format and level.
    """

    def __init__(
        self,
        writer: Logger,
        sink: TextIO | Path,
        *,
        now_s: Callable[[], float] = time.monotonic,
        **options: Any,
    ) -> None:
        self._writer = copy.deepcopy(writer)
        self._writer.add(sink, level=0, format="{message}", catch=False, **options)
        self._waiting: SimpleQueue[str | None] = SimpleQueue()
        self._now_s = now_s
        self._dropped = self._told = self._refused = 0
        self._refusals_told_s = -math.inf
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="nanobot-log", daemon=True)
        self._thread.start()

    def write(self, line: str) -> None:
        """Take a line, line feed included. Never waits."""
        if self._waiting.qsize() < MAX_WAITING:
            self._waiting.put(line)
        else:
            self._dropped += 1

    def stop(self) -> None:
        """Write what waits, for `LOG_END_S` at most, and close the sink."""
        self._stopping.set()
        self._waiting.put(None)
        self._thread.join(LOG_END_S)

    def _run(self) -> None:
        while (line := self._waiting.get()) is not None:
            lines = [line, *self._at_hand()]
            try:
                self._writer.opt(raw=True).info("".join(lines))
            except Exception as error:  # noqa: BLE001 - isolation point: the next lines may pass
                self._tell_refused(len(lines), error)
            self._tell_dropped()
            self._stopping.wait(GATHER_S)
        self._writer.remove()

    def _at_hand(self) -> list[str]:
        lines = []
        with suppress(Empty):
            while (line := self._waiting.get_nowait()) is not None:
                lines.append(line)
            self._waiting.put(None)  # the end, for `_run`
        return lines

    def _tell_refused(self, count: int, error: Exception) -> None:
        # This very sink gets the warning as well, and may refuse it.
        self._refused += count
        is_due = self._now_s() - self._refusals_told_s >= TELL_S
        if is_due and not self._stopping.is_set():
            refused, self._refused = self._refused, 0
            self._refusals_told_s = self._now_s()
            logger.warning("{} lines were not logged: {}", refused, error)

    def _tell_dropped(self) -> None:
        # The code that stops a sink holds the lock that a log call takes.
        dropped = self._dropped - self._told
        if dropped and not self._stopping.is_set():
            self._told += dropped
            logger.warning("{} lines were not logged: what takes them was too slow", dropped)
