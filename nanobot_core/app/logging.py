"""Where log records go: a person's terminal, and a file that rotates.

Every record is masked as a whole, traceback included, before it is written anywhere.
"""

from __future__ import annotations

import copy
import json
import logging
import os
import re
import sys
import time
import traceback
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from loguru import logger

from nanobot_core.app.log_thread import ThreadedSink
from nanobot_core.config.secrets import MASK
from nanobot_core.disk import make_folder

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path
    from types import TracebackType
    from typing import TextIO

    from loguru import Record

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
"""Libraries that log the address of each request, which may hold a token, at INFO or DEBUG."""
_FIELDS = ("plugin", "session", "turn", "library")
_CREDENTIALS = re.compile(r"(?i)\b(bearer|basic)\s+[\w.~+/=-]{8,}")


def configure_logging(loaded: LoadedConfig, *, level: str | None, in_thread: bool = False) -> None:
    """Send the records of loguru and of the standard library to stderr and to the log file.

    May be called again; the last call counts. Where the file cannot be written there is none.
    Tracebacks of errors that end the process are masked too.

    Args:
        loaded: says what the file gets, and which texts are secret.
        level: least level for stderr; ``None`` is for a person who runs one command: warnings in
            short, without those on turns, whose outcome the command tells itself.
        in_thread: whether a thread writes, so that no terminal or disk can block the caller.
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
            make_folder(file.parent)  # before loguru does, which lets others read it
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

    def tell_end(
        kind: type[BaseException], error: BaseException, trace: TracebackType | None
    ) -> None:
        text = "".join(traceback.format_exception(kind, error, trace))
        sys.stderr.write(_masked(text, loaded.redactor))

    sys.excepthook = tell_end


def quiet_unless_configured() -> None:
    """Log only warnings and errors of nanobot unless a sink is configured.

    Records of the program itself appear as before.
    """
    try:
        logger.remove(0)  # the sink that loguru begins with
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
    """A line for a person who runs one command."""
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
    # An id of a stranger must not begin a new line of the log.
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
    """Hands records of the standard library on; of equal ones a few in `EQUAL_S` seconds.

    A process out of file descriptors gets a hundred equal errors with tracebacks from asyncio each
    second and for each listening socket.

    Args:
        now_s: a clock that only goes forward, in seconds.
    """

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._now_s = now_s
        self._seen: dict[tuple[str, str], tuple[float, int]] = {}
        """By library and beginning of the text: since when, and how many came since then."""

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
        """Return how many equal ones were left out so far; ``None`` to leave this one out too."""
        key, now_s = (library, text[:EQUAL_CHARS]), self._now_s()
        since_s, count = self._seen.pop(key, (now_s, 0))
        is_over = now_s - since_s >= EQUAL_S
        # Put back as the newest one.
        self._seen[key] = (now_s, 1) if is_over else (since_s, count + 1)
        if len(self._seen) > MAX_SEEN:
            del self._seen[next(iter(self._seen))]
        if is_over:
            return max(count - MAX_EQUAL, 0)
        return 0 if count < MAX_EQUAL else None
