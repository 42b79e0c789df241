"""The ends of a command's standard streams.

Own pipes rather than those of asyncio's subprocess: there, waiting for a process also waits until
nobody holds its pipes any more, so one background child would keep a finished command waiting.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from contextlib import ExitStack
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import TracebackType

_CHUNK_BYTES = 65_536


class Pipes:
    """Standard streams of one command: our ends, and until `hand_over` the command's.

    Args:
        with_input: give the command an input to write to instead of an empty one.
    """

    def __init__(self, *, with_input: bool) -> None:
        self._ours = ExitStack()
        self._theirs = ExitStack()
        try:
            self._stdout, self.child_stdout = self._pipe()
            self._stderr, self.child_stderr = self._pipe()
            self.child_stdin, self._stdin = self._input(with_input=with_input)
        except OSError:
            self.close()
            raise

    def __enter__(self) -> Pipes:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._theirs.close()
        if kind is not None:
            self.close()

    def close(self) -> None:
        """Close every end that is still open."""
        self._theirs.close()
        self._ours.close()

    async def read_all(self, take_stdout: Sink, take_stderr: Sink) -> None:
        """Hand over what the command prints, as it comes, until nobody can print any more."""
        async with asyncio.TaskGroup() as group:
            group.create_task(_read(self._stdout, take_stdout))
            group.create_task(_read(self._stderr, take_stderr))

    def write(self, data: bytes) -> int:
        """Send `data` and return how many bytes the pipe had room for; never waits.

        Raises:
            OSError: the command has no input or no longer reads it.
        """
        try:
            return os.write(self._stdin, data)
        except BlockingIOError:
            return 0

    def _pipe(self) -> tuple[int, int]:
        read, write = os.pipe()
        self._ours.callback(os.close, read)
        self._theirs.callback(os.close, write)
        os.set_blocking(read, False)
        return read, write

    def _input(self, *, with_input: bool) -> tuple[int, int]:
        if not with_input:
            empty = os.open(os.devnull, os.O_RDONLY)
            self._theirs.callback(os.close, empty)
            return empty, -1
        read, write = os.pipe()
        self._theirs.callback(os.close, read)
        self._ours.callback(os.close, write)
        os.set_blocking(write, False)
        return read, write


Sink = Callable[[bytes], None]


async def _read(descriptor: int, take: Sink) -> None:
    loop = asyncio.get_running_loop()
    while True:
        ready = asyncio.Event()
        loop.add_reader(descriptor, ready.set)
        try:
            await ready.wait()
        finally:
            loop.remove_reader(descriptor)
        data = os.read(descriptor, _CHUNK_BYTES)
        if not data:
            return
        take(data)
