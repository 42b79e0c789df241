"""Sends log records to a terminal and to a file that rotates.

Secrets in a record, its traceback included, are masked before it is written.
"""

from __future__ import annotations

import copy
import json
import logging
import math
import os
import re
import sys
import threading
import time
import traceback
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Final

from loguru import logger

from nanobot_core.config.secrets import MASK
from nanobot_core.disk import make_folder
from nanobot_core.tasks import LOG_END_S

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path
    from types import TracebackType
    from typing import TextIO

    from loguru import Logger, Record

    from nanobot_core.config.loading import LoadedConfig
    from nanobot_core.config.secrets import Redactor

ROTATION = "10 MB"
KEPT_FILES = 5
EQUAL_S = 60.0
MAX_EQUAL = 3
"""Equal warnings or errors of a library that are logged in `EQUAL_S` seconds."""
EQUAL_CHARS = 200
MAX_SEEN = 256
_TELLING_URLS = ("httpx", "httpcore", "httpx2", "httpcore2")
"""Libraries that log the URL of each request, which may contain a token, at INFO or DEBUG."""
GATHER_S: Final = 0.05
"""Seconds between writes. A line after a longer pause is written at once."""
MAX_WAITING: Final = 10_000
REPORT_S: Final = 60.0
"""Seconds between reports of lines that a sink refused."""
_FIELDS = ("plugin", "session", "turn", "library")
_CREDENTIALS = re.compile(r"(?i)\b(bearer|basic)\s+[\w.~+/=-]{8,}")


def configure_logging(loaded: LoadedConfig, *, level: str | None, in_thread: bool = False) -> None:
    """Send the records of loguru and of the standard library to stderr and to the log file.

    A later call replaces an earlier one. If the file cannot be written, only stderr is used.
    Tracebacks of errors that end the process are masked too.

    Args:
        loaded: has the level and format of the file, and the secrets.
        level: lowest level on stderr; ``None`` is for a person who runs one command: short
            warnings, without those about turns, whose outcome the command prints itself.
        in_thread: whether a thread writes, so that a terminal or disk cannot block the caller.
    """
    settings = loaded.settings.logging
    logger.remove()
    writer = copy.deepcopy(logger)  # now, because one with sinks cannot be copied

    def wrapped(sink: TextIO | Path, **options: Any) -> Mapping[str, Any]:
        if in_thread:
            return {"sink": ThreadedSink(writer, sink, **options)}
        return {"sink": sink, **options}

    logger.add(
        **wrapped(sys.stderr),
        level=level or "WARNING",
        format=_format(_long if level else _short, loaded.redactor),
        filter=None if level else _concerns_no_turn,
    )
    file = loaded.home / "logs" / "nanobot.log"
    if settings.file and _is_writable(file):
        with suppress(OSError):
            make_folder(file.parent)  # before loguru does, with rights for others
        logger.add(
            **wrapped(
                file,
                rotation=ROTATION,
                retention=KEPT_FILES,
                delay=True,
                encoding="utf-8",
                opener=_open_for_owner,
            ),
            level=settings.level,
            format=_format(_json_line if settings.as_json else _long, loaded.redactor),
        )
    least = min(_number(level or "WARNING"), _number(settings.level))
    logging.basicConfig(handlers=[_ToLoguru()], level=least, force=True)
    for library in _TELLING_URLS:
        logging.getLogger(library).setLevel(logging.WARNING)

    def report_end(
        kind: type[BaseException], error: BaseException, trace: TracebackType | None
    ) -> None:
        text = "".join(traceback.format_exception(kind, error, trace))
        sys.stderr.write(_masked(text, loaded.redactor))

    sys.excepthook = report_end


def quiet_unless_configured() -> None:
    """Log only warnings of nanobot, unless the program or `configure_logging` has set a sink.

    Records of the program itself are unchanged.
    """
    try:
        logger.remove(0)  # loguru's default sink
    except ValueError:
        return
    logger.add(_write_to_stderr, filter=_is_for_a_program)


def _write_to_stderr(line: str) -> None:
    sys.stderr.write(line)


def _is_for_a_program(record: Record) -> bool:
    package = (record["name"] or "").partition(".")[0]
    return not package.startswith("nanobot") or record["level"].no >= _number("WARNING")


def _format(render: Callable[[Record], str], redactor: Redactor) -> Callable[[Record], str]:
    def template(record: Record) -> str:
        record["extra"]["line"] = _masked(render(record), redactor)
        return "{extra[line]}\n"

    return template


def _masked(text: str, redactor: Redactor) -> str:
    return _CREDENTIALS.sub(rf"\1 {MASK}", redactor.mask(text))


def _concerns_no_turn(record: Record) -> bool:
    return "turn" not in record["extra"]


def _short(record: Record) -> str:
    """Return a line for a person who runs one command."""
    plugin = record["extra"].get("plugin")
    origin = f" [{plugin}]" if plugin else ""
    return f"{record['level'].name.capitalize()}{origin}: {record['message']}"


def _long(record: Record) -> str:
    fields = [f"{name}={value}" for name, value in _bound(record).items()]
    head = [f"{record['time']:YYYY-MM-DD HH:mm:ss.SSS}", f"{record['level'].name:<8}", *fields]
    return " ".join([*head, record["message"]]) + _traceback(record)


def _json_line(record: Record) -> str:
    content = {
        "time": record["time"].isoformat(),
        "level": record["level"].name,
        **_bound(record),
        "message": record["message"],
    }
    if record["exception"]:
        content["exception"] = _traceback(record).strip()
    return json.dumps(content, ensure_ascii=False)


def _bound(record: Record) -> dict[str, str]:
    extra = record["extra"]
    # An id from outside must not start a new line of the log.
    return {name: " ".join(str(extra[name]).split()) for name in _FIELDS if extra.get(name)}


def _traceback(record: Record) -> str:
    exception = record["exception"]
    if exception is None:
        return ""
    lines = traceback.format_exception(exception.type, exception.value, exception.traceback)
    return "\n" + "".join(lines).rstrip()


def _number(level: str) -> int:
    return logger.level(level).no


def _is_writable(file: Path) -> bool:
    existing = next(folder for folder in (file, *file.parents) if folder.exists())
    return os.access(existing, os.W_OK)


def _open_for_owner(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


class _ToLoguru(logging.Handler):
    """Passes records of the standard library to loguru; of equal ones a few in `EQUAL_S` seconds.

    In a process that has run out of file descriptors, asyncio logs a hundred equal errors a second
    for each listening socket.

    Args:
        now_s: a monotonic clock, in seconds.
    """

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._now_s = now_s
        self._seen: dict[tuple[str, str], tuple[float, int]] = {}
        """Library and start of the text to the first time and the number of records since then."""

    def emit(self, record: logging.LogRecord) -> None:
        """Log `record` with the name of its library."""
        text = record.getMessage()
        left_out = self._left_out(record.name, text) if record.levelno >= logging.WARNING else 0
        if left_out is None:
            return
        try:
            level: str | int = logger.level(record.levelname).name
        except ValueError:
            level = record.levelno
        bound = logger.bind(library=record.name).opt(exception=record.exc_info)
        if left_out:
            text = f"{text}\n({left_out} more like this were left out of the log)"
        bound.log(level, "{}", text)

    def _left_out(self, library: str, text: str) -> int | None:
        """Return how many equal records were left out; ``None`` leaves this one out too."""
        key, now_s = (library, text[:EQUAL_CHARS]), self._now_s()
        since_s, count = self._seen.pop(key, (now_s, 0))
        is_over = now_s - since_s >= EQUAL_S
        # Put back as the newest entry.
        self._seen[key] = (now_s, 1) if is_over else (since_s, count + 1)
        if len(self._seen) > MAX_SEEN:
            del self._seen[next(iter(self._seen))]
        if is_over:
            return max(count - MAX_EQUAL, 0)
        return 0 if count < MAX_EQUAL else None


class ThreadedSink:
    """A sink for loguru that passes lines to another one in batches.

    An event loop that logs must not wait for the reader of the log, because a pipe without a
    reader fills up.

    If more than `MAX_WAITING` lines are waiting, new ones are dropped, and a warning says how many.
    Lines that the sink refuses, as on a full disk, are dropped too, and a warning every `REPORT_S`
    seconds says how many and why. A killed process loses the lines of its last `GATHER_S` seconds.

    Args:
        writer: a logger without sinks, which is copied.
        sink: receives the lines.
        now_s: a monotonic clock, in seconds.
        **options: arguments of ``loguru.logger.add`` besides format and level.
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
        self._dropped = self._reported = self._refused = 0
        self._refusals_reported_s = -math.inf
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="nanobot-log", daemon=True)
        self._thread.start()

    def write(self, line: str) -> None:
        """Accept a line with its line feed. Never waits."""
        if self._waiting.qsize() < MAX_WAITING:
            self._waiting.put(line)
        else:
            self._dropped += 1

    def stop(self) -> None:
        """Write the waiting lines, for at most `LOG_END_S`, and close the sink."""
        self._stopping.set()
        self._waiting.put(None)
        self._thread.join(LOG_END_S)

    def _run(self) -> None:
        while (line := self._waiting.get()) is not None:
            lines = [line, *self._waiting_lines()]
            try:
                self._writer.opt(raw=True).info("".join(lines))
            except Exception as error:  # noqa: BLE001 - isolation point: the next lines may succeed
                self._report_refused(len(lines), error)
            self._report_dropped()
            self._stopping.wait(GATHER_S)
        self._writer.remove()

    def _waiting_lines(self) -> list[str]:
        lines = []
        with suppress(Empty):
            while (line := self._waiting.get_nowait()) is not None:
                lines.append(line)
            self._waiting.put(None)  # the end, for `_run`
        return lines

    def _report_refused(self, count: int, error: Exception) -> None:
        # This sink receives the warning as well, and may refuse it.
        self._refused += count
        is_due = self._now_s() - self._refusals_reported_s >= REPORT_S
        if is_due and not self._stopping.is_set():
            refused, self._refused = self._refused, 0
            self._refusals_reported_s = self._now_s()
            logger.warning("{} lines were not logged: {}", refused, error)

    def _report_dropped(self) -> None:
        # Code that stops a sink holds the lock that a log call needs.
        dropped = self._dropped - self._reported
        if dropped and not self._stopping.is_set():
            self._reported += dropped
            logger.warning(
                "{} lines were not logged, because the log is read or written too slowly", dropped
            )
