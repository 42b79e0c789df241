"""Landlock: a sandbox of the kernel that works without namespaces, Linux 5.13 or newer.

A rule allows access to everything below a folder, without exceptions. A rule for the workspace
would include the agent's records. Instead, each other entry of the workspace has a rule, and `WORK`
always exists for new files.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from nanobot_core import Folder
from nanobot_shell import launcher
from nanobot_shell.launcher import AF_INET, AF_INET6, AF_NETLINK
from nanobot_shell.view import PUBLIC, SYSTEM, View, around

WORK = "work"
"""Folder of the workspace in which commands may always make files."""
_DEVICES = ("null", "zero", "full", "random", "urandom")


@dataclass(frozen=True, slots=True)
class Landlock:
    """How to confine a command by Landlock.

    Attributes:
        abi: newest version of Landlock to use.
    """

    abi: int = launcher.MAX_ABI
    name: str = "Landlock"
    has_own_folders: bool = False
    limits: str = (
        f"make files and folders in {WORK}/ or another folder of the workspace, not at its top; "
        "temporary files go to $TMPDIR, there are no Unix sockets; chmod and chown work where you "
        "can write, and some containers allow only modes that give nothing to group and others"
    )

    def wrap(self, argv: list[str], view: View, working_dir: Path) -> list[str]:
        """Return the command that confines itself and runs `argv` in the current folder."""
        read = [
            path
            for folder in {
                each.resolve() for each in view.shown((*SYSTEM, *PUBLIC, *view.readable))
            }
            for path in around(folder, [view.home, *view.hidden_in(folder)])
        ]
        write = [view.temporary] if view.temporary else []
        listed: list[str] = []
        if view.workspace is not None:
            # A folder with something hidden in it is in no rule for reading.
            listed = [str(view.workspace)]
            hidden = view.hidden_in(view.workspace)
            read += around(view.workspace, hidden)
            write += _writable(view, view.workspace, hidden)
        return launch(
            argv,
            families=[AF_INET, AF_INET6, AF_NETLINK] if view.has_network else [],
            read=["/proc", *map(str, read)],
            write=list(map(str, write)),
            listed=listed,
            abi=self.abi,
        )


def _writable(view: View, workspace: Path, hidden: list[Path]) -> Iterator[Path]:
    if not view.records:
        yield from around(workspace, hidden)
        return
    with suppress(OSError):
        Folder(workspace).make(WORK, mode=0o777)
    own = [workspace / name for name in (*view.records, ".git")]
    # A rule on the whole workspace would also cover the records.
    yield from around(workspace, [*own, *hidden])


def launch(
    argv: list[str],
    *,
    families: list[int],
    read: list[str] | None = None,
    write: list[str] | None = None,
    listed: list[str] | None = None,
    abi: int = launcher.MAX_ABI,
) -> list[str]:
    """Return the command that runs `argv` through the launcher.

    Args:
        families: kinds of sockets that it may make.
        read: files and folders that it may read; ``None`` leaves files to another sandbox.
        write: files and folders that it may write.
        listed: folders whose names it may see, with the names below them.
        abi: newest version of Landlock to use.
    """
    plan = launcher.Plan(
        parent=os.getpid(),
        abi=abi,
        is_strict=read is not None,
        families=families,
        read=read or [],
        write=write or [],
        listed=listed or [],
        devices=[] if read is None else [f"/dev/{name}" for name in _DEVICES],
    )
    options = ("-I", "-S", "-B", str(Path(launcher.__file__)))
    return [sys.executable, *options, *plan.encode(), *argv]
