"""The folder of sessions: which file belongs to a key, and safe access to the files."""

from __future__ import annotations

import base64
import errno
import hashlib
import itertools
import os
import re
import shutil
import stat
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from nanobot_core.contracts.store import SessionSummary
from nanobot_core.folder import Folder, IrregularFile, require_regular
from nanobot_core.sessions.records import Header, decode_line

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from io import BufferedReader, BufferedWriter
    from pathlib import Path

_UNSAFE = re.compile(r"[^A-Za-z0-9.-]+")
_READABLE_CHARS = 80
_DIGEST_BYTES = 10
_FIRST_LINE_BYTES = 256 * 1024
_EPOCH = datetime.fromtimestamp(0, UTC)
_SUFFIX = ".jsonl"


def file_name(key: str) -> str:
    """Return the name of the file that holds the session `key`: its channel and a digest.

    The rest of the key says who writes, and a sandbox may show a command the names in a folder
    whose files it cannot read. ``nanobot sessions list`` shows the keys.
    """
    return f"{_readable(key.partition(':')[0])}-{_digest(key)}{_SUFFIX}"


def safe_name(key: str) -> str:
    """Return a file name for `key` that cannot leave its folder and is unique.

    The readable part helps people who look into the folder. The digest of the exact key separates
    keys that look alike, or are alike for a file system that ignores case. It has 80 bits: a chat
    id that leads to another chat's file takes 2^80 attempts to find.
    """
    return f"{_readable(key)}-{_digest(key)}"


def _readable(text: str) -> str:
    return _UNSAFE.sub("_", text).strip("._-")[:_READABLE_CHARS] or "session"


def _digest(key: str) -> str:
    digest = hashlib.sha256(key.encode("utf-8", "surrogatepass")).digest()[:_DIGEST_BYTES]
    return base64.b32encode(digest).decode("ascii").lower()


def original_file_names(key: str) -> tuple[str, str]:
    """Return the names that nanobot-ai gives the file of `key`, before 0.3 and since.

    Different keys may share the older one.
    """
    encoded = base64.urlsafe_b64encode(key.encode("utf-8", "surrogatepass")).rstrip(b"=")
    older = re.sub(r'[<>:"/\\|?*\x00]', "_", key).strip()
    return older + _SUFFIX, encoded.decode() + _SUFFIX


def original_key(stem: str) -> str:
    """Return the key that nanobot-ai reads from a file name without suffix."""
    return stem.replace("_", ":", 1)


class SessionFolder:
    """Finds session files under our names and nanobot-ai's, and opens and replaces them. Blocking.

    Every method that opens a file raises `IrregularFile` for anything but a regular file.

    Args:
        folder: where sessions are; created when the first file is written.
        legacy_folders: where older versions kept them; a file found there is moved once.
        fsync: whether written data must be on the disk when a method returns.
    """

    def __init__(self, folder: Path, legacy_folders: Sequence[Path] = (), *, fsync: bool = True):
        self._files, self._fsync = Folder(folder), fsync
        self._legacy = [SessionFolder(legacy, fsync=fsync) for legacy in legacy_folders]

    def name_of(self, key: str) -> str:
        """Return the name of the file of `key`, which need not exist."""
        name, originals = file_name(key), original_file_names(key)
        try:
            if self.stat(name) is not None:
                return name
        except IrregularFile:  # reported when it is opened
            return name
        for original in originals:
            if self.holds(original, key):
                return original
        for legacy, original in itertools.product(self._legacy, originals):
            if legacy.holds(original, key):
                # In this order, so that a crash leaves at least one complete file.
                with legacy.open_read(original) as source, self.replacing(name) as target:
                    shutil.copyfileobj(source, target)
                legacy.remove(original)
                break
        return name

    def summaries(self) -> list[SessionSummary]:
        """Return all sessions, newest first. Reads the first line of each file."""
        found = {item.key: item for legacy in self._legacy for item in legacy.summaries()}
        found.update((item.key, item) for item in self._own_summaries())
        return sorted(found.values(), key=lambda summary: summary.updated_at, reverse=True)

    def summary(self, name: str, key: str) -> SessionSummary | None:
        """Return the facts of the file of `key`; ``None`` if it does not exist or is empty."""
        facts = self.stat(name)
        return _summary(key, facts) if facts and facts.st_size else None

    def stat(self, name: str) -> os.stat_result | None:
        """Return the facts of a file; ``None`` if it does not exist."""
        try:
            facts = self._files.stat(name)
        except FileNotFoundError:
            return None
        require_regular(facts, name)
        return facts

    def open_read(self, name: str) -> BufferedReader:
        """Open a file to read."""
        return self._files.open_read(name)

    def append(self, name: str, data: bytes, modified_ns: int | None = None) -> int:
        """Add `data` in one write, all or nothing, and return the file's size.

        Args:
            name: the file; created if it does not exist.
            data: the content to add.
            modified_ns: modification time to set; ``None`` leaves that of the write.
        """
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
        try:
            file = self._files.open(name, flags)
        except FileNotFoundError:
            self._files.make()
            file = self._files.open(name, flags)
        try:
            size = os.fstat(file).st_size
            try:
                _write_whole(file, data)
                if self._fsync:
                    os.fsync(file)
            except OSError:
                os.ftruncate(file, size)
                raise
            if modified_ns is not None:
                os.utime(file, ns=(modified_ns, modified_ns))
        finally:
            os.close(file)
        if size == 0:
            self._sync()
        return size + len(data)

    def truncate(self, name: str, size: int) -> None:
        """Cut a file off at `size` bytes."""
        with os.fdopen(self._files.open(name, os.O_WRONLY), "wb") as file:
            file.truncate(size)

    @contextmanager
    def replacing(self, name: str, modified_ns: int | None = None) -> Iterator[BufferedWriter]:
        """Yield a new file that replaces `name` when the block ends without an error."""
        self._files.make()
        temporary = f"{name}.tmp"
        self.remove(temporary)
        try:
            descriptor = self._files.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
            with os.fdopen(descriptor, "wb") as file:
                yield file
                file.flush()
                if self._fsync:
                    os.fsync(descriptor)
                if modified_ns is not None:
                    os.utime(descriptor, ns=(modified_ns, modified_ns))
            self._files.rename(temporary, name)
        finally:
            self.remove(temporary)
        self._sync()

    def keep(self, name: str) -> str:
        """Give a file a second name, ``….corrupt-1`` or the next free one, and return it."""
        kept = self._free_name(name)
        with self.open_read(name) as file:
            try:
                self._files.link(name, kept)
            except OSError:  # a file system without hard links
                descriptor = self._files.open(kept, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
                with os.fdopen(descriptor, "wb") as copy:
                    shutil.copyfileobj(file, copy)
        return kept

    def set_aside(self, name: str) -> str:
        """Rename `name`, whatever kind of file it is, and return the new name, as `keep` does."""
        kept = self._free_name(name)
        self._files.rename(name, kept)
        self._sync()
        return kept

    def remove(self, name: str) -> bool:
        """Remove a file, or a link but not its target; False if it does not exist."""
        try:
            self._files.unlink(name)
        except FileNotFoundError:
            return False
        return True

    def remove_kept(self, name: str) -> None:
        """Remove the files that `keep` and `set_aside` made of a file; folders stay."""
        with suppress(FileNotFoundError):
            for kept, facts in self._files.scan():
                if kept.startswith(f"{name}.corrupt-") and not stat.S_ISDIR(facts.st_mode):
                    self.remove(kept)

    def _sync(self) -> None:
        """Make new names in the folder durable."""
        if self._fsync:
            with self._files.directory() as folder:
                os.fsync(folder)

    def _free_name(self, name: str) -> str:
        taken = {entry.name for entry in self._files.scan()}
        number = 1
        while f"{name}.corrupt-{number}" in taken:
            number += 1
        return f"{name}.corrupt-{number}"

    def _own_summaries(self) -> Iterator[SessionSummary]:
        try:
            entries = self._files.scan()
        except FileNotFoundError:
            return
        for name, facts in entries:
            if not name.endswith(_SUFFIX) or not stat.S_ISREG(facts.st_mode) or not facts.st_size:
                continue
            try:
                header = self._first_header(name)
            except (FileNotFoundError, IrregularFile):  # deleted, moved or replaced meanwhile
                continue
            key = header.key if header and header.key else original_key(name.removesuffix(_SUFFIX))
            yield _summary(key, facts)

    def holds(self, name: str, key: str) -> bool:
        """Whether a file exists and belongs to `key`; two keys may share an original name."""
        try:
            header = self._first_header(name)
        except OSError:
            return False
        return header is None or header.key in ("", key)

    def _first_header(self, name: str) -> Header | None:
        with self.open_read(name) as file:
            record = decode_line(file.readline(_FIRST_LINE_BYTES), _EPOCH)
        return record if isinstance(record, Header) else None


def _summary(key: str, facts: os.stat_result) -> SessionSummary:
    return SessionSummary(key=key, updated_at=_moment(facts.st_mtime_ns), size=facts.st_size)


def _moment(nanoseconds: int) -> datetime:
    """Return the instant so long after 1970; a file's time may be in no year that has a date."""
    try:
        return _EPOCH + timedelta(microseconds=nanoseconds // 1000)
    except OverflowError:
        return _EPOCH


def _write_whole(file: int, data: bytes) -> None:
    if os.write(file, data) != len(data):
        msg = "the disk took only part of the data; make room"
        raise OSError(errno.ENOSPC, msg)
