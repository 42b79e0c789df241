"""Walking a folder without following links, in a stable order."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from nanobot_core import PathGuard
from nanobot_files.ignore import NOISE, IgnoreRules, read_rules, rules_above
from nanobot_files.worker import Watch

_MAX_DEPTH = 60
"""Each level keeps one descriptor open."""


@dataclass(frozen=True, slots=True)
class Found:
    """An entry below the folder that was walked.

    Attributes:
        names: its path relative to that folder, name by name.
        facts: of the entry itself, a link not followed.
        is_folder: whether it is a folder, whose entries follow.
        skipped: it is a folder that was not entered.
    """

    names: tuple[str, ...]
    facts: os.stat_result
    is_folder: bool
    skipped: bool = False

    @property
    def text(self) -> str:
        """The relative path as text."""
        return "/".join(self.names)


@dataclass(frozen=True, slots=True)
class Walk:
    """A walk through a folder.

    Attributes:
        guard: decides what may be read.
        watch: checked at each entry.
        gitignore: whether to leave out what ``.gitignore`` files name.
    """

    guard: PathGuard
    watch: Watch
    gitignore: bool = True

    def entries(self, root: Path) -> Iterator[Found]:
        """Yield everything below `root`, sorted by name, each folder before what is in it.

        Raises:
            ToolError: `root` is no folder that may be read, or the time is up.
        """
        rules = rules_above(self.guard, root) if self.gitignore else None
        with self.guard.open_directory(root) as handle:
            yield from self._below(handle, root, (), rules)

    def files(self, root: Path) -> Iterator[Found]:
        """Yield the regular files of `entries`."""
        regular = 0o100000
        return (each for each in self.entries(root) if each.facts.st_mode & 0o170000 == regular)

    def _below(
        self, folder: int, path: Path, names: tuple[str, ...], rules: IgnoreRules | None
    ) -> Iterator[Found]:
        if self.gitignore:
            rules = read_rules(folder, path, rules)
        with os.scandir(folder) as entries:
            found = sorted(entries, key=lambda entry: entry.name)
        for entry in found:
            self.watch.check()
            below = path / entry.name
            is_folder = entry.is_dir(follow_symlinks=False)
            if not self.guard.may_read(below):
                continue
            if rules is not None and rules.ignores(below, is_folder=is_folder):
                continue
            try:
                facts = entry.stat(follow_symlinks=False)
            except OSError:
                continue
            here = (*names, entry.name)
            enter = is_folder and entry.name not in NOISE and len(here) < _MAX_DEPTH
            yield Found(here, facts, is_folder, skipped=is_folder and not enter)
            if enter:
                yield from self._enter(folder, below, here, rules)

    def _enter(
        self, parent: int, path: Path, names: tuple[str, ...], rules: IgnoreRules | None
    ) -> Iterator[Found]:
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
        with ExitStack() as stack:
            try:
                folder = os.open(path.name, flags, dir_fd=parent)
            except OSError:
                return
            stack.callback(os.close, folder)
            yield from self._below(folder, path, names, rules)
