"""Parent of a confined command: answers its calls, and ends the processes that it leaves behind.

A descendant whose own parent has ended becomes a child of this process (PR_SET_CHILD_SUBREAPER), so
that none outlives the command, or nanobot itself. If this process is killed, so is the command, and
the calls that it would answer fail. Like the launcher, this module imports only what loads fast.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found,unused-ignore]
import _socket
import ctypes
import os
import select
import struct

from nanobot_shell.permissions import answer

PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_CHILD_SUBREAPER = 1, 4, 36
SIGKILL, SIGCHLD = 9, 17
_SIGNAL_INFO_BYTES = 128
"""Size of ``struct signalfd_siginfo``, and of a set of signals in the C library."""

_libc = ctypes.CDLL(None, use_errno=True)


def adopt_orphans() -> None:
    """Become the parent of descendants whose parent ends; called before there are any."""
    _libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def supervise(
    child: int, starter: int, channel: _socket.socket, calls: dict[int, str], roots: list[bytes]
) -> None:
    """Answer the calls of the command until it ends, then end as it did; never returns.

    Args:
        child: process of the command.
        starter: process that started this one; everything ends with it.
        channel: where the descriptor for notifications arrives, or the end if there is none.
        calls: names of the calls by number.
        roots: paths without links, at or below which the command may change files.
    """
    # Signals for the process group are for the command.
    _signal.pthread_sigmask(_signal.SIG_BLOCK, _signal.valid_signals())
    ended = _libc.signalfd(-1, struct.pack("=Q120x", 1 << (SIGCHLD - 1)), os.O_CLOEXEC)
    left = os.pidfd_open(starter)
    _libc.prctl(PR_SET_PDEATHSIG, 0, 0, 0, 0)
    null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    for standard in range(3):
        os.dup2(null, standard)
    os.chdir("/")
    ready = select.poll()
    ready.register(ended, select.POLLIN)
    ready.register(left, select.POLLIN)
    listener = _receive(channel)
    if listener is not None:
        ready.register(listener, select.POLLIN)
    status = _reap(child)
    while status is None and os.getppid() == starter:
        for each, event in ready.poll():
            if each == ended:
                os.read(ended, _SIGNAL_INFO_BYTES)
            elif event & select.POLLIN and each == listener:
                answer(each, calls, roots)
            else:
                ready.unregister(each)
        status = _reap(child)
    _end_children()
    _end_like(SIGKILL if status is None else status)


def _receive(channel: _socket.socket) -> int | None:
    _, parts, _, _ = channel.recvmsg(1, _socket.CMSG_SPACE(4))
    channel.close()
    return struct.unpack("i", parts[0][2])[0] if parts else None


def _reap(child: int) -> int | None:
    """Collect the processes that have ended; return the status of `child` if it is among them."""
    found = None
    try:
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            if ended[0] == child:
                found = ended[1]
    except ChildProcessError:
        pass
    return found


def _end_children() -> None:
    """Kill the children of this process, and theirs, which become its children then."""
    try:
        while True:
            while os.waitpid(-1, os.WNOHANG)[0]:
                continue
            for child in _children():
                os.kill(child, SIGKILL)
            os.waitpid(-1, 0)
    except ChildProcessError:
        return


def _children() -> list[int]:
    """Return the living children; only this process can free their numbers for others."""
    me, found = str(os.getpid()).encode(), []
    for name in filter(str.isdigit, os.listdir("/proc")):  # noqa: PTH208  # pathlib costs time
        try:
            with open(f"/proc/{name}/stat", "rb") as file:  # noqa: PTH123  # the same
                # proc(5): the name of the program may contain anything; then state and parent.
                parent = file.read().rpartition(b")")[2].split()[1]
        except OSError:
            continue
        if parent == me:
            found.append(int(name))
    return found


def _end_like(status: int) -> None:
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        # The command has written its core; this process writes none.
        _libc.prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)
        if number != SIGKILL:
            _libc.signal(number, None)
        os.kill(os.getpid(), number)
        _signal.pthread_sigmask(_signal.SIG_UNBLOCK, {number})
    os._exit(os.WEXITSTATUS(status))
