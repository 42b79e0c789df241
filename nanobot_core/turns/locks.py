"""SessionLocks: one turn of a session at a time, across processes."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

from nanobot_core.disk import make_folder
from nanobot_core.errors import SessionError
from nanobot_core.ids import new_id
from nanobot_core.sessions.folder import safe_name
from nanobot_core.sessions.session import KeyedLocks, Sessions

if TYPE_CHECKING:
    from pathlib import Path

WAIT_STEP_S = 0.05
WAIT_LIMIT_S = 600.0
"""Seconds that a message waits for the turn of another process."""


class SessionLocks:
    """Lets turns of one session run one after another.

    Each session has a file. Its lock belongs to the process with a turn of the session, and its
    content names the process that had the last turn: if that was another one, the session is read
    again. The system releases the lock of a process that dies. A file stays as long as its session:
    without its content every turn would read the session again.

    Args:
        folder: has the files; created when first used.
        sessions: the sessions of this process.
    """

    def __init__(self, folder: Path, sessions: Sessions) -> None:
        self._folder = folder
        self._sessions = sessions
        self._order = KeyedLocks()
        self._me = new_id().encode()

    def is_held(self, key: str) -> bool:
        """Whether a turn of the session runs or waits in this process."""
        return self._order.is_held(key)

    @asynccontextmanager
    async def hold(self, key: str) -> AsyncIterator[None]:
        """Wait for the other turns of a session, and keep them out for the duration of the block.

        Raises:
            SessionError: another process did not release it in time, or the file cannot be used.
        """
        async with self._order.hold(key):
            file = await self._locked(key)
            try:
                self._become_last(file, key)
                yield
            finally:
                os.close(file)  # releases the lock

    def discard(self, key: str) -> None:
        """Remove the file of a session that was deleted, whose lock the caller holds."""
        with suppress(OSError):  # it does no harm
            (self._folder / safe_name(key)).unlink()

    async def _locked(self, key: str) -> int:
        """Return the file of a session, locked."""
        while True:
            try:
                file = self._open(key)
            except OSError as error:
                raise SessionError(key, f"cannot lock it: {error}") from error
            try:
                await self._lock(file, key)
                if self._is_present(file, key):
                    return file
            except BaseException:
                os.close(file)
                raise
            # The session was deleted meanwhile: the lock of a removed file keeps no process out.
            os.close(file)

    def _is_present(self, file: int, key: str) -> bool:
        try:
            found = (self._folder / safe_name(key)).lstat()
        except OSError:
            return False
        return os.path.samestat(found, os.fstat(file))

    def _open(self, key: str) -> int:
        path, flags = self._folder / safe_name(key), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW
        with suppress(FileNotFoundError):
            return os.open(path, flags, 0o600)
        make_folder(self._folder)
        return os.open(path, flags, 0o600)

    def _become_last(self, file: int, key: str) -> None:
        """Name this process as the last one; read the session again if it was another one."""
        try:
            if os.pread(file, len(self._me) + 1, 0) == self._me:
                return
            self._sessions.forget(key)
            os.ftruncate(file, 0)
        except OSError as error:
            raise SessionError(key, f"cannot lock it: {error}") from error
        # On a full disk the name is missing, and the next turn reads the session again.
        with suppress(OSError):
            os.pwrite(file, self._me, 0)

    async def _lock(self, file: int, key: str) -> None:
        if _is_locked(file):
            return
        from loguru import logger

        logger.info("session {}: waiting for another nanobot process", key)
        try:
            async with asyncio.timeout(WAIT_LIMIT_S):
                while not _is_locked(file):  # noqa: ASYNC110 - processes share no event
                    await asyncio.sleep(WAIT_STEP_S)
        except TimeoutError as error:
            reason = (
                f"another nanobot process has used it for {WAIT_LIMIT_S:g} seconds; end that "
                "process, or use another session"
            )
            raise SessionError(key, reason) from error


def _is_locked(file: int) -> bool:
    """Lock the file; False if another process has the lock."""
    try:
        import fcntl

        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except ImportError:  # a system without locks on descriptors
        return True
    except BlockingIOError:
        return False
    return True
