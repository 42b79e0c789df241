"""The part of the disk that a command in a sandbox sees: the same for every kind of sandbox.

Only what is listed here exists for it: system programs and libraries, a few public files of /etc,
and the workspace, in which the agent's memory can be read and not written, and conversations are
hidden.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from nanobot_core import Folder, ToolFailed

SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/opt", "/nix/store")
_PUBLIC_ETC = (
    *("alternatives", "ca-certificates", "crypto-policies", "fonts", "gai.conf", "group"),
    *("host.conf", "hosts", "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "localtime"),
    *("mime.types", "nsswitch.conf", "os-release", "passwd", "pki", "protocols", "resolv.conf"),
    *("services", "ssl/certs", "ssl/openssl.cnf", "timezone", "java", "perl", "python3"),
)
# Files only: in the same folder is a socket that asks name servers, also with the network off.
_RESOLVE = ("/run/systemd/resolve/resolv.conf", "/run/systemd/resolve/stub-resolv.conf")
PUBLIC = (*(f"/etc/{name}" for name in _PUBLIC_ETC), *_RESOLVE)
"""Files and folders outside of `SYSTEM` that hold no secret."""
RECORDS = (".nanobot", "memory", "sessions")
"""The agent's own folders in the workspace: commands read them at most."""
CONVERSATIONS = (".nanobot", "sessions")
"""Those of them that hold what others have said, and what tools found for them."""
_MAX_ENTRIES = 4096


@dataclass(frozen=True, slots=True)
class View:
    """What is visible. All paths are absolute and free of links.

    Attributes:
        home: folder that appears empty.
        hidden: files and folders that are not visible, even inside those that are.
        readable: further folders that commands can read.
        has_network: commands share the host's network.
        workspace: the folder that commands may change; ``None`` for a trial.
        records: names in the workspace that they may only read.
        temporary: folder for temporary files, for sandboxes that have none of their own.
    """

    home: Path
    hidden: tuple[Path, ...] = ()
    readable: tuple[Path, ...] = ()
    has_network: bool = True
    workspace: Path | None = None
    records: tuple[str, ...] = ()
    temporary: Path | None = None

    def hidden_in(self, folder: Path) -> list[Path]:
        """Return what is hidden in `folder`; paths in the workspace only if it is the workspace."""
        found = [path for path in self.hidden if path.is_relative_to(folder)]
        return [path for path in found if folder == self.workspace or not self._is_own(path)]

    def shown(self, folders: Iterable[str | Path]) -> Iterator[Path]:
        """Yield those of `folders` that exist and lie in nothing hidden."""
        for name in folders:
            folder = Path(name)
            resolved = folder.resolve()
            if exists(resolved) and not any(map(resolved.is_relative_to, self.hidden)):
                yield folder

    def is_visible(self, folder: str | Path) -> bool:
        """Whether `folder` exists inside."""
        roots = [*map(Path, SYSTEM), *self.readable, *filter(None, [self.workspace])]
        resolved = Path(folder).resolve()
        is_shown = any(resolved.is_relative_to(root.resolve()) for root in roots)
        return is_shown and not any(map(resolved.is_relative_to, self.hidden))

    def _is_own(self, path: Path) -> bool:
        return self.workspace is not None and path.is_relative_to(self.workspace)


def exists(path: Path) -> bool:
    """Whether this process, and thus a command, can find `path`."""
    try:
        return path.exists()
    except OSError:
        return False


def around(folder: Path, left_out: Iterable[Path]) -> Iterator[Path]:
    """Yield the fewest paths that together cover `folder` without `left_out`.

    For rules that apply to everything below a path, without exceptions. Folders that contain
    something of `left_out`, links, and entries beyond the first 4,096 are not covered.
    """
    inner = [path for path in left_out if path.is_relative_to(folder)]
    if not inner:
        yield folder
    elif folder not in inner:
        with suppress(OSError):
            for name, facts in Folder(folder).scan()[:_MAX_ENTRIES]:
                if not stat.S_ISLNK(facts.st_mode):
                    yield from around(folder / name, inner)


def prepare_workspace(workspace: Path) -> None:
    """Create the folders of the agent's records, so that a command cannot put links in their place.

    Raises:
        ToolFailed: something else has one of their names.
    """
    folder = Folder(workspace)
    for name in RECORDS:
        try:
            folder.make(name)
        except OSError as error:
            raise ToolFailed(_in_the_way(name, error)) from error
    if kind_of(folder, ".git") == stat.S_IFLNK:
        raise ToolFailed(_in_the_way(".git", "it is a link"))
    remove_redirection(workspace)


def kind_of(folder: Folder, name: str) -> int:
    """Return the type of a file in the terms of ``stat.S_IFMT``; 0 if there is none."""
    try:
        return stat.S_IFMT(folder.stat(name).st_mode)
    except OSError:
        return 0


def remove_redirection(workspace: Path) -> None:
    """Remove ``.git/commondir``, by which git takes configuration and hooks from elsewhere.

    No mount can hold the place of a file that must not exist. In a repository of its own, as the
    workspace's is, git makes no such file.
    """
    with suppress(OSError), Folder(workspace).parent(".git/commondir") as git:
        os.unlink("commondir", dir_fd=git)


def _in_the_way(name: str, reason: object) -> str:
    return (
        f"no command can run: '{name}' in the workspace must be a folder, and {reason}; move it "
        "elsewhere"
    )
