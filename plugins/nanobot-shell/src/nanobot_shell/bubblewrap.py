"""bubblewrap: runs a command in namespaces of its own."""

from __future__ import annotations

import stat
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from nanobot_core import Folder
from nanobot_shell.landlock import launch
from nanobot_shell.launcher import AF_INET, AF_INET6, AF_NETLINK, AF_UNIX
from nanobot_shell.view import PUBLIC, SYSTEM, View, exists, kind_of

TEMPORARY_BYTES = 512 * 1024 * 1024
"""Most that a command may keep in memory as temporary files, per folder."""

_EMPTY = (
    *("--size", str(TEMPORARY_BYTES), "--tmpfs", "/tmp"),  # noqa: S108  # a folder inside the sandbox
    *("--symlink", "/tmp", "/var/tmp"),  # noqa: S108  # the same
)
_OWN_TO_GIT = ("config", "config.worktree", "hooks", "modules")
"""Files of a repository from which git takes commands."""


@dataclass(frozen=True, slots=True)
class Bubblewrap:
    """How to put a command into bubblewrap.

    Attributes:
        program: path of ``bwrap``.
    """

    program: str
    name: str = "bubblewrap"
    has_own_folders: bool = True
    limits: str = ""

    def wrap(self, argv: list[str], view: View, working_dir: Path) -> list[str]:
        """Return the command that runs `argv` in `working_dir` inside the sandbox."""
        options = [
            *("--die-with-parent", "--new-session", "--cap-drop", "ALL"),
            *("--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"),
            *(() if view.has_network else ("--unshare-net",)),
            *_system(),
            *("--proc", "/proc", "--dev", "/dev", "--tmpfs", "/run"),
            *_EMPTY,
            # Services often have the root as their home; nothing is inside but what is listed.
            *(() if view.home == Path("/") else _empty(view.home)),
        ]
        for path in view.shown((*PUBLIC, *view.readable)):
            options += _read_only(path)
        for folder in {each.resolve() for each in view.shown((*SYSTEM, *PUBLIC, *view.readable))}:
            options += _masks(view.hidden_in(folder))
        if view.workspace is not None:
            options += _workspace(view, view.workspace)
        wrapped = [self.program, *options, "--chdir", str(working_dir), "--", *argv]
        if Path(self.program).stat().st_mode & stat.S_ISUID:
            # What the launcher does first would take the program's rights away.
            return wrapped
        return launch(wrapped, families=[AF_UNIX, AF_INET, AF_INET6, AF_NETLINK])


def _system() -> list[str]:
    options: list[str] = []
    for folder in SYSTEM:
        if Path(folder).is_symlink():
            options += ["--symlink", str(Path(folder).readlink()), folder]
        else:
            options += _read_only(folder)
    return options


def _workspace(view: View, workspace: Path) -> list[str]:
    """Bind the workspace, and read-only what is the agent's own in it.

    A mount stays where its folder goes. Each folder on the way to one is therefore a mount too,
    which cannot be renamed.
    """
    options = _writable(workspace)
    for name in view.records:
        options += _read_only(workspace / name)
    if view.records:
        options += _git(workspace)
    hidden = list(filter(exists, view.hidden_in(workspace)))
    between = {parent for path in hidden for parent in path.relative_to(workspace).parents}
    for inner in sorted(between - {Path()}):
        options += _writable(workspace / inner)
    return options + _masks(hidden)


def _git(workspace: Path) -> list[str]:
    """Protect the files from which git takes commands.

    Only the owner can make the workspace a repository; until then, commands see an empty ``.git``.
    """
    git, folder = workspace / ".git", Folder(workspace)
    if kind_of(folder, ".git") == stat.S_IFREG:
        return _read_only(git)
    if kind_of(folder, ".git/config") != stat.S_IFREG:
        return ["--tmpfs", str(git), "--remount-ro", str(git)]
    folder.make(".git/hooks")
    options = _writable(git)
    for name in _OWN_TO_GIT:
        if kind_of(folder, f".git/{name}") in {stat.S_IFREG, stat.S_IFDIR}:
            options += _read_only(git / name)
    return options


def _masks(paths: Iterable[Path]) -> list[str]:
    options: list[str] = []
    for path in filter(exists, paths):
        options += _empty(path) if path.is_dir() else ["--ro-bind", "/dev/null", str(path)]
    return options


def _empty(path: Path) -> list[str]:
    return ["--size", str(TEMPORARY_BYTES), "--tmpfs", str(path)]


def _writable(path: Path) -> list[str]:
    return ["--bind", str(path), str(path)]


def _read_only(path: str | Path) -> list[str]:
    return ["--ro-bind-try", str(path), str(path)]
