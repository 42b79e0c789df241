"""Folders and files of our own: for their owner alone, and replaced in one step."""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

_OTHERS: Final = 0o077


def make_folder(folder: Path) -> None:
    """Make `folder` and those around it that are missing, for their owner alone from the start.

    The mode does not depend on the process's umask. A folder that exists keeps its own.

    Raises:
        OSError: it cannot be made, or something else has its name.
    """
    missing = [folder, *folder.parents]
    while missing and missing[-1].is_dir():
        missing.pop()
    for path in reversed(missing):
        try:
            path.mkdir(mode=0o700)
            path.chmod(0o700)  # a umask may have taken the owner's rights
        except FileExistsError:
            if not path.is_dir():
                raise


def is_loose(folder: Path) -> bool:
    """Whether other accounts may look into `folder`, or write there."""
    return folder.is_dir() and bool(stat.S_IMODE(folder.stat().st_mode) & _OTHERS)


def tighten(folder: Path) -> bool:
    """Close a loose folder to other accounts; return whether that was done.

    Left alone are folders of another account, those that are shared on purpose, as `/tmp` is, and
    a person's whole home.
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


def damaged_files(home: Path) -> Iterator[Path]:
    """Yield what was found damaged and is kept in the gateway's folder, logs of databases left out.

    Args:
        home: nanobot's folder.
    """
    for path in sorted((home / "gateway").glob("*.corrupt-*")):
        if not path.name.endswith("-wal"):
            yield path


def replace_file(path: Path, text: str) -> None:
    """Put `text` in the place of a file of our own, whole or not at all, also when power fails.

    A new file is readable by its owner only; one that is there keeps its mode.

    Raises:
        OSError: the disk does not take it; what was there is untouched.
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
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
