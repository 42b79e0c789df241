"""A process out of file descriptors says so, and does not fill the disk with it."""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from loguru import logger

from nanobot_core.app.logging import EQUAL_S, MAX_EQUAL, MAX_SEEN, _ToLoguru

SERVER = """
import asyncio, os, resource, socket, sys
from pathlib import Path
from loguru import logger
from nanobot_core.app.logging import configure_logging
from nanobot_core.config.loading import load_config

async def main(home):
    loaded = load_config(None, environ={}, home=home)
    configure_logging(loaded, level="INFO", in_thread=True)
    failures = 0
    loop = asyncio.get_running_loop()

    def count(loop, context):
        nonlocal failures
        failures += 1
        loop.default_exception_handler(context)

    loop.set_exception_handler(count)
    server = await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 0)
    caller = socket.socket()
    caller.setblocking(False)
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) + 8,) * 2)
    taken = []
    try:
        while True:
            taken.append(os.open("/dev/null", os.O_RDONLY))
    except OSError:
        pass
    caller.connect_ex(server.sockets[0].getsockname())
    async with asyncio.timeout(30):
        while failures < 50:
            await asyncio.sleep(0)
    logger.remove()  # writes what waits
    print(failures)

asyncio.run(main(Path(sys.argv[1])))
"""


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="counts open files in /proc")
def test_a_socket_that_cannot_accept_is_told_a_few_times(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SERVER, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert int(done.stdout) >= 50
    assert done.stderr.count("ERROR    library=asyncio") == MAX_EQUAL
    # The log file could not be opened either.
    assert done.stderr.count("lines were not logged: [Errno 24]") <= 1
    assert "Logging error in Loguru Handler" not in done.stderr


@pytest.fixture
def told() -> Iterator[list[str]]:
    """What the log gets."""
    lines: list[str] = []
    logger.remove()
    logger.add(lambda text: lines.append(text.record["message"]), format="{message}")
    yield lines
    logger.remove()
    logger.add(sys.stderr)


def record(text: str, level: int = logging.ERROR) -> logging.LogRecord:
    return logging.LogRecord("library", level, "file", 1, text, None, None)


def test_what_was_left_out_is_counted_in_the_next_one(told: list[str]) -> None:
    now_s = 0.0
    handler = _ToLoguru(lambda: now_s)
    for _ in range(100):
        handler.emit(record("no more files"))
    handler.emit(record("something else"))
    now_s = EQUAL_S
    handler.emit(record("no more files"))
    left_out = 100 - MAX_EQUAL
    assert told == [
        *["no more files"] * MAX_EQUAL,
        "something else",
        f"no more files\n({left_out} more like this were left out of the log)",
    ]


def test_what_is_no_warning_is_never_left_out(told: list[str]) -> None:
    handler = _ToLoguru()
    for _ in range(100):
        handler.emit(record("GET /", logging.INFO))
    assert len(told) == 100


def test_the_memory_of_what_was_told_is_bounded(told: list[str]) -> None:
    handler = _ToLoguru()
    for number in range(3 * MAX_SEEN):
        handler.emit(record(str(number)))
    assert len(told) == 3 * MAX_SEEN
    assert len(handler._seen) == MAX_SEEN
