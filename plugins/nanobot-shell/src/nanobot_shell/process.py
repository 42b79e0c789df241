"""Runs a command as a process tree, reads its output in bounded memory, and ends all of it."""

from __future__ import annotations

import asyncio
import os
import signal
import uuid
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from nanobot_shell.output import Capture
from nanobot_shell.runs import MARKER, end_marked, end_unmarked

if TYPE_CHECKING:
    from asyncio.subprocess import Process
    from types import TracebackType

TERMINATE_GRACE_S = 0.5
DRAIN_LIMIT_S = 1.0
_CHUNK_BYTES = 65_536


@dataclass(frozen=True, slots=True)
class Launch:
    """What to start.

    Attributes:
        argv: program and arguments.
        working_dir: folder to start in, absolute.
        environment: the whole environment of the command.
        run_id: run that the command belongs to; see `nanobot_shell.runs`.
        with_input: the command has an input that can be written to.
        clean: called in a thread after the command and its descendants have ended.
    """

    argv: list[str]
    working_dir: Path
    environment: Mapping[str, str]
    run_id: str = ""
    with_input: bool = False
    clean: Callable[[], None] | None = None


class CommandProcess:
    """A started command. Made by `start_command`; `finish` must be awaited once."""

    def __init__(self, process: Process, marker: str, pipes: Pipes, launch: Launch) -> None:
        self._process = process
        self._marker = marker
        self._pipes = pipes
        self._clean = launch.clean
        self._is_ended = False
        self.timed_out = False
        self.stdout = Capture()
        self.stderr = Capture()

    @property
    def exit_code(self) -> int | None:
        """Exit code, negative for a signal; ``None`` while the command runs."""
        return self._process.returncode

    async def finish(self, limit_s: float | None = None) -> None:
        """Read the output until the command ends, then end the processes that it left behind.

        Args:
            limit_s: seconds after which the command is ended; ``None`` waits until it ends.

        Cancellation:
            The whole process tree ends before the cancellation propagates.
        """
        try:
            async with asyncio.TaskGroup() as group:
                reading = group.create_task(
                    self._pipes.read_all(self._take_stdout, self._take_stderr)
                )
                self.timed_out = not await self._ends_within(limit_s)
                await self.end()
                # A process that hides from the sweep may hold the pipes open forever.
                await asyncio.wait([reading], timeout=DRAIN_LIMIT_S)
                reading.cancel()
        finally:
            self._pipes.close()
            await self.end()

    async def end(self) -> None:
        """End the process tree: SIGTERM, a short grace, SIGKILL. Can be called again."""
        if self._is_ended:
            return
        try:
            if self.exit_code is None:
                self._signal(signal.SIGTERM)
                await self._ends_within(TERMINATE_GRACE_S)
        finally:
            await asyncio.to_thread(self._end_all)
        self._is_ended = await self._ends_within(DRAIN_LIMIT_S)

    def write(self, data: bytes) -> int:
        """Send `data` to the input and return how many bytes it had room for.

        Raises:
            OSError: the command has no input or no longer reads it.
        """
        return self._pipes.write(data)

    def take_output(self) -> tuple[Capture, Capture]:
        """Return what was printed since the last call, as (stdout, stderr)."""
        taken = self.stdout, self.stderr
        self.stdout, self.stderr = Capture(), Capture()
        return taken

    async def _ends_within(self, limit_s: float | None) -> bool:
        try:
            async with asyncio.timeout(limit_s):
                await self._process.wait()
        except TimeoutError:
            return False
        return True

    def _end_all(self) -> None:
        end_unmarked(self._marker)
        # All at once, so that no shell reports the end of its children.
        self._signal(signal.SIGKILL)
        end_marked(self._marker)
        if self._clean is not None:
            self._clean()

    def _signal(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, number)

    def _take_stdout(self, data: bytes) -> None:
        self.stdout.feed(data)

    def _take_stderr(self, data: bytes) -> None:
        self.stderr.feed(data)


async def start_command(launch: Launch) -> CommandProcess:
    """Start a command in a session of its own.

    Raises:
        OSError: it cannot be started.

    Cancellation:
        The whole process tree ends before the cancellation propagates.
    """
    marker = f"{launch.run_id}-{uuid.uuid4().hex}"
    with Pipes(with_input=launch.with_input) as pipes:
        try:
            process = await asyncio.create_subprocess_exec(
                *launch.argv,
                stdin=pipes.child_stdin,
                stdout=pipes.child_stdout,
                stderr=pipes.child_stderr,
                cwd=launch.working_dir,
                env={**launch.environment, MARKER: marker},
                start_new_session=True,
            )
        except BaseException:
            # The shell may have started before a cancellation arrived, and so its children.
            await asyncio.to_thread(end_marked, marker)
            if launch.clean is not None:
                await asyncio.to_thread(launch.clean)
            raise
    return CommandProcess(process, marker, pipes, launch)


class Pipes:
    """Standard streams of one command: our ends, and within `with` the command's.

    Own pipes rather than those of asyncio's subprocess: there, waiting for a process also waits
    until every holder of its pipes closes them, so one background child would keep a finished
    command waiting.

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

    async def read_all(
        self, take_stdout: Callable[[bytes], None], take_stderr: Callable[[bytes], None]
    ) -> None:
        """Pass on what the command prints as it arrives, until all its pipes are closed."""
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


async def _read(descriptor: int, take: Callable[[bytes], None]) -> None:
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
