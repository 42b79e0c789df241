"""The process of a server, which is ended with its descendants, and its log."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from asyncio.subprocess import Process, SubprocessStreamProtocol
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from subprocess import PIPE

import anyio
import anyio.lowlevel


class ServerLog:
    """A log of two files, each of at most `max_bytes`: the current one, and the one before it.

    Args:
        path: the current file. The previous one has the suffix ``.1``.
    """

    def __init__(self, path: Path, max_bytes: int) -> None:
        self.path = path
        self._max_bytes = max_bytes
        # Two successive connections of a server can write in different threads.
        self._writing = threading.Lock()

    def write(self, data: bytes) -> None:
        """Append `data`. Blocks; `data` is lost if the file cannot be written."""
        with self._writing:
            try:
                self._append(data[-self._max_bytes :])
            except OSError:
                return

    def _append(self, data: bytes) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        size = self.path.stat().st_size if self.path.exists() else 0
        if size and size + len(data) > self._max_bytes:
            self.path.replace(self.path.with_name(f"{self.path.name}.1"))
        descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        with os.fdopen(descriptor, "ab") as file:
            file.write(data)


ENDING_S = 1.5
"""Seconds from closing its input until a server is terminated, and from then until it is killed.

Together they are less than the five seconds that the host allows a plugin's tasks."""

_POLL_S = 0.02
_CHUNK_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class Command:
    """A program to start.

    Attributes:
        words: program and arguments.
        environment: all variables that it gets.
        folder: where it runs.
        greeting: written to its input before MCP begins.
    """

    words: Sequence[str]
    environment: Mapping[str, str]
    folder: Path
    greeting: bytes = field(default=b"", repr=False)


class ServerProcess:
    """A running server with its pipes; `start_process` creates it.

    Args:
        transport: the event loop's handle of the process. Only closing it closes pipes that a
            process of another group still holds open.
    """

    def __init__(
        self, transport: asyncio.SubprocessTransport, protocol: SubprocessStreamProtocol
    ) -> None:
        self._transport = transport
        self._process = Process(transport, protocol, asyncio.get_running_loop())

    @property
    def exit_code(self) -> int | None:
        """Exit code, negative signal number, or ``None`` while it is running."""
        return self._process.returncode

    async def read_output(self) -> bytes:
        """Return the next bytes of standard output; empty at its end."""
        return await _next_chunk(self._process.stdout)

    async def read_errors(self) -> bytes:
        """Return the next bytes of standard error; empty at its end."""
        return await _next_chunk(self._process.stderr)

    async def write(self, data: bytes) -> bool:
        """Write to standard input; return False if it is closed."""
        stdin = self._process.stdin
        if stdin is None or stdin.is_closing():
            return False
        try:
            stdin.write(data)
            await stdin.drain()
        except OSError:
            return False
        return True

    async def wait_for_exit(self, limit_s: float) -> None:
        """Wait until the process has ended, for at most `limit_s`."""
        # `Process.wait` also waits for the pipes, which a grandchild may hold open.
        with anyio.move_on_after(limit_s):
            while self.exit_code is None:  # noqa: ASYNC110 - see above
                await anyio.sleep(_POLL_S)

    async def end(self, patience_s: float = ENDING_S) -> None:
        """Close its input, wait, then end its process group. Processes that left the group remain.

        The order is that of the MCP specification (lifecycle, shutdown). The group is ended even
        if its leader has exited, because children of the leader may still be running.

        Args:
            patience_s: seconds to wait for it to exit.

        Cancellation:
            The group is killed immediately.
        """
        group = self._process.pid
        try:
            # If the caller is cancelled, the process must still end. Every wait here is bounded.
            with anyio.CancelScope(shield=True):
                if self._process.stdin is not None:
                    self._process.stdin.close()
                await self.wait_for_exit(patience_s)
                if _signal_group(group, signal.SIGTERM):
                    await _wait_for_group(group)
        finally:
            _signal_group(group, signal.SIGKILL)
        with anyio.CancelScope(shield=True):
            await self.wait_for_exit(ENDING_S)
            self._transport.close()
            # The loop closes the pipes in its next iteration.
            await anyio.lowlevel.checkpoint()


async def start_process(command: Command) -> ServerProcess:
    """Start `command` in a new session, with pipes.

    Raises:
        OSError: the program or folder does not exist, or the program cannot be run.
        ValueError: a word contains a NUL.
    """
    loop = asyncio.get_running_loop()
    transport, protocol = await loop.subprocess_exec(
        lambda: SubprocessStreamProtocol(limit=_CHUNK_BYTES, loop=loop),
        *command.words,
        stdin=PIPE,
        stdout=PIPE,
        stderr=PIPE,
        env=dict(command.environment),
        cwd=command.folder,
        start_new_session=True,
    )
    return ServerProcess(transport, protocol)


async def _next_chunk(stream: asyncio.StreamReader | None) -> bytes:
    try:
        return await stream.read(_CHUNK_BYTES) if stream is not None else b""
    except OSError:
        return b""


async def _wait_for_group(group: int) -> None:
    with anyio.move_on_after(ENDING_S):
        while _signal_group(group, 0):  # noqa: ASYNC110 - the system sends no event
            await anyio.sleep(_POLL_S)


def _signal_group(group: int, number: int) -> bool:
    """Signal the group; return False if it is empty."""
    with suppress(PermissionError):
        try:
            os.killpg(group, number)
        except ProcessLookupError:
            return False
    return True
