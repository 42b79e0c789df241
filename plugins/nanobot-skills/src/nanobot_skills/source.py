"""Folders of skills, and what they contain."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path, PurePath

from nanobot_core import Folder
from nanobot_skills.front_matter import SkillInvalid, visible_text
from nanobot_skills.skill import FILE_NAME, MAX_BYTES, Skill, parse_skill

MAX_LEVELS = 4
"""Levels of folders below a source."""
MAX_FOLDERS = 2_000
"""Folders that are looked at in a source."""
_SKIPPED = frozenset({"node_modules", "__pycache__"})


@dataclass(frozen=True, slots=True)
class Place:
    """A folder in which skills are looked for.

    Attributes:
        door: opens the files, without following links below it.
        base: the folder, relative to the door.
        label: where the skills come from, in words for the owner.
        is_writable: in the workspace, where a model may have written the skills.
        is_private: the owner's, and not installed by a package.
    """

    door: Folder
    base: PurePath
    label: str
    is_writable: bool = False
    is_private: bool = False

    @property
    def path(self) -> Path:
        """The folder."""
        return self.door.path / self.base


@dataclass(frozen=True, slots=True)
class Found:
    """A SKILL.md.

    Attributes:
        place: where it was found.
        folder: its folder, relative to the door of the place.
        version: changes with its content.
    """

    place: Place
    folder: PurePath
    version: tuple[int, int, int]

    @property
    def name(self) -> str:
        """Name of the folder, which is the name of the skill."""
        return self.folder.name

    @property
    def path(self) -> Path:
        """The folder."""
        return self.place.door.path / self.folder

    @property
    def shown(self) -> str:
        """The file for people, without characters that would harm a terminal."""
        return " ".join(visible_text(str(self.path / FILE_NAME)).split())

    def read(self) -> Skill:
        """Return the skill. Blocks.

        Raises:
            SkillInvalid: it cannot be loaded.
        """
        try:
            data = self.place.door.read(self.folder / FILE_NAME, MAX_BYTES + 1)
        except OSError as error:
            reason = f"it cannot be read ({error.strerror}); put a regular file in its place"
            raise SkillInvalid(reason) from error
        return parse_skill(self.name, data)


def find_skills(place: Place) -> tuple[list[Found], str]:
    """Return the skills in a folder in the order of their names, and what is wrong. Blocks.

    A skill does not contain further skills. Hidden folders and links are left out.
    """
    found: list[Found] = []
    waiting = deque([(place.base, 0)])
    looked = 0
    while waiting and looked < MAX_FOLDERS:
        folder, level = waiting.popleft()
        looked += 1
        try:
            with place.door.directory(folder) as handle:
                version = _version(handle) if level else None
                if version is not None:
                    found.append(Found(place, folder, version))
                elif level < MAX_LEVELS:
                    waiting += [(folder / name, level + 1) for name in _folders(handle)]
        except OSError as error:
            # The workspace need not have skills, and a folder may vanish meanwhile.
            is_missing = isinstance(error, FileNotFoundError)
            if level == 0 and not (is_missing and place.is_writable):
                return [], f"{place.path} cannot be read: {error.strerror}"
    found.sort(key=lambda each: (each.name, each.folder.as_posix()))
    if waiting:
        return found, f"{place.path} has more than {MAX_FOLDERS:,} folders; the rest is left out"
    return found, ""


def _version(handle: int) -> tuple[int, int, int] | None:
    try:
        facts = os.stat(FILE_NAME, dir_fd=handle, follow_symlinks=False)
    except FileNotFoundError:
        return None
    return facts.st_ino, facts.st_mtime_ns, facts.st_size


def _folders(handle: int) -> list[str]:
    with os.scandir(handle) as entries:
        return sorted(_names(islice(entries, MAX_FOLDERS + 1)))


def _names(entries: Iterator[os.DirEntry[str]]) -> Iterator[str]:
    for entry in entries:
        hidden = entry.name.startswith(".") or entry.name in _SKIPPED
        if not hidden and entry.is_dir(follow_symlinks=False):
            yield entry.name
