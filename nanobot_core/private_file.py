"""PrivateFile: a JSON object that only its owner can read, such as the tokens of a login."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Final

from filelock import FileLock, Timeout

from nanobot_core.disk import make_folder
from nanobot_core.errors import NanobotError
from nanobot_core.messages import JsonObject
from nanobot_core.tasks import finish_in_thread

MAX_BYTES: Final = 1_000_000
_RESERVED_BYTES: Final = 65_536
_POLL_S: Final = 0.02
_OTHERS: Final = 0o077
_OTHERS_WRITE: Final = 0o022


class PrivateFileRefused(NanobotError):
    """A file that should be private is damaged, or other accounts have access to it."""

    def __init__(self, path: Path, reason: str) -> None:
        self.path: Path = path
        self.reason: str = reason
        super().__init__(f"'{path}' is not used: {reason}")


class PrivateFileDamaged(PrivateFileRefused):
    """The content of a private file is no JSON object, or too long."""


class PrivateFile:
    """A JSON object in a file that only its owner can read. All methods but `locked` block.

    The content changes in one step: after a crash, a kill or a power failure the file holds the old
    object or the new one. Several processes may use the same file; a process that changes what it
    has read holds the lock meanwhile.

    Args:
        path: the file; its folder is created with the first content, private to the owner.
    """

    def __init__(self, path: Path) -> None:
        self.path: Path = path

    def read(self) -> JsonObject | None:
        """Return the object; ``None`` if there is no file.

        Raises:
            PrivateFileRefused: the file is damaged, a link, or of another account, or other
                accounts can read it or replace it.
            OSError: it cannot be read.
        """
        try:
            handle = os.open(self.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        except OSError as error:
            if self.path.is_symlink():
                raise PrivateFileRefused(self.path, "it is a link") from error
            raise
        with os.fdopen(handle, "rb") as file:
            self._check(os.fstat(handle))
            data = file.read(MAX_BYTES + 1)
        try:
            record = json.loads(data) if len(data) <= MAX_BYTES else None
        except (ValueError, RecursionError):
            record = None
        if not isinstance(record, dict):
            raise PrivateFileDamaged(self.path, "it is damaged: it holds no JSON object")
        return record

    def replace(self, record: JsonObject) -> None:
        """Make `record` the content, completely or not at all.

        Raises:
            OSError: it cannot be written; the previous content is unchanged.
        """
        with self.reserve() as space:
            space.fill(record)

    def reserve(self) -> ReservedSpace:
        """Return space on the disk for the next content, before that content exists.

        For content that cannot be requested again: a disk without room is noticed in time.

        Raises:
            OSError: the disk is full, or the folder cannot be written.
        """
        make_folder(self.path.parent)
        temporary = self.path.with_name(f".{self.path.name}.{secrets.token_hex(8)}.tmp")
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        handle = os.open(temporary, flags, 0o600)
        try:
            os.write(handle, bytes(_RESERVED_BYTES))
            os.fsync(handle)
        except BaseException:
            os.close(handle)
            temporary.unlink(missing_ok=True)
            raise
        return ReservedSpace(handle, temporary, self.path)

    def remove(self) -> bool:
        """Remove the file; return whether there was one.

        Raises:
            OSError: it cannot be removed.
        """
        try:
            self.path.unlink()
        except FileNotFoundError:
            return False
        return True

    @asynccontextmanager
    async def locked(self, limit_s: float) -> AsyncIterator[None]:
        """Hold the file's lock, which other processes and tasks wait for.

        The system releases it when the process dies. Space that a killed process had reserved is
        given back.

        Args:
            limit_s: seconds to wait for the lock.

        Raises:
            TimeoutError: another process or task holds it for longer.
            OSError: the lock cannot be created.
        """
        await asyncio.to_thread(make_folder, self.path.parent)
        name = self.path.with_name(f".{self.path.name}.lock")
        # Another thread may release it than the one that acquired it.
        lock = FileLock(name, mode=0o600, thread_local=False)
        try:
            async with asyncio.timeout(limit_s):
                while not await finish_in_thread(partial(_acquired, lock)):  # noqa: ASYNC110 - the lock of another process signals nothing
                    await asyncio.sleep(_POLL_S)
            await asyncio.to_thread(self._sweep)
            yield
        finally:
            lock.release()

    def _sweep(self) -> None:
        for left in self.path.parent.glob(f".{self.path.name}.*.tmp"):
            with suppress(OSError):
                left.unlink()

    def _check(self, facts: os.stat_result) -> None:
        if not stat.S_ISREG(facts.st_mode):
            raise PrivateFileRefused(self.path, "it is not a regular file")
        if facts.st_uid != os.geteuid():
            raise PrivateFileRefused(self.path, "it belongs to another account")
        if facts.st_mode & _OTHERS:
            reason = f"other accounts have access to it; run chmod 600 '{self.path}'"
            raise PrivateFileRefused(self.path, reason)
        folder = self.path.parent.stat()
        if folder.st_mode & _OTHERS_WRITE:
            reason = f"other accounts can replace it; run chmod 700 '{self.path.parent}'"
            raise PrivateFileRefused(self.path, reason)


class ReservedSpace:
    """Space on the disk for the next content of a file; leaving the ``with`` block frees it."""

    def __init__(self, handle: int, temporary: Path, path: Path) -> None:
        self._handle = handle
        self._temporary = temporary
        self._path = path

    def fill(self, record: JsonObject) -> None:
        """Make `record` the content of the file. To be called at most once; blocks.

        Raises:
            OSError: it cannot be written; the previous content is unchanged.
        """
        data = json.dumps(record).encode()
        os.lseek(self._handle, 0, os.SEEK_SET)
        with os.fdopen(os.dup(self._handle), "wb") as file:
            file.write(data)
            file.truncate()
            file.flush()
            os.fsync(file.fileno())
        self._temporary.replace(self._path)
        folder = os.open(self._path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def release(self) -> None:
        """Free what was not filled. May be called again."""
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1
            self._temporary.unlink(missing_ok=True)

    def __enter__(self) -> ReservedSpace:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


def _acquired(lock: FileLock) -> bool:
    try:
        lock.acquire(timeout=0)
    except Timeout:
        return False
    return True
