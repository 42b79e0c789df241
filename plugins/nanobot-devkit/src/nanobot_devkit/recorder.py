"""The plugin that writes hook calls to a file, for as long as ``nanobot plugins record`` runs."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from nanobot_core import HookCalled, PluginContext, StopCause, on
from nanobot_core.testing import call_line, header_line

LIMIT_BYTES: Final = 100_000_000
"""Size at which a recording ends."""
_FLAGS: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC


class Recorder:
    """Writes each call as one line, so that a killed program loses at most the last one.

    If the disk is full or the file has reached its limit, recording ends and the program continues.

    Args:
        file: the recording; must not exist.
        limit_bytes: most bytes to write.
    """

    def __init__(self, file: Path, limit_bytes: int = LIMIT_BYTES) -> None:
        self._file = file
        self._limit_bytes = limit_bytes
        self._handle = -1
        self._written = 0
        self._ctx: PluginContext | None = None

    @on.start
    def start(self, ctx: PluginContext) -> None:
        """Create the file, readable by its owner only."""
        self._ctx = ctx
        try:
            self._handle = os.open(self._file, _FLAGS, 0o600)
        except FileExistsError:
            reason = "another process of nanobot, or an earlier start of this one, writes it"
            log = ctx.logger.warning
            log("not recording to '{}': {}", self._file, reason)
            return
        self._write(header_line())

    @on.after_hook(blocking=True)
    def after_hook(self, event: HookCalled) -> None:
        """Write a call."""
        if self._ctx is None or self._handle < 0:
            return
        line = call_line(event, self._ctx.redact)
        if self._written + len(line) > self._limit_bytes:
            self._write(f'{{"ended": "it has reached its limit of {self._limit_bytes} bytes"}}\n')
            self._end(f"the file has reached its limit of {self._limit_bytes} bytes")
        else:
            self._write(line)

    @on.stop
    def stop(self, ctx: PluginContext, reason: StopCause) -> None:
        """Close the file."""
        self._close()

    def _write(self, line: str) -> None:
        data = line.encode("ascii")
        try:
            rest = data
            while rest:
                rest = rest[os.write(self._handle, rest) :]
        except OSError as error:
            os.ftruncate(self._handle, self._written)  # without the part of the line that fitted
            self._end(str(error))
        else:
            self._written += len(data)

    def _end(self, reason: str) -> None:
        if self._ctx is not None:
            log = self._ctx.logger.error
            log("recording to '{}' has ended: {}", self._file, reason)
        self._close()

    def _close(self) -> None:
        handle, self._handle = self._handle, -1
        if handle >= 0:
            os.close(handle)
