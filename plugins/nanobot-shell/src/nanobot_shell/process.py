"""A command as a process tree that is read in bounded memory and ends as a whole."""

from __future__ import annotations

import asyncio
import os
import signal
import uuid
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from nanobot_shell.capture import Capture
from nanobot_shell.marker import MARKER, end_marked
from nanobot_shell.pipes import Pipes

if TYPE_CHECKING:
    from asyncio.subprocess import Process

TERMINATE_GRACE_S = 0.5
DRAIN_LIMIT_S = 1.0


@dataclass(frozen=True, slots=True)
class Launch:
    """What to start.

    Attributes:
        argv: program and arguments.
        working_dir: folder to start in, absolute.
        environment: the whole environment of the command.
        max_chars: characters of each stream that may be asked for later.
        run_id: run that the command belongs to; see `nanobot_shell.runs`.
        with_input: the command may be written to.
        clean: called in a thread when nothing of the command is left.
    """

    argv: list[str]
    working_dir: Path
    environment: Mapping[str, str]
    max_chars: int
    run_id: str = ""
    with_input: bool = False
    clean: Callable[[], None] | None = None


class CommandProcess:
    """A started command. Made by `start_command`; `finish` must be awaited once."""

    def __init__(self, process: Process, marker: str, pipes: Pipes, launch: Launch) -> None:
        self._process = process
        self._marker = marker
        self._pipes = pipes
        self._max_chars = launch.max_chars
        self._clean = launch.clean
        self._is_ended = False
        self.timed_out = False
        self.stdout = Capture(launch.max_chars)
        self.stderr = Capture(launch.max_chars)

    @property
    def exit_code(self) -> int | None:
        """Exit code, negative for a signal; ``None`` while the command runs."""
        return self._process.returncode

    async def finish(self, limit_s: float | None = None) -> None:
        """Read the output until the command ends, then end whatever it left behind.

        Args:
            limit_s: seconds until it is ended by force; ``None`` waits for as long as it runs.

        Cancellation:
            The whole process tree is gone when the cancellation is passed on.
        """
        try:
            async with asyncio.TaskGroup() as group:
                reading = group.create_task(
                    self._pipes.read_all(self._take_stdout, self._take_stderr)
                )
                self.timed_out = not await self._ends_within(limit_s)
                await self.end()
                # Whoever hides from the sweep may hold the pipes open for ever.
                await asyncio.wait([reading], timeout=DRAIN_LIMIT_S)
                reading.cancel()
        finally:
            self._pipes.close()
            await self.end()

    async def end(self) -> None:
        """End the process tree: SIGTERM, a short grace, SIGKILL. Safe to call again."""
        if self._is_ended:
            return
        try:
            if self.exit_code is None:
                self._signal(signal.SIGTERM)
                await self._ends_within(TERMINATE_GRACE_S)
        finally:
            self._signal(signal.SIGKILL)
            await asyncio.to_thread(_end_all, self._marker, self._clean)
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
        self.stdout, self.stderr = Capture(self._max_chars), Capture(self._max_chars)
        return taken

    async def _ends_within(self, limit_s: float | None) -> bool:
        try:
            async with asyncio.timeout(limit_s):
                await self._process.wait()
        except TimeoutError:
            return False
        return True

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
        Nothing of the command is left.
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
            await asyncio.to_thread(_end_all, marker, launch.clean)
            raise
    return CommandProcess(process, marker, pipes, launch)


def _end_all(marker: str, clean: Callable[[], None] | None) -> None:
    end_marked(marker)
    if clean is not None:
        clean()
