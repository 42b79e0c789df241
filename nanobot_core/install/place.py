"""Where plugins are installed, and how a change of it is undone if anything fails."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from filelock import FileLock, Timeout

from nanobot_core.disk import make_folder
from nanobot_core.errors import InstallError, PluginError
from nanobot_core.install import JOURNAL
from nanobot_core.install.journal import Journal
from nanobot_core.install.publisher import publishers_file
from nanobot_core.plugins.consent import consent_file
from nanobot_core.plugins.index import InstalledPlugin, load_installed
from nanobot_core.record import dataclass

if TYPE_CHECKING:
    from nanobot_core.install.environment import Environment

UNCHANGED: Final = "everything is as before"
Step = Callable[[str], None]
"""Takes what is being done, in a word, before it is done."""


def journal_folder(home: Path) -> Path:
    """Return the folder of the record of a change in progress."""
    return (home / JOURNAL).parent


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where plugins are installed, and where that is recorded.

    Attributes:
        environment: the environment.
        home: nanobot's folder.
        config: the configuration file, which need not exist.
        given_config: the file that the command line names, or ``None``.
        profile: the overlay that the command line names, or ``None``.
    """

    environment: Environment
    home: Path
    config: Path
    given_config: Path | None
    profile: str | None

    @property
    def journal(self) -> Journal:
        """The record of a change in progress."""
        return Journal(journal_folder(self.home))

    @property
    def cache(self) -> Path:
        """The folder of what can be derived again."""
        return self.home / "cache"

    def plugins(self) -> tuple[InstalledPlugin, ...]:
        """Return the plugins that are installed now."""
        importlib.invalidate_caches()
        return load_installed(self.cache)

    @property
    def own_files(self) -> tuple[Path, ...]:
        """The files of nanobot that a change may replace."""
        index = self.cache / "plugins.json"
        return (
            self.config.resolve(),
            consent_file(self.home),
            publishers_file(self.home),
            index,
        )


def interrupted_change(home: Path) -> str:
    """Return a sentence on a change that was interrupted, or an empty string."""
    try:
        with exclusive(home):
            command = Journal(journal_folder(home)).command
    except InstallError:
        return ""  # it is still in progress
    ways = "nanobot plugins add, remove, upgrade or sync undoes it first"
    return f"a change of the environment was interrupted: {command}; {ways}"


@contextmanager
def exclusive(home: Path) -> Iterator[None]:
    """Let no other command change the environment meanwhile.

    Raises:
        InstallError: another one does.
    """
    make_folder(home)
    lock = FileLock(home / "installing.lock", mode=0o600)
    try:
        lock.acquire(blocking=False)
    except Timeout as error:
        reason = "another command is changing this environment"
        raise InstallError("cannot begin", reason, "wait for it to end, then try again") from error
    try:
        yield
    finally:
        lock.release()


@contextmanager
def undone_on_failure(place: Place) -> Iterator[None]:
    """Complete the change at the end, or undo it; what fails is an `InstallError`."""
    try:
        yield
    except BaseException as error:
        if place.journal.is_open:
            place.journal.undo()
        else:
            place.journal.complete()
        if isinstance(error, PluginError):
            what = f"plugin '{error.plugin}'"
            raise InstallError(what, error.reason, error.remedy or UNCHANGED) from error
        if isinstance(error, OSError):
            what = error.filename or "a file"
            reason = f"cannot write {what}: {error.strerror}"
            raise InstallError("not installed", reason, "free some space; " + UNCHANGED) from error
        raise
    place.journal.complete()
