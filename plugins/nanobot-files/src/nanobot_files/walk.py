"""Walks a folder in a stable order, without links and files that ``.gitignore`` names."""

from __future__ import annotations

import contextlib
import os
import re
import stat
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from pathspec import GitIgnoreSpec

from nanobot_core import PathGuard, ToolError
from nanobot_files.worker import Watch

NOISE = frozenset(
    {
        ".bzr", ".cache", ".eggs", ".git", ".hg", ".hypothesis", ".idea", ".mypy_cache",
        ".nanobot", ".next", ".nox", ".nuxt", ".pytest_cache", ".ruff_cache", ".svn", ".tox",
        ".venv", "__pycache__", "bower_components", "node_modules", "venv",
    }
)  # fmt: skip
"""Folders that no recursive listing or search enters, unless the call names them as its path."""

_MAX_BYTES = 200_000
_WILDCARDS = re.compile(r"\*+")


class IgnoreRules:
    """The rules of one ``.gitignore`` and of those in the folders above it.

    Args:
        base: folder that holds it.
        above: rules of the folders above, which count where this file says nothing.
    """

    def __init__(self, lines: Sequence[str], base: Path, above: IgnoreRules | None) -> None:
        self._spec = GitIgnoreSpec.from_lines(line for line in lines if _is_sound(line))
        self._depth = len(base.parts)
        self._above = above

    def ignores(self, path: Path, *, is_folder: bool) -> bool:
        """Whether `path`, which lies below the folder, is left out."""
        relative = "/".join(path.parts[self._depth :]) + ("/" if is_folder else "")
        decision = self._spec.check_file(relative).include
        if decision is not None:
            return decision
        return self._above is not None and self._above.ignores(path, is_folder=is_folder)


def rules_above(guard: PathGuard, folder: Path) -> IgnoreRules | None:
    """Return the rules that the folders above `folder` have for it, within its repository."""
    chain: list[Path] = []
    for each in (folder, *folder.parents):
        if not guard.may_read(each):
            return None
        if each != folder:
            chain.append(each)
        if (each / ".git").exists():
            break
    else:
        return None
    rules: IgnoreRules | None = None
    for each in reversed(chain):
        with contextlib.suppress(ToolError), guard.open_directory(each) as handle:
            rules = read_rules(handle, each, rules)
    return rules


def read_rules(folder: int, path: Path, above: IgnoreRules | None) -> IgnoreRules | None:
    """Return `above` with the ``.gitignore`` of an open folder added, if it has one."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
    try:
        handle = os.open(".gitignore", flags, dir_fd=folder)
    except OSError:
        return above
    try:
        # `os.read` and not a file object: what was opened may be a folder.
        data = os.read(handle, _MAX_BYTES) if stat.S_ISREG(os.fstat(handle).st_mode) else b""
    finally:
        os.close(handle)
    return IgnoreRules(data.decode(errors="replace").splitlines(), path, above)


def _is_sound(line: str) -> bool:
    """Whether a rule is one that people write.

    Each star of a rule becomes a place where the matching regular expression backtracks; a dozen
    of them in a file from a stranger would hold up the process.
    """
    return (
        len(line) <= 1_000
        and all(len(_WILDCARDS.findall(name)) <= 3 for name in line.split("/"))
        and len(_WILDCARDS.findall(line)) <= 8
    )


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
            ToolError: `root` is not a folder that may be read, or the time is up.
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
