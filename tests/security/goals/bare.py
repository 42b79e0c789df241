"""A small machine, and one without sandboxes, played by what the system offers.

``python -I -S bare.py walls|bare PROGRAM ARGUMENTS...`` starts a program with little memory. With
``bare``, a filter of system calls makes it believe that Landlock does not exist and that nothing
can be mounted, so that neither Landlock nor bubblewrap works, wherever it comes from. All of this
holds for what the program starts, too. Nothing of nanobot is changed or imported.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import resource
import struct
import sys

_NO_NEW_PRIVILEGES, _SECCOMP, _FILTER = 38, 22, 2
_LANDLOCK_CREATE_RULESET = 444
_MOUNT = {"x86_64": 165, "aarch64": 40}
"""By machine; Landlock's number is the same on both."""
_LOAD, _EQUAL, _RETURN = 0x20, 0x15, 0x06
_ALLOW, _FAIL = 0x7FFF0000, 0x00050000
_LANDLOCK_VERSION = 1
_ADDRESS_BYTES = 3 * 1024**3
"""More than nanobot uses, and less than the files that it must not read as a whole."""


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_void_p))


def missing() -> str:
    """Return why this machine cannot play one without sandboxes; empty when it can."""
    return "" if platform.machine() in _MOUNT else f"no filter for {platform.machine()}"


def has_landlock() -> bool:
    """Whether the kernel has Landlock."""
    found: int = ctypes.CDLL(None).syscall(_LANDLOCK_CREATE_RULESET, None, 0, _LANDLOCK_VERSION)
    return found > 0


def _refuse_sandboxes() -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    lines = [
        (_LOAD, 0, 0, 0),
        (_EQUAL, 2, 0, _LANDLOCK_CREATE_RULESET),
        (_EQUAL, 2, 0, _MOUNT[platform.machine()]),
        (_RETURN, 0, 0, _ALLOW),
        (_RETURN, 0, 0, _FAIL | errno.ENOSYS),
        (_RETURN, 0, 0, _FAIL | errno.EPERM),
    ]
    text = b"".join(struct.pack("HBBI", *line) for line in lines)
    code = ctypes.create_string_buffer(text, len(text))
    program = _Program(len(lines), ctypes.cast(code, ctypes.c_void_p))
    for words in ((_NO_NEW_PRIVILEGES, 1, 0, 0, 0), (_SECCOMP, _FILTER, ctypes.byref(program))):
        if libc.prctl(*words) != 0:
            raise OSError(ctypes.get_errno(), "the filter cannot be set")


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_AS, (_ADDRESS_BYTES, _ADDRESS_BYTES))
    if sys.argv[1] == "bare":
        _refuse_sandboxes()
    os.execvp(sys.argv[2], sys.argv[2:])  # noqa: S606 - no shell is wanted
