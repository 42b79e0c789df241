"""GatewayLock: one gateway for a data folder."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Self

from filelock import FileLock, Timeout

from nanobot_core.disk import make_folder, replace_file
from nanobot_core.errors import NanobotError
from nanobot_core.record import dataclass

PROBE_GRACE_S = 1.0
"""Seconds that a start waits for the lock, which a check for a running gateway holds briefly."""


class GatewayRunning(NanobotError):
    """Another gateway has the data folder."""

    def __init__(self, folder: Path, pid: int | None) -> None:
        self.folder: Path = folder
        self.pid: int | None = pid
        who = f"with process id {pid}" if pid else "that has just been started"
        super().__init__(
            f"a gateway {who} already works on '{folder}'; stop it with nanobot gateway stop, "
            "or give this one a folder of its own with NANOBOT_HOME"
        )


class FolderUnusable(NanobotError):
    """The gateway cannot write to its folder."""

    def __init__(self, folder: Path, error: OSError) -> None:
        self.folder: Path = folder
        super().__init__(
            f"the gateway cannot work in '{folder}': {error.strerror or error}; let its account "
            "write there, or name another home with NANOBOT_HOME"
        )


@dataclass(frozen=True, slots=True)
class GatewayLock:
    """Held for as long as the gateway runs; the system lets go of it when the process dies.

    Attributes:
        folder: ``gateway`` in nanobot's home.
    """

    folder: Path
    _lock: FileLock

    @classmethod
    def acquire(cls, folder: Path) -> Self:
        """Return the lock of `folder`, held.

        Raises:
            GatewayRunning: another process holds it.
            FolderUnusable: the folder cannot be made or written.
        """
        try:
            make_folder(folder)
            # Others may have made it, with rights that let strangers look in.
            folder.chmod(0o700)
            lock = _file_lock(folder, PROBE_GRACE_S)
            lock.acquire()
            replace_file(_pid_file(folder), json.dumps({"pid": os.getpid()}))
        except Timeout:
            raise GatewayRunning(folder, running_pid(folder)) from None
        except OSError as error:
            raise FolderUnusable(folder, error) from error
        return cls(folder, lock)

    def release(self) -> None:
        """Let another gateway have the folder."""
        _pid_file(self.folder).unlink(missing_ok=True)
        self._lock.release()


def is_running(folder: Path) -> bool:
    """Whether a gateway works on `folder`; what a killed one left behind does not count."""
    if not (folder / "lock").exists():
        return False
    lock = _file_lock(folder, 0)
    try:
        lock.acquire()
    except Timeout:
        return True
    except OSError:
        return False
    lock.release()
    return False


def running_pid(folder: Path) -> int | None:
    """Return the process id of the gateway of `folder`; ``None`` when none runs or it is unknown.

    A file that a killed process left behind is recognised by the lock that nobody holds.
    """
    if not is_running(folder):
        return None
    try:
        found = json.loads(_pid_file(folder).read_text("utf-8"))["pid"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
    return found if isinstance(found, int) else None


def _file_lock(folder: Path, timeout_s: float) -> FileLock:
    # It is released by another thread than the one that acquired it.
    return FileLock(folder / "lock", timeout=timeout_s, mode=0o600, thread_local=False)


def _pid_file(folder: Path) -> Path:
    return folder / "pid"
