"""Log lines that a thread writes."""

from __future__ import annotations

import copy
import errno
import io
import os
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from loguru import logger

from nanobot_core.app import logging as module
from nanobot_core.app.logging import MAX_WAITING, ThreadedSink

if TYPE_CHECKING:
    from loguru import Logger

LINES = 500
LINE = "x" * 999 + "\n"
MANY_BYTES = 1 << 20


@pytest.fixture
def writer() -> Iterator[Logger]:
    """A logger without sinks; the one of the process has none either meanwhile."""
    logger.remove()
    yield copy.deepcopy(logger)
    logger.remove()
    logger.add(sys.stderr)


def test_every_line_is_written_once_and_in_its_order(writer: Logger, tmp_path: Path) -> None:
    sink = ThreadedSink(writer, tmp_path / "log", rotation="10 KB", retention=1000)

    def write(author: int) -> None:
        for number in range(LINES):
            sink.write(f"{author} {number} {{}} <red>\n")

    with ThreadPoolExecutor() as authors:
        list(authors.map(write, range(4)))
    sink.stop()

    files = sorted(tmp_path.iterdir(), key=lambda file: file.stat().st_mtime_ns)
    lines = [line for file in files for line in file.read_text().splitlines()]
    assert len(lines) == 4 * LINES
    for author in range(4):
        own = [line for line in lines if line.startswith(f"{author} ")]
        assert own == [f"{author} {number} {{}} <red>" for number in range(LINES)]


def test_who_logs_never_waits_and_what_is_lost_is_told(writer: Logger) -> None:
    told: list[str] = []
    reader, end = os.pipe()
    with os.fdopen(reader, "rb") as pipe, ThreadPoolExecutor() as threads:
        with os.fdopen(end, "w") as stream:
            sink = ThreadedSink(writer, stream)
            logger.add(lambda text: told.append(text.record["message"]), format="{message}")
            for _ in range(3 * MAX_WAITING):
                sink.write(LINE)
            taken = threads.submit(pipe.read)
            while not told:
                time.sleep(0.001)
            sink.stop()
        written = len(taken.result())

    assert written % len(LINE) == 0
    lost = 3 * MAX_WAITING - written // len(LINE)
    assert told == [f"{lost} lines were not logged, because the log is read or written too slowly"]
    assert lost >= MAX_WAITING


def test_a_sink_that_refuses_lines_is_told_of_now_and_then(
    writer: Logger, capfd: pytest.CaptureFixture[str]
) -> None:
    told: list[str] = []
    seconds = iter([0.0, 0.0, *[1.0] * 40, 100.0, 100.0, *[101.0] * 1000])
    wrote = threading.Semaphore(0)

    class FullDisk(io.StringIO):
        def write(self, text: str, /) -> int:
            wrote.release()
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    sink = ThreadedSink(writer, FullDisk(), now_s=lambda: next(seconds))
    logger.add(lambda text: told.append(text.record["message"]), format="{message}")
    for _ in range(45):
        sink.write(LINE)
        assert wrote.acquire(timeout=5)  # each is refused on its own
    sink.stop()

    reason = "lines were not logged: [Errno 28] No space left on device"
    assert told == [f"1 {reason}", f"41 {reason}"]
    assert capfd.readouterr().err == ""


def test_a_sink_that_hangs_does_not_hold_up_the_end(
    writer: Logger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LOG_END_S", 0.01)
    reader, end = os.pipe()
    with os.fdopen(end, "w") as stream, os.fdopen(reader, "rb", buffering=0) as pipe:
        sink = ThreadedSink(writer, stream)
        for _ in range(LINES):
            sink.write(LINE)
        sink.stop()

        # Taken after all, it is whole.
        left = LINES * len(LINE)
        while left:
            left -= len(pipe.read(MANY_BYTES) or b"")
