"""Copies of folders whose content may be anything: links, pipes, files that cannot be read."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path, PurePath
from typing import Final

from nanobot_core.folder import Folder
from nanobot_core.record import dataclass

TOP: Final = PurePath()
"""The folder itself."""
_MAX_ENTRIES: Final = 100_000
_COPY_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Something that is not copied.

    Attributes:
        path: relative to the folder.
        reason: why, as a clause.
    """

    path: PurePath
    reason: str


@dataclass(frozen=True, slots=True)
class Extent:
    """What a folder holds.

    Attributes:
        files: regular files and links that can be copied.
        size: their bytes.
        left_out: what cannot be copied.
    """

    files: int
    size: int
    left_out: tuple[LeftOut, ...] = ()


def walk(folder: Folder, at: PurePath = TOP) -> Iterator[tuple[PurePath, os.stat_result | OSError]]:
    """Yield all that is below a folder, with the facts or what kept it from being read.

    A folder comes before its content. Links are not followed.
    """
    waiting = [at]
    while waiting:
        here = waiting.pop()
        try:
            entries = folder.scan(here)
            if len(entries) >= _MAX_ENTRIES:
                raise OSError(f"it holds {_MAX_ENTRIES:,} names or more")
        except OSError as error:
            yield here, error
            continue
        for entry in sorted(entries):
            yield here / entry.name, entry.facts
            if stat.S_ISDIR(entry.facts.st_mode):
                waiting.append(here / entry.name)


def leads_inside(path: PurePath, to: PurePath) -> bool:
    """Whether a link leads to something in the folder, whatever the other links in it are.

    After a name, ``..`` does not count: the name may be another link, to a folder further up.

    Args:
        path: the link, relative to the folder.
        to: its target.
    """
    ups = next((number for number, part in enumerate(to.parts) if part != ".."), len(to.parts))
    is_plain = not to.is_absolute() and ".." not in to.parts[ups:]
    return is_plain and ups <= len(path.parent.parts)


def measure(folder: Folder, at: PurePath = TOP, *, skip: frozenset[str] = frozenset()) -> Extent:
    """Return what is below `at`, without the entries of `at` that `skip` names. Blocks."""
    files = size = 0
    left_out = []
    for path, facts in walk(folder, at):
        if path != at and path.relative_to(at).parts[0] in skip:
            continue
        if reason := obstacle(folder, path, facts):
            left_out.append(LeftOut(path, reason))
        elif not isinstance(facts, OSError) and not stat.S_ISDIR(facts.st_mode):
            files, size = files + 1, size + facts.st_size
    return Extent(files, size, tuple(left_out))


def copy_tree(
    folder: Folder, at: PurePath, target: Path, *, skip: frozenset[str] = frozenset()
) -> Iterator[LeftOut]:
    """Copy what is below `at` into a new folder, private to its owner; yield what is left out.

    Links within the folder stay links. A file keeps its time and whether it can be executed.

    Raises:
        OSError: the copy cannot be written.
    """
    target.mkdir(mode=0o700, parents=True, exist_ok=True)
    for path, facts in walk(folder, at):
        inner = path.relative_to(at)
        if inner.parts and inner.parts[0] in skip:
            continue
        reason = obstacle(folder, path, facts)
        if not reason and not isinstance(facts, OSError):
            reason = _copy(folder, path, facts, target / inner)
        if reason:
            yield LeftOut(path, reason)


def copy_file(folder: Folder, path: PurePath, target: Path) -> str:
    """Copy one regular file; return why it cannot be read, empty if it was copied.

    Raises:
        OSError: the copy cannot be written.
    """
    try:
        source = folder.open_read(path)
    except OSError as error:
        return f"it cannot be read ({error.strerror or error})"
    with source:
        facts = os.fstat(source.fileno())
        mode = 0o600 | (facts.st_mode & 0o100)
        handle = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode)
        with os.fdopen(handle, "wb") as copy:
            shutil.copyfileobj(source, copy, _COPY_BYTES)
            copy.flush()
            os.utime(handle, ns=(facts.st_mtime_ns, facts.st_mtime_ns))
    return ""


def _copy(folder: Folder, path: PurePath, facts: os.stat_result, target: Path) -> str:
    if stat.S_ISDIR(facts.st_mode):
        target.mkdir(mode=0o700, exist_ok=True)
        return ""
    if stat.S_ISLNK(facts.st_mode):
        target.symlink_to((folder.path / path).readlink())
        return ""
    return copy_file(folder, path, target)


def obstacle(folder: Folder, path: PurePath, facts: os.stat_result | OSError) -> str:
    """Return why something cannot be copied, empty if it can."""
    if isinstance(facts, OSError):
        return f"it cannot be listed ({facts.strerror or facts})"
    if stat.S_ISLNK(facts.st_mode):
        to = (folder.path / path).readlink()
        if not leads_inside(path, to):
            return f"it is a link that leads out of the folder, to '{to}'"
        return ""
    if not stat.S_ISREG(facts.st_mode) and not stat.S_ISDIR(facts.st_mode):
        return "it is a pipe, a socket or a device"
    return ""
