"""The lock that admits one gateway to a data folder."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from nanobot_core.disk import make_folder, replace_file
from nanobot_core.errors import NanobotError

PROBE_GRACE_S = 1.0
"""Seconds that a start waits for the lock, which a check for a running gateway holds briefly."""


class GatewayLockError(NanobotError):
    """A gateway cannot use its folder: another one does, or it cannot be written."""


@contextmanager
def gateway_lock(folder: Path) -> Iterator[None]:
    """Hold the lock of a gateway's folder; the system releases it when the process dies.

    Args:
        folder: ``gateway`` in nanobot's home.

    Raises:
        GatewayLockError: another process holds it, or the folder cannot be created or written.
    """
    try:
        make_folder(folder)
        # It may exist with rights for other accounts.
        folder.chmod(0o700)
        lock = _file_lock(folder, PROBE_GRACE_S)
        lock.acquire()
        replace_file(_pid_file(folder), json.dumps({"pid": os.getpid()}))
    except Timeout:
        pid = running_pid(folder)
        which = f"with process id {pid}" if pid else "that has just been started"
        msg = (
            f"a gateway {which} already uses '{folder}'; stop it with nanobot gateway stop, "
            "or give this one its own folder with NANOBOT_HOME"
        )
        raise GatewayLockError(msg) from None
    except OSError as error:
        msg = (
            f"the gateway cannot use '{folder}': {error.strerror or error}; let its account "
            "write there, or name another home with NANOBOT_HOME"
        )
        raise GatewayLockError(msg) from error
    try:
        yield
    finally:
        _pid_file(folder).unlink(missing_ok=True)
        lock.release()


def is_running(folder: Path) -> bool:
    """Whether a gateway uses `folder`; files that a killed one left do not count."""
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
    """Return the process id of the gateway of `folder`; ``None`` if none runs or it is unknown.

    The file of a killed process does not count, because its lock is free.
    """
    if not is_running(folder):
        return None
    try:
        found = json.loads(_pid_file(folder).read_text("utf-8"))["pid"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
    return found if isinstance(found, int) else None


def _file_lock(folder: Path, timeout_s: float) -> FileLock:
    # Another thread releases it than the one that acquired it.
    return FileLock(folder / "lock", timeout=timeout_s, mode=0o600, thread_local=False)


def _pid_file(folder: Path) -> Path:
    return folder / "pid"
