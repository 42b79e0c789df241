"""The process of a server: started apart, logged, and ended with all its descendants."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from asyncio.subprocess import Process, SubprocessStreamProtocol
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from subprocess import PIPE

import anyio
import anyio.lowlevel


class ServerLog:
    """Two files, the present one and the one before it, each of at most `max_bytes`.

    Args:
        path: the present file; the former one has ``.1`` behind its name.
        max_bytes: size at which a new file is started.
    """

    def __init__(self, path: Path, max_bytes: int) -> None:
        self.path = path
        self._max_bytes = max_bytes
        # Two connections of one server follow each other closely, each with a thread that writes.
        self._writing = threading.Lock()

    def write(self, data: bytes) -> None:
        """Append `data`. Blocks; the text is lost if the disk is full."""
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
"""Seconds after its input is closed until a server is terminated, and then until it is killed.

Together they stay below the five seconds that the host grants a plugin's tasks."""

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
    """A running server with its pipes; made by `start_process`.

    Args:
        transport: the event loop's handle of the process. It is kept because closing it is the
            only way to close pipes that a process of another group still holds open.
        protocol: the streams on its pipes.
    """

    def __init__(
        self, transport: asyncio.SubprocessTransport, protocol: SubprocessStreamProtocol
    ) -> None:
        self._transport = transport
        self._process = Process(transport, protocol, asyncio.get_running_loop())

    @property
    def exit_code(self) -> int | None:
        """Exit code, the negative number of the signal, or ``None`` while it runs."""
        return self._process.returncode

    async def read_output(self) -> bytes:
        """Return the next bytes of standard output; empty at its end."""
        return await _next_chunk(self._process.stdout)

    async def read_errors(self) -> bytes:
        """Return the next bytes of standard error; empty at its end."""
        return await _next_chunk(self._process.stderr)

    async def write(self, data: bytes) -> bool:
        """Write to standard input; False if it is closed."""
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
        """Wait until it has ended, or the time is up."""
        # `Process.wait` also waits for the pipes, which a grandchild may hold open.
        with anyio.move_on_after(limit_s):
            while self.exit_code is None:  # noqa: ASYNC110 - see above
                await anyio.sleep(_POLL_S)

    async def end(self, patience_s: float = ENDING_S) -> None:
        """Close its input, wait, then end its whole group; processes that left it remain.

        The order is that of the MCP specification (lifecycle, shutdown). The group is ended even
        when its leader went by itself, since the leader may have left children behind.

        Args:
            patience_s: seconds that it has to end by itself.

        Cancellation:
            The group is killed at once.
        """
        group = self._process.pid
        try:
            # A cancelled caller must not leave the process behind; every wait in here is bounded.
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
            # The loop closes the pipes in its next pass.
            await anyio.lowlevel.checkpoint()


async def start_process(command: Command) -> ServerProcess:
    """Start `command` in a session of its own, with pipes.

    Raises:
        OSError: the program or folder does not exist, or it may not be run.
        ValueError: a word holds a NUL.
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
    """Signal the group; False where it has no member any more."""
    try:
        os.killpg(group, number)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
