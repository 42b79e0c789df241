"""The core's session store: JSON lines."""

from __future__ import annotations

import errno
from collections import OrderedDict
from itertools import islice
from typing import TYPE_CHECKING, TypeVar

from nanobot_core.clock import SystemClock
from nanobot_core.contracts.store import SessionStore
from nanobot_core.errors import SessionError
from nanobot_core.messages import Message
from nanobot_core.sessions.folder import SessionFolder
from nanobot_core.sessions.session import KeyedLocks
from nanobot_core.sessions.transcript import SessionFile
from nanobot_core.tasks import GatheredWork, finish_in_thread

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence
    from pathlib import Path

    from nanobot_core.clock import Clock
    from nanobot_core.contracts.store import SessionState, SessionSummary, StoredSession
    from nanobot_core.sessions.records import Record
    from nanobot_core.sessions.transcript import Records

_T = TypeVar("_T")
_KNOWN_FILES = 1024
"""Files whose counts are remembered; another one costs one block read."""
_READ_BATCH = 256
_TEMPORARY = frozenset(
    (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS, errno.EMFILE, errno.ENFILE)
)
"""Failures that end when the disk has room again, without a change to the file."""


class JsonlSessionStore(SessionStore):
    """One append-only file for each session; see ``docs/decisions/0004``.

    Args:
        folder: where the files are, created when first written.
        legacy_folders: where older versions kept them; a session found there is moved when it is
            first used.
        fsync: whether an append waits until the disk has the data; without it a power cut, not
            a crash of the process, may cost the newest messages.
        clock: replaces times that a damaged file has lost.
    """

    def __init__(
        self,
        folder: Path,
        *,
        legacy_folders: Sequence[Path] = (),
        fsync: bool = True,
        clock: Clock | None = None,
    ) -> None:
        self._folder = SessionFolder(folder, legacy_folders, fsync=fsync)
        self._clock = clock or SystemClock()
        self._locks = KeyedLocks()
        self._work = GatheredWork()
        self._files: OrderedDict[str, SessionFile] = OrderedDict()

    async def load(self, key: str, max_messages: int) -> StoredSession | None:
        """See `SessionStore.load`. Only the part of the file that is read is repaired."""
        return await self._with_file(key, lambda file: file.load(max_messages))

    async def append(self, key: str, messages: Sequence[Message], state: SessionState) -> None:
        """See `SessionStore.append`.

        Cancellation:
            Passed on after the write has ended; the messages are stored.
        """
        try:
            await self._with_file(key, lambda file: file.append(messages, state))
        except ValueError as error:
            raise SessionError(
                key, f"the messages or the state are not plain data: {error}"
            ) from error

    async def read(self, key: str) -> AsyncIterator[Message]:
        """See `SessionStore.read`. Damaged lines are read as far as possible and not repaired."""

        def begin(file: SessionFile) -> tuple[Records, list[tuple[Record, bytes]]]:
            records = file.read()
            return records, list(islice(records, _READ_BATCH))

        records, batch = await self._with_file(key, begin)
        try:
            while batch:
                for record, _ in batch:
                    if isinstance(record, Message):
                        yield record
                batch = await finish_in_thread(lambda: list(islice(records, _READ_BATCH)))
        except OSError as error:
            raise SessionError(key, f"its file cannot be read: {error}") from error
        finally:
            records.close()

    async def summaries(self) -> list[SessionSummary]:
        """See `SessionStore.summaries`. Sessions still in the legacy folder are among them."""
        try:
            return await finish_in_thread(self._folder.summaries)
        except OSError as error:
            raise SessionError("*", f"cannot list sessions: {error}") from error

    async def summary(self, key: str) -> SessionSummary | None:
        """See `SessionStore.summary`. Reads no other file."""
        return await self._with_file(key, lambda file: file.summary())

    async def delete(self, key: str) -> bool:
        """See `SessionStore.delete`. Damaged files kept aside go too."""
        return await self._with_file(key, lambda file: file.delete())

    def forget(self, key: str) -> None:
        """See `SessionStore.forget`."""
        self._files.pop(key, None)

    async def _with_file(self, key: str, work: Callable[[SessionFile], _T]) -> _T:
        """Run blocking `work` on the session's file, alone and to its end."""
        async with self._locks.hold(key):
            # Removed first, so that a failure or cancellation leaves no outdated object.
            known = self._files.pop(key, None)

            def run() -> tuple[SessionFile, _T]:
                file = known or self._open(key)
                return file, work(file)

            try:
                self._files[key], result = await self._work.finish(run)
            except OSError as error:
                is_temporary = error.errno in _TEMPORARY
                reason = f"its file cannot be used: {error}"
                raise SessionError(key, reason, is_temporary=is_temporary) from error
            if len(self._files) > _KNOWN_FILES:
                self._files.popitem(last=False)
            return result

    def _open(self, key: str) -> SessionFile:
        name = self._folder.name_of(key)
        return SessionFile(self._folder, name, key, self._clock.now())
