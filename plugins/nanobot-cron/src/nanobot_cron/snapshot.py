"""Snapshots of files and folders, and what differs between two of them."""

from __future__ import annotations

import stat
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Literal, TypeAlias

from nanobot_core import Folder, ToolFailed

if TYPE_CHECKING:
    import os

Change: TypeAlias = Literal["created", "changed", "removed"]
MAX_FILES = 10_000
"""Maximum number of names in a folder and those below it."""
_MAX_DEPTH = 8
_ROOT = Folder(Path("/"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """What is watched.

    Attributes:
        path: absolute and free of links.
        is_folder: the files in it count, not the path itself.
        pattern: names that count, such as ``*.pdf``.
        is_recursive: files in folders below it count too.
    """

    path: Path
    is_folder: bool
    pattern: str = "*"
    is_recursive: bool = False


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Regular files at one moment.

    Attributes:
        files: name below the place to an identity that changes with the file or its content; a
            watched file has the name ``""``.
        newest_ns: latest change of any of these files, as the file system stamps it.
    """

    files: Mapping[str, str]
    newest_ns: int = 0

    def changes_from(self, known: Mapping[str, str]) -> list[tuple[str, Change]]:
        """Return the names that differ from the known ones, and how, sorted by name."""
        found: list[tuple[str, Change]] = []
        for name, identity in self.files.items():
            if name not in known:
                found.append((name, "created"))
            elif known[name] != identity:
                found.append((name, "changed"))
        found += [(name, "removed") for name in known if name not in self.files]
        return sorted(found)


def take_snapshot(place: Place, *, until_ns: int | None = None) -> Snapshot | None:
    """Return the files of a place now; blocks.

    Links are not followed: neither as files nor on the way to the place.

    Args:
        until_ns: leave out files that changed later than this.

    Returns:
        None if the folder cannot be reached now, such as on a drive that is not mounted.

    Raises:
        ToolFailed: it has more than `MAX_FILES` names, or may not be read.
    """
    try:
        entries = _folder_entries(place) if place.is_folder else _file_entry(place.path)
    except FileNotFoundError:
        return None if place.is_folder else Snapshot({})
    except OSError as error:
        msg = f"cannot watch '{place.path}': {error.strerror}"
        raise ToolFailed(msg) from error
    found = {
        name: facts for name, facts in entries if until_ns is None or facts.st_ctime_ns <= until_ns
    }
    return Snapshot(
        {name: _identity(facts) for name, facts in found.items()},
        max((facts.st_ctime_ns for facts in found.values()), default=0),
    )


def _file_entry(path: Path) -> Iterable[tuple[str, os.stat_result]]:
    facts = _ROOT.stat(path.relative_to("/"))
    return [("", facts)] if stat.S_ISREG(facts.st_mode) else []


def _folder_entries(place: Place) -> list[tuple[str, os.stat_result]]:
    found: list[tuple[str, os.stat_result]] = []
    folders, seen = [PurePath()], 0
    depth = _MAX_DEPTH if place.is_recursive else 0
    while folders:
        folder = folders.pop()
        for name, facts in _ROOT.scan(place.path.relative_to("/") / folder):
            seen += 1
            if seen > MAX_FILES:
                msg = (
                    f"'{place.path}' has more than {MAX_FILES:,} files; watch a folder in it, or "
                    "do not include folders below it"
                )
                raise ToolFailed(msg)
            if name.startswith(".") and not place.pattern.startswith("."):
                continue
            if stat.S_ISREG(facts.st_mode) and fnmatchcase(name, place.pattern):
                found.append((str(folder / name), facts))
            elif stat.S_ISDIR(facts.st_mode) and len(folder.parts) < depth:
                folders.append(folder / name)
    return found


def _identity(facts: os.stat_result) -> str:
    return f"{facts.st_ino}:{facts.st_mtime_ns}:{facts.st_size}"
