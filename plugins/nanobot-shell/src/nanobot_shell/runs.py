"""Runs: which commands a process started, and ending those of a process that is gone.

Each process that starts commands has a run: an id that all its commands carry in their environment,
a file that it keeps locked, and a folder for what its commands need. The kernel unlocks the file
when the process ends, however it ends, and at the next start what still carries the id is ended.
An id is never used twice, so it says more of a process than its number does.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import uuid
from contextlib import suppress
from pathlib import Path

from nanobot_shell.marker import end_marked

_LOCK = ".lock"


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
