"""A command as a process tree that is read in bounded memory and ends as a whole."""

from __future__ import annotations

import asyncio
import os
import signal
import time
import uuid
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from nanobot_shell.capture import Capture
from nanobot_shell.pipes import Pipes

if TYPE_CHECKING:
    from asyncio.subprocess import Process

MARKER = "NANOBOT_COMMAND"
"""Variable in the environment of a command by which all its descendants are found."""

TERMINATE_GRACE_S = 0.5
DRAIN_LIMIT_S = 1.0
_SWEEPS = 50
_STARTING_S = 2.0
_KERNEL_THREADS = "2"
"""Parent of all threads of the kernel, which have no environment either."""
_SWEEP_PAUSE_S = 0.01


@dataclass(frozen=True, slots=True)
class Launch:
    """What to start.

    Attributes:
        argv: program and arguments.
        working_dir: folder to start in, absolute.
        environment: the whole environment of the command.
        max_chars: characters of each stream that may be asked for later.
        with_input: the command may be written to.
    """

    argv: list[str]
    working_dir: Path
    environment: Mapping[str, str]
    max_chars: int
    with_input: bool = False


class CommandProcess:
    """A started command. Made by `start_command`; `finish` must be awaited once."""

    def __init__(self, process: Process, marker: str, pipes: Pipes, max_chars: int) -> None:
        self._process = process
        self._marker = marker
        self._pipes = pipes
        self._max_chars = max_chars
        self._is_ended = False
        self.timed_out = False
        self.stdout = Capture(max_chars)
        self.stderr = Capture(max_chars)

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
            await asyncio.to_thread(end_marked, self._marker)
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
    marker = uuid.uuid4().hex
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
        except asyncio.CancelledError:
            # The shell may have started before the cancellation arrived, and so its children.
            await asyncio.to_thread(end_marked, marker)
            raise
    return CommandProcess(process, marker, pipes, launch.max_chars)


def end_marked(marker: str) -> None:
    """Kill all processes that carry `marker` in their environment; blocking.

    This finds those that left the process group and those whose parents are gone. Without a
    ``/proc`` the process group is all there is. Two looks in a row must find nothing, because a
    parent may have ended between the listing and the look at it, its child being in neither.
    """
    wanted = f"{MARKER}={marker}".encode()
    clean_looks = 0
    for _ in range(_SWEEPS):
        environments = {pid: _environment_of(pid) for pid in _process_ids()}
        found = [pid for pid, environment in environments.items() if wanted in environment]
        for pid in found:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        if found or any(not each and _is_starting(pid) for pid, each in environments.items()):
            clean_looks = 0
            time.sleep(_SWEEP_PAUSE_S)
            continue
        clean_looks += 1
        if clean_looks == 2:
            return


def _process_ids() -> list[int]:
    try:
        return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]
    except OSError:
        return []


def _environment_of(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return b""


def _is_starting(pid: int) -> bool:
    """Whether the process may be inside ``exec``, where it has no environment for a moment."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return False
    # proc(5): state, parent and, 19 fields behind the state, the start in ticks since boot.
    state, parent, started = fields[0], fields[1], int(fields[19])
    age_s = time.clock_gettime(time.CLOCK_BOOTTIME) - started / os.sysconf("SC_CLK_TCK")
    return state not in "ZX" and parent != _KERNEL_THREADS and age_s < _STARTING_S
