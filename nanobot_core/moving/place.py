"""A folder that becomes nanobot's home in one step."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Final

from nanobot_core.app.lock import is_running
from nanobot_core.disk import make_folder
from nanobot_core.errors import NanobotError

_BY_ANY_COMMAND: Final = frozenset({"cache", "logs"})
"""What every command may leave in a home that is not in use yet."""
_AT_FDCWD: Final = -100
_RENAME_EXCHANGE: Final = 2


class MovingError(NanobotError):
    """A home is not moved, kept or restored; nothing has changed."""


def is_blank(home: Path) -> bool:
    """Whether a home is absent, or holds nothing that would be missed."""
    try:
        return {path.name for path in home.iterdir()} <= _BY_ANY_COMMAND
    except FileNotFoundError:
        return True


def former_name(home: Path) -> Path:
    """Return the first free name beside `home` for the home that another one replaces."""
    names = (home.with_name(f"{home.name}.replaced-{number}") for number in count(1))
    return next(name for name in names if not os.path.lexists(name))


def require_place(home: Path, *, replace: bool) -> None:
    """Check that a new home may take the place `home`.

    Raises:
        MovingError: a gateway uses it, it is a link or a mount point, or it is in use and
            `replace` is false.
    """
    if is_running(home / "gateway"):
        raise MovingError(f"a gateway uses '{home}'; stop it with nanobot gateway stop")
    if home.is_symlink() or home.is_mount():
        what = "a link" if home.is_symlink() else "a mount point"
        msg = (
            f"'{home}' is {what}, which cannot be replaced in one step; name a folder inside it "
            "with NANOBOT_HOME"
        )
        raise MovingError(msg)
    if not replace and not is_blank(home):
        msg = (
            f"'{home}' is in use; add --replace to keep it as '{former_name(home)}' and put the "
            "new one in its place, or name another folder with NANOBOT_HOME"
        )
        raise MovingError(msg)


@contextmanager
def new_home(home: Path, *, replace: bool = False) -> Iterator[Path]:
    """Yield an empty folder, which becomes `home` when the block ends without an error.

    A home that is in use keeps its content under `former_name`. Whatever happens, `home` is at all
    times the old folder or the new one; what a killed process has left is removed by the next.

    Args:
        home: its place.
        replace: whether a home in use may be replaced.

    Raises:
        MovingError: it may not take that place, or another process is about to.
        OSError: it cannot be written.
    """
    require_place(home, replace=replace)
    make_folder(home.parent)
    staging = home.with_name(f".{home.name}.new")
    beside = os.open(home.parent, os.O_RDONLY)
    try:
        try:
            fcntl.flock(beside, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            msg = f"another command is writing in '{home.parent}'; wait for its end"
            raise MovingError(msg) from None
        shutil.rmtree(staging, ignore_errors=True)
        staging.mkdir(mode=0o700)
        try:
            yield staging
            os.sync()  # one call instead of one for each of many files
            require_place(home, replace=replace)
            _put(staging, home)
            os.fsync(beside)
        finally:
            shutil.rmtree(staging, ignore_errors=True)
    finally:
        os.close(beside)


def _put(staging: Path, home: Path) -> None:
    if is_blank(home):
        for path in home.iterdir() if home.exists() else ():
            if path.name == "logs" and not (staging / "logs").exists():
                path.rename(staging / path.name)
            else:
                shutil.rmtree(path)
        staging.rename(home)
        return
    # Under its last name before the exchange: the folder that the next process removes is at no
    # time the old home.
    former = former_name(home)
    staging.rename(former)
    try:
        _exchange(former, home)
    except MovingError:
        former.rename(staging)
        raise


def _exchange(one: Path, other: Path) -> None:
    """Let two folders exchange their names in one step.

    Raises:
        MovingError: this system cannot do that.
    """
    renameat2 = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    number = errno.ENOSYS
    if renameat2 is not None:
        names = os.fsencode(one), os.fsencode(other)
        if renameat2(_AT_FDCWD, names[0], _AT_FDCWD, names[1], _RENAME_EXCHANGE) == 0:
            return
        number = ctypes.get_errno()
    msg = (
        f"this system cannot replace '{other}' in one step ({os.strerror(number)}); rename that "
        "folder yourself and run the command again"
    )
    raise MovingError(msg)
