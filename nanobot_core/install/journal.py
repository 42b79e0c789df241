"""What an installation may change, kept so that it can be undone, also by another process.

Before anything changes, the journal is on disk with a copy of every file that may be replaced or
removed, and the names of all that may be created. Undoing can be interrupted and repeated, because
it uses copies and removes the journal last.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Sequence
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Final

from pydantic import BaseModel, ConfigDict, ValidationError

from nanobot_core.disk import make_folder, replace_file
from nanobot_core.errors import InstallError
from nanobot_core.install import JOURNAL
from nanobot_core.install.plan import paths_of
from nanobot_core.plugins.metadata import normalise

if TYPE_CHECKING:
    from importlib.metadata import Distribution

    from nanobot_core.install.environment import Interpreter

_UNFINISHED: Final = "~"
"""pip renames what it is about to remove, so that the name begins with this."""


class _Copy(BaseModel):
    """A file as it was.

    Attributes:
        path: where it belongs.
        copy_name: name of its copy.
    """

    model_config: ClassVar[ConfigDict] = ConfigDict(frozen=True)

    path: Path
    copy_name: str


class _Contents(BaseModel):
    """The journal on disk.

    Attributes:
        command: what was about to be done, for people.
        python: the interpreter of the environment.
        copies: files that may be replaced or removed.
        created: paths that did not exist and may be created.
        folders: folders that existed, with their modes; others that are empty are removed.
        prefix: the folder of the environment.
        site: the folder where distributions are installed.
        site_names: the names in it.
        times_ns: time of the last change of folders that lists of plugins depend on.
    """

    model_config: ClassVar[ConfigDict] = ConfigDict(frozen=True)

    command: str
    python: str
    copies: tuple[_Copy, ...]
    created: tuple[Path, ...]
    folders: dict[Path, int]
    prefix: Path
    site: Path
    site_names: tuple[str, ...]
    times_ns: dict[Path, int]


class Journal:
    """The record of one change.

    Args:
        folder: folder of the record; only one change can be recorded at a time.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._file = folder / JOURNAL.name

    @property
    def is_open(self) -> bool:
        """Whether a change was begun and neither completed nor undone."""
        return self._file.exists()

    @property
    def command(self) -> str:
        """What the open change was about to do; empty if the record cannot be read."""
        try:
            return self._read().command
        except InstallError:
            return ""

    def begin(
        self,
        command: str,
        interpreter: Interpreter,
        *,
        replaced: Iterable[Distribution],
        created: Iterable[Path],
        files: Sequence[Path],
    ) -> None:
        """Record the state of everything that a change may touch.

        Args:
            command: what is about to be done, for people.
            interpreter: the Python of the environment.
            replaced: installed distributions that may be replaced or removed.
            created: paths that the new distributions may create.
            files: other files that may be changed or created, such as the configuration.

        Raises:
            OSError: it cannot be written; nothing has changed.
        """
        shutil.rmtree(self._folder, ignore_errors=True)
        make_folder(self._folder)
        own = [path for each in replaced for path in _files_of(each)]
        new = [*created]
        new += map(_compiled_folder, tuple(new))
        present = [path for path in dict.fromkeys((*own, *files)) if os.path.lexists(path)]
        absent = [path for path in dict.fromkeys((*new, *files)) if not os.path.lexists(path)]
        site = interpreter.site
        contents = _Contents(
            command=command,
            python=interpreter.python,
            copies=tuple(self._copy(number, path) for number, path in enumerate(present)),
            created=tuple(absent),
            folders=dict(_existing_parents((*own, *new, *files))),
            prefix=interpreter.prefix,
            site=site,
            site_names=tuple(sorted(path.name for path in site.iterdir())),
            times_ns={each: each.stat().st_mtime_ns for each in (site, interpreter.scripts)},
        )
        replace_file(self._file, contents.model_dump_json())

    def complete(self) -> None:
        """Forget the record: the change stays."""
        self._file.unlink(missing_ok=True)
        shutil.rmtree(self._folder, ignore_errors=True)

    def undo(self) -> None:
        """Restore everything as it was when the change began.

        Raises:
            InstallError: the record cannot be read, or a file cannot be restored; repeat it after
                the cause is gone.
        """
        found = self._read()
        try:
            self._undo(found)
        except OSError as error:
            reason = f"{error.filename or 'a file'} cannot be restored: {error.strerror}"
            remedy = "correct the cause, then run any nanobot plugins add, remove or upgrade"
            raise InstallError("the change cannot be undone", reason, remedy) from error
        self.complete()

    def _undo(self, found: _Contents) -> None:
        kept = {copy.path for copy in found.copies}
        for path in found.created:
            if path not in kept:
                _remove(path)
        for path in (*found.created, *kept):
            for compiled in _compiled_of(path):
                if compiled not in kept:
                    _remove(compiled)
        for path in found.site.glob(f"{_UNFINISHED}*"):
            if path.name not in found.site_names:
                _remove(path)
        for copy in found.copies:
            _restore(self._folder / copy.copy_name, copy.path)
        parents = {parent for path in found.created for parent in path.parents}
        for folder in sorted(parents, key=lambda each: len(each.parts), reverse=True):
            is_ours = found.prefix in folder.parents or self._folder.parent in folder.parents
            if folder not in found.folders and is_ours and folder.is_dir():
                _remove_empty(folder)
        for folder, mode in found.folders.items():
            if folder.is_dir() and folder.stat().st_mode & 0o7777 != mode:
                folder.chmod(mode)
        for folder, time_ns in found.times_ns.items():
            os.utime(folder, ns=(time_ns, time_ns))

    def _copy(self, number: int, path: Path) -> _Copy:
        name = str(number)
        shutil.copy2(path, self._folder / name, follow_symlinks=False)
        return _Copy(path=path, copy_name=name)

    def _read(self) -> _Contents:
        try:
            return _Contents.model_validate_json(self._file.read_bytes())
        except (OSError, ValidationError) as error:
            reason = f"the record of an interrupted change cannot be read: {self._file}"
            remedy = (
                "reinstall the plugins of this environment, then remove the folder of that file"
            )
            raise InstallError("the change cannot be undone", reason, remedy) from error


def _files_of(distribution: Distribution) -> Iterable[Path]:
    """Yield the files of an installed distribution, those in its dist-info folder included."""
    for path in paths_of(distribution):
        yield path
        yield from _compiled_of(path)
    for folder in Path(str(distribution.locate_file(""))).glob("*.dist-info"):
        if normalise(folder.name.partition("-")[0]) == normalise(distribution.name):
            yield from (path for path in folder.rglob("*") if not path.is_dir())


def _compiled_of(path: Path) -> Iterable[Path]:
    return _compiled_folder(path).glob(f"{path.stem}.*.pyc") if path.suffix == ".py" else ()


def _compiled_folder(path: Path) -> Path:
    return path.parent / "__pycache__"


def _existing_parents(paths: Iterable[Path]) -> Iterable[tuple[Path, int]]:
    for folder in {parent for path in paths for parent in path.parents}:
        if folder.is_dir():
            yield folder, folder.stat().st_mode & 0o7777


def _restore(copy: Path, path: Path) -> None:
    """Put a copy in place in one step, unless the file is still the same."""
    if not copy.is_symlink() and path.is_file() and not path.is_symlink():
        old, new = copy.stat(), path.stat()
        is_same = (old.st_mtime_ns, old.st_mode) == (new.st_mtime_ns, new.st_mode)
        if is_same and copy.read_bytes() == path.read_bytes():
            return
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = next(
        name
        for number in count()
        if not os.path.lexists(name := path.with_name(f".{path.name}.{number}.restored"))
    )
    shutil.copy2(copy, temporary, follow_symlinks=False)
    temporary.replace(path)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _remove_empty(folder: Path) -> None:
    if not any(folder.iterdir()):
        folder.rmdir()
