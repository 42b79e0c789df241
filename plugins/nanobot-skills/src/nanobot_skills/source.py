"""Folders of skills, and what they contain."""

from __future__ import annotations

import os
from collections import deque
from dataclasses import dataclass
from itertools import accumulate, islice
from pathlib import Path, PurePath

from nanobot_core import Folder
from nanobot_skills.front_matter import SkillInvalid, visible_text
from nanobot_skills.skill import FILE_NAME, MAX_BYTES, Skill, parse_skill

MAX_LEVELS = 4
"""Levels of folders below a source."""
MAX_FOLDERS = 2_000
"""Folders that are looked at in a source."""
MAX_SOURCE_BYTES = 5_000_000
"""Bytes of all SKILL.md files in a source together."""
_MAX_ENTRIES = 20_000
"""Entries of one folder that are looked at, files included."""
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
        version: inode, time and size of the file, which change with its content.
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
    waiting = deque([(place.base, 1)])
    room = MAX_FOLDERS
    while waiting and room > 0:
        folder, level = waiting.popleft()
        try:
            with place.door.directory(folder) as handle:
                names = _folders(handle, room + 1)
                room -= len(names)
                for name in names:
                    version = _version(handle, name)
                    if version is not None:
                        found.append(Found(place, folder / name, version))
                    elif level < MAX_LEVELS:
                        waiting.append((folder / name, level + 1))
        except OSError as error:
            # The workspace need not have skills, and a folder may vanish meanwhile.
            is_missing = isinstance(error, FileNotFoundError)
            if level == 1 and not (is_missing and place.is_writable):
                return [], f"{place.path} cannot be read: {error.strerror}"
    found.sort(key=lambda each: (each.name, each.folder.as_posix()))
    sizes = accumulate(min(each.version[2], MAX_BYTES) for each in found)
    small = [each for each, size in zip(found, sizes, strict=True) if size <= MAX_SOURCE_BYTES]
    if waiting or room < 0:
        return small, f"{place.path} has more than {MAX_FOLDERS:,} folders; the rest is left out"
    if len(small) < len(found):
        return small, f"{place.path} has more than {MAX_SOURCE_BYTES:,} bytes; the rest is left out"
    return small, ""


def _version(handle: int, name: str) -> tuple[int, int, int] | None:
    # Should the folder become a link meanwhile, this looks elsewhere; reading does not.
    try:
        facts = os.stat(f"{name}/{FILE_NAME}", dir_fd=handle, follow_symlinks=False)
    except OSError:
        return None
    return facts.st_ino, facts.st_mtime_ns, facts.st_size


def _folders(handle: int, limit: int) -> list[str]:
    """Return the names of folders, in order; of many, the first `limit` that the system lists."""
    with os.scandir(handle) as entries:
        return sorted(
            islice(
                (
                    entry.name
                    for entry in islice(entries, _MAX_ENTRIES)
                    if not entry.name.startswith(".")
                    and entry.name not in _SKIPPED
                    and entry.is_dir(follow_symlinks=False)
                ),
                limit,
            )
        )
