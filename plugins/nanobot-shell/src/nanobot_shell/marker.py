"""A marker in the environment of commands, by which all that they started is found and ended."""

from __future__ import annotations

import errno
import os
import signal
import time
from contextlib import suppress
from pathlib import Path

MARKER = "NANOBOT_COMMAND"
"""Variable in the environment of a command by which all its descendants are found."""

_SWEEPS = 50
_STARTING_S = 2.0
_KERNEL_THREADS = "2"
"""Parent of all threads of the kernel, which have no environment either."""
_SWEEP_PAUSE_S = 0.01


def end_marked(marker: str) -> int:
    """Kill all processes whose marker begins with `marker`; return how many. Blocking.

    This finds those that left the process group and those whose parents are gone. Without a
    ``/proc`` the process group is all there is. Two looks in a row must find nothing, because a
    parent may have ended between the listing and the look at it, its child being in neither.
    """
    wanted = f"{MARKER}={marker}".encode()
    ended: set[int] = set()
    clean_looks = 0
    for _ in range(_SWEEPS):
        environments = {pid: _environment_of(pid) for pid in _process_ids()}
        found = [pid for pid, environment in environments.items() if wanted in environment]
        ended.update(pid for pid in found if _kill(pid, wanted))
        if found or any(not each and _is_starting(pid) for pid, each in environments.items()):
            clean_looks = 0
            time.sleep(_SWEEP_PAUSE_S)
            continue
        clean_looks += 1
        if clean_looks == 2:
            break
    return len(ended)


def _kill(pid: int, wanted: bytes) -> bool:
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
            if wanted in _environment_of(pid):
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
