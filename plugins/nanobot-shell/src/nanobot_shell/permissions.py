"""Changes permissions and owners of files for a confined command, only where it may write.

Landlock has no rule for them, so seccomp sends these system calls to the supervisor
(seccomp_unotify(2)), which finds the file itself and changes it by descriptor. The kernel never
continues a call: the command could change its arguments in memory meanwhile. Like the launcher,
this module imports only what loads fast.
"""

from __future__ import annotations

import ctypes
import errno
import os
import stat
import struct
from fcntl import ioctl

CALLS: dict[str, tuple[int | None, int | None, int, int | None]] = {
    "chmod": (None, 0, 1, None),
    "fchmod": (0, None, 1, None),
    "fchmodat": (0, 1, 2, None),
    "fchmodat2": (0, 1, 2, 3),
    "chown": (None, 0, 1, None),
    "lchown": (None, 0, 1, None),
    "fchown": (0, None, 1, None),
    "fchownat": (0, 1, 2, 4),
}
"""Positions of the arguments: descriptor, path, mode or user, flags."""

RECEIVE, SEND, IS_VALID = 0xC0502100, 0xC0182101, 0x40082102
NOTICE = "=QIIiIQ6Q"
"""``struct seccomp_notif``: id, thread, flags, call, architecture, instruction, arguments."""
OPENAT2, AT_FDCWD, AT_SYMLINK_NOFOLLOW, AT_EMPTY_PATH = 437, -100, 0x100, 0x1000
NO_MAGIC_LINKS, NO_LINKS = 0x2, 0x6
PATH_MAX = 4096
_SELF = b"/proc/self/fd/"

_libc = ctypes.CDLL(None, use_errno=True)


def answer(listener: int, calls: dict[int, str], roots: list[bytes]) -> None:
    """Take one call from `listener`, carry it out if it is allowed, and return its result.

    Args:
        listener: descriptor for notifications of seccomp.
        calls: names of the calls by number.
        roots: paths without links, at or below which the command may change files.
    """
    notice = bytearray(struct.calcsize(NOTICE))
    try:
        ioctl(listener, RECEIVE, notice)
    except OSError:
        return
    identity, task, _, number, _, _, *arguments = struct.unpack(NOTICE, notice)
    code = 0
    try:
        files: list[int] = []
        try:
            name = calls[number]
            asked = _find(name, task, arguments, files)
            # The thread may have ended, and its number may be that of another one.
            ioctl(listener, IS_VALID, struct.pack("=Q", identity))
            _change(name, arguments, _locate(asked, files, roots))
        finally:
            for file in files:
                os.close(file)
    except (OSError, ValueError, OverflowError, KeyError) as error:
        code = getattr(error, "errno", None) or errno.EPERM
    try:
        ioctl(listener, SEND, struct.pack("=QqiI", identity, 0, -code, 0))
    except OSError:
        return


def _find(name: str, task: int, arguments: list[int], files: list[int]) -> int:
    """Open what the call names; what is opened goes into `files`."""
    folder_at, path_at, _, flags_at = CALLS[name]
    flags = 0 if flags_at is None else _signed(arguments[flags_at])
    if flags & ~(AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH):
        raise OSError(errno.EINVAL, "unknown flags")
    path = b"" if path_at is None else _read_path(task, arguments[path_at])
    if not path and path_at is not None and not flags & AT_EMPTY_PATH:
        raise OSError(errno.ENOENT, "empty path")
    follows = name != "lchown" and not flags & AT_SYMLINK_NOFOLLOW
    if follows and path.startswith(_SELF) and path[len(_SELF) :].isdigit():
        # The C library names descriptors in this way, and the kernel would take this process's.
        path, folder = b"", int(path[len(_SELF) :])
    else:
        folder = AT_FDCWD if folder_at is None else _signed(arguments[folder_at])
    place = "cwd" if folder == AT_FDCWD else f"fd/{folder}"
    files.append(os.open(f"/proc/{task}/{place}", os.O_PATH | os.O_CLOEXEC))
    return _open(files, path, NO_MAGIC_LINKS, follows=follows) if path else files[-1]


def _read_path(task: int, address: int) -> bytes:
    memory = os.open(f"/proc/{task}/mem", os.O_RDONLY | os.O_CLOEXEC)
    try:
        path, end, _ = os.pread(memory, PATH_MAX, address).partition(b"\0")
    finally:
        os.close(memory)
    if not end:
        raise OSError(errno.ENAMETOOLONG, "the path has no end")
    return path


def _open(files: list[int], path: bytes, resolve: int, *, follows: bool) -> int:
    flags = os.O_PATH | os.O_CLOEXEC | (0 if follows else os.O_NOFOLLOW)
    how = struct.pack("=QQQ", flags, 0, resolve)
    opened: int = _libc.syscall(
        ctypes.c_long(OPENAT2), ctypes.c_long(files[-1]), path, how, ctypes.c_long(len(how))
    )
    if opened < 0:
        raise OSError(ctypes.get_errno(), "cannot be opened")
    files.append(opened)
    return opened


def _locate(asked: int, files: list[int], roots: list[bytes]) -> int:
    """Return a descriptor of the same file, opened by its real place below a root.

    The place alone proves nothing: in a detached mount (open_tree(2)) it begins at another root.
    """
    place = os.readlink(b"/proc/self/fd/%d" % asked)  # noqa: PTH115  # pathlib costs time at start
    if not any(place == root or place.startswith(root + b"/") for root in roots):
        raise OSError(errno.EPERM, "outside")
    found = _open(files, place, NO_LINKS, follows=False)
    if not os.path.samestat(os.fstat(asked), os.fstat(found)):
        raise OSError(errno.EPERM, "moved")
    return found


def _change(name: str, arguments: list[int], file: int) -> None:
    position = CALLS[name][2]
    path = f"/proc/self/fd/{file}"
    if name in {"chown", "lchown", "fchown", "fchownat"}:
        os.chown(path, *(_signed(each) for each in arguments[position : position + 2]))
        return
    mode = arguments[position] & 0o7777
    # With a program that runs as the owner, other accounts would have all that the owner has.
    if mode & (stat.S_ISUID | stat.S_ISGID) and not stat.S_ISDIR(os.fstat(file).st_mode):
        raise OSError(errno.EPERM, "runs as the owner")
    os.chmod(path, mode)  # noqa: PTH101  # pathlib costs time at start


def _signed(value: int) -> int:
    value &= 0xFFFFFFFF
    return value - (1 << 32) if value >> 31 else value
