"""nanobot's own folders and files: private to their owner, and replaced atomically."""

from __future__ import annotations

import os
import stat
import tempfile
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

_OTHERS: Final = 0o077


def make_folder(folder: Path) -> None:
    """Create `folder` and its missing parents, private to their owner from the start.

    The mode does not depend on the process's umask. A folder that exists keeps its own.

    Raises:
        OSError: it cannot be created, or something else has its name.
    """
    missing = [folder, *folder.parents]
    while missing and missing[-1].is_dir():
        missing.pop()
    for path in reversed(missing):
        try:
            path.mkdir(mode=0o700)
            path.chmod(0o700)  # a umask may have removed rights of the owner
        except FileExistsError:
            if not path.is_dir():
                raise


def is_loose(folder: Path) -> bool:
    """Whether other accounts can read or write in `folder`."""
    return folder.is_dir() and bool(stat.S_IMODE(folder.stat().st_mode) & _OTHERS)


def tighten(folder: Path) -> bool:
    """Close a loose folder to other accounts; return whether that was done.

    Folders of another account, shared folders such as `/tmp`, and a person's home are not changed.
    """
    try:
        if not is_loose(folder) or folder.resolve() in (Path.home().resolve(), Path("/")):
            return False
        facts = folder.stat()
        if facts.st_uid != os.geteuid() or facts.st_mode & stat.S_ISVTX:
            return False
        folder.chmod(stat.S_IMODE(facts.st_mode) & ~_OTHERS)
    except OSError:
        return False
    return True


def corrupt_name(path: Path) -> Path:
    """Return the first free name of ``….corrupt-1``, ``….corrupt-2`` and so on beside `path`.

    A damaged file is kept under it: ``nanobot doctor`` and ``nanobot status`` report such files in
    the data folders of plugins.
    """
    names = (path.with_name(f"{path.name}.corrupt-{number}") for number in count(1))
    return next(name for name in names if not name.exists())


def damaged_files(home: Path) -> Iterator[Path]:
    """Yield the damaged files that the gateway and plugins keep, without logs of databases.

    Args:
        home: nanobot's folder.
    """
    for folder in ("gateway", "plugins/*"):
        for path in sorted(home.glob(f"{folder}/*.corrupt-*")):
            if not path.name.endswith("-wal"):
                yield path


def replace_file(path: Path, text: str) -> None:
    """Make `text` the content of a file, completely or not at all, also if power fails.

    A new file is readable by its owner only; an existing one keeps its mode.

    Raises:
        OSError: it cannot be written; the previous content is unchanged.
    """
    make_folder(path.parent)
    mode = path.stat().st_mode & 0o777 if path.exists() else 0o600
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    temporary = Path(name)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8", newline="") as file:
            file.write(text)
            file.flush()
            os.fchmod(file.fileno(), mode)
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Let the names in a folder survive a power failure.

    Raises:
        OSError: the disk does not confirm it.
    """
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
