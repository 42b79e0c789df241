"""Runs: which commands a process started, and how to end those that outlived the process.

Each process that starts commands has a run: an id that all its commands carry in their environment,
a file that it keeps locked, and a folder for what its commands need. The kernel unlocks the file
when the process ends, however it ends, and at the next start what still carries the id is ended.
An id is never used twice, so it says more of a process than its number does.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import signal
import tempfile
import time
import uuid
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

MARKER = "RUN_BY_NANOBOT"
"""Variable in the environment of a command by which all its descendants are found; without the
prefix of nanobot's own variables, because a command may be nanobot."""

_LOCK = ".lock"
_SWEEPS = 50
_STARTING_S = 2.0
_KERNEL_THREADS = 2
"""Parent of all threads of the kernel, which have no environment either."""
_SWEEP_PAUSE_S = 0.01


def end_marked(marker: str) -> int:
    """Kill all processes whose marker begins with `marker`, and their descendants. Blocking.

    This finds processes that left the process group, that lost their parents, or that have another
    environment than the command. Without a ``/proc`` it finds none. Two looks in a row must find
    nothing, because a parent may have ended between the listing and the look at it, its child being
    in neither.

    Returns:
        How many processes it killed.
    """
    wanted = _variable(marker)
    count = end_unmarked(marker)
    clean_looks = 0
    for _ in range(_SWEEPS):
        environments = _environments()
        found = [pid for pid, environment in environments.items() if wanted in environment]
        count += sum(_kill(pid, wanted=wanted) for pid in found)
        if found or any(not each and _is_starting(pid) for pid, each in environments.items()):
            clean_looks = 0
            time.sleep(_SWEEP_PAUSE_S)
            continue
        clean_looks += 1
        if clean_looks == 2:
            break
    return count


def end_unmarked(marker: str) -> int:
    """Kill descendants of marked processes that have another environment. Blocking.

    They can only be found while a marked ancestor lives, so this comes before `end_marked`.

    Returns:
        How many processes it killed.
    """
    wanted = _variable(marker)
    seen: set[int] = set()
    count = 0
    for look in range(_SWEEPS):
        environments = _environments()
        found = {pid for pid, environment in environments.items() if wanted in environment}
        unmarked = _descendants(found, environments)
        if not unmarked:
            break
        for pid, parent in unmarked.items():
            # At first sight, it may be a process inside ``exec``, which has no environment.
            if pid in seen or look > 2:
                count += _kill(pid, parent=parent)
        seen = set(unmarked)
        time.sleep(_SWEEP_PAUSE_S)
    return count


def _variable(marker: str) -> bytes:
    return f"{MARKER}={marker}".encode()


def _environments() -> dict[int, bytes]:
    return {pid: _environment_of(pid) for pid in _process_ids()}


def _descendants(found: set[int], among: Iterable[int]) -> dict[int, int]:
    """Return the living descendants of `found` that are not in it, with their parents."""
    if not found:
        return {}
    facts = {pid: known for pid in among if (known := _facts_of(pid))}
    family, size = set(found), 0
    while size != len(family):
        size = len(family)
        family.update(pid for pid, known in facts.items() if known.parent in family)
    living = (pid for pid in family - found if facts[pid].state not in "ZX")
    return {pid: facts[pid].parent for pid in living}


def _kill(pid: int, *, wanted: bytes = b"", parent: int | None = None) -> bool:
    """Kill the process if it is still the one that was found, and not one that got its number."""
    with suppress(ProcessLookupError, PermissionError):
        try:
            handle = os.pidfd_open(pid)
        except OSError as error:
            if error.errno != errno.ENOSYS:
                raise
            # Linux before 5.3.
            os.kill(pid, signal.SIGKILL)
            return True
        try:
            known = _facts_of(pid)
            is_same = wanted in _environment_of(pid)
            if is_same and known and parent in {None, known.parent}:
                signal.pidfd_send_signal(handle, signal.SIGKILL)
                return True
        finally:
            os.close(handle)
    return False


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


class _Facts(NamedTuple):
    state: str
    parent: int
    started_s: float
    """Seconds since boot."""


def _facts_of(pid: int) -> _Facts | None:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return None
    # proc(5): state, parent and, 19 fields behind the state, the start in ticks since boot.
    return _Facts(fields[0], int(fields[1]), int(fields[19]) / os.sysconf("SC_CLK_TCK"))


def _is_starting(pid: int) -> bool:
    """Whether the process may be inside ``exec``, where it has no environment for a moment."""
    known = _facts_of(pid)
    if known is None or known.state in "ZX" or known.parent == _KERNEL_THREADS:
        return False
    return time.clock_gettime(time.CLOCK_BOOTTIME) - known.started_s < _STARTING_S


class Run:
    """One process that starts commands; blocking.

    Args:
        folder: where the runs of all processes are kept.
    """

    def __init__(self, folder: Path) -> None:
        self.id: str = uuid.uuid4().hex
        self._folder = folder / self.id
        self._lock_file = folder / f"{self.id}{_LOCK}"
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        # It gets its name when it is locked, so that no other process takes it for an old one.
        unlocked = folder / f"{self.id}.new"
        self._handle = os.open(unlocked, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        unlocked.rename(self._lock_file)

    def make_temporary(self) -> Path:
        """Return a new empty folder."""
        self._folder.mkdir(exist_ok=True, mode=0o700)
        return Path(tempfile.mkdtemp(dir=self._folder)).resolve()

    def close(self) -> None:
        """Remove what the run kept; its commands have ended."""
        shutil.rmtree(self._folder, ignore_errors=True)
        self._lock_file.unlink(missing_ok=True)
        os.close(self._handle)


def end_former_runs(folder: Path) -> int:
    """End the commands of processes that are gone; return how many processes were ended. Blocking.

    Without ``/proc`` none are found.
    """
    count = 0
    for file in folder.glob(f"*{_LOCK}"):
        with suppress(OSError):
            handle = os.open(file, os.O_RDWR | os.O_NOFOLLOW)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                count += end_marked(file.stem)
                shutil.rmtree(file.with_suffix(""), ignore_errors=True)
                file.unlink()
            finally:
                os.close(handle)
    return count
