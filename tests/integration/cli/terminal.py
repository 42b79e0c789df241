"""The command line on a terminal of its own."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import termios
import time
from collections.abc import Mapping
from types import TracebackType
from typing import Self

LIMIT_S = 30.0
_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07]*\x07|[@-Z\\-_])")


class Terminal:
    """A process on a pseudo-terminal of 100 columns and 40 lines."""

    def __init__(self, command: list[str], environ: Mapping[str, str]) -> None:
        self._pid, self._main = pty.fork()
        if self._pid == 0:
            os.execve(  # noqa: S606 - the point is the terminal, no shell is wanted
                command[0], command, {**environ, "TERM": "xterm-256color"}
            )
        fcntl.ioctl(self._main, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 100, 0, 0))
        self._code: int | None = None
        self._seen = ""
        self._position = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._code is None:
            os.kill(self._pid, signal.SIGKILL)
            os.waitpid(self._pid, 0)
        os.close(self._main)

    def send(self, keys: str) -> None:
        os.write(self._main, keys.encode())

    def expect(self, text: str) -> str:
        """Wait for `text` after what was expected before; return what came until then."""
        end = time.monotonic() + LIMIT_S
        while text not in (fresh := self.shown()[self._position :]):
            if not self._read(end):
                raise AssertionError(f"waited for {text!r}, saw {fresh!r}")
        start = self._position
        self._position += fresh.index(text) + len(text)
        return self.shown()[start : self._position]

    def wait(self) -> int:
        """Return the exit code."""
        end = time.monotonic() + LIMIT_S
        while self._read(end):
            pass
        assert time.monotonic() < end, f"it does not end, saw {self.shown()!r}"
        self._code = os.waitstatus_to_exitcode(os.waitpid(self._pid, 0)[1])
        return self._code

    def shown(self, *, raw: bool = False) -> str:
        """Return all that came, without the sequences that colour it unless `raw`."""
        return self._seen if raw else _ESCAPES.sub("", self._seen)

    def _read(self, end: float) -> bool:
        ready, _, _ = select.select([self._main], [], [], max(end - time.monotonic(), 0))
        if not ready:
            return False
        try:
            data = os.read(self._main, 65_536)
        except OSError:
            return False
        # prompt_toolkit asks where the cursor is and waits a while for the answer.
        if b"\x1b[6n" in data:
            os.write(self._main, b"\x1b[1;1R")
        self._seen += data.decode(errors="replace")
        return bool(data)
