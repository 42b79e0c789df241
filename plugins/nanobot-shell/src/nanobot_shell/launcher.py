"""Confines itself with Landlock and seccomp, then becomes the command.

Run as a file, ``python -I -S launcher.py PLAN... PROGRAM ARGUMENT...``, where PROGRAM is a path. It
runs before each command and loads what starts fast: neither nanobot nor typing, json or signal.
If something cannot be set up, it exits with code 126 before the command starts.

Landlock decides on files: what no rule allows is refused. seccomp covers what Landlock has no rule
for: sockets, the keyring of the kernel, io_uring, limits of other processes, memory and queues that
processes share, and on kernels before 6.2 truncation by name. The parent of the command changes
permissions and owners of files, see `permissions`.
"""

from __future__ import annotations

import _socket
import ctypes
import os
import stat
import struct
import sys

MAX_ABI = 6
"""Newest version of Landlock whose rights are used here."""

CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446
ALL_FILES, READ, WRITE, DEVICE, LIST = 0xFFFF, 0xD, 0x77BF, 0x4006, 0x8
"""Bits of ``linux/landlock.h``: everything; execute, read, list; all but new device nodes and
``ioctl`` on devices; read, write, truncate; list."""
OF_FILES = 0xC007
"""Rights that a rule on something other than a directory may have."""
RIGHTS_OF_ABI = {1: 0x1FFF, 2: 0x3FFF, 3: 0x7FFF, 4: 0x7FFF, 5: 0xFFFF, 6: 0xFFFF}
SCOPED = 0b11
"""Abstract Unix sockets and signals of processes outside."""

PR_SET_PDEATHSIG, PR_SET_SECCOMP, PR_SET_NO_NEW_PRIVS, PR_CAP_AMBIENT = 1, 22, 38, 47
EPERM, EACCES, ENOSYS, EOPNOTSUPP = 1, 13, 38, 95
SIGKILL, SIGPIPE, SIGXFSZ = 9, 13, 25
AF_UNIX, AF_INET, AF_INET6, AF_NETLINK = 1, 2, 10, 16
SOCK_STREAM, SOCK_SEQPACKET = 1, 5


class Plan:
    """What the command may do.

    Args:
        parent: process with which the command ends.
        abi: newest version of Landlock to use.
        is_strict: restrict files to those below; without it, something else does.
        read: files and folders that may be read.
        write: files and folders that may be written.
        devices: devices that may be read and written.
        listed: folders in which, and below which, names may be seen.
    """

    def __init__(
        self,
        *,
        parent: int,
        abi: int,
        is_strict: bool,
        families: list[int],
        read: list[str],
        write: list[str],
        devices: list[str],
        listed: list[str],
    ) -> None:
        self.parent = parent
        self.abi = abi
        self.is_strict = is_strict
        self.families = families
        self.paths = ((READ, read), (WRITE, write), (DEVICE, devices), (LIST, listed))

    def encode(self) -> list[str]:
        """Return the plan as arguments: a few numbers, and lists with their lengths before them."""
        encoded = [str(self.parent), str(self.abi), str(int(self.is_strict))]
        for each in (map(str, self.families), *(paths for _, paths in self.paths)):
            values = list(each)
            encoded += [str(len(values)), *values]
        return encoded


def decode(arguments: list[str]) -> tuple[Plan, list[str]]:
    """Return the plan at the beginning of `arguments`, and the rest."""
    waiting = iter(arguments)
    parent, abi, is_strict = int(next(waiting)), int(next(waiting)), next(waiting) == "1"
    lists = [[next(waiting) for _ in range(int(next(waiting)))] for _ in range(5)]
    families, read, write, devices, listed = lists
    plan = Plan(
        parent=parent,
        abi=abi,
        is_strict=is_strict,
        families=list(map(int, families)),
        read=read,
        write=write,
        devices=devices,
        listed=listed,
    )
    return plan, list(waiting)


Machine = dict[str, int]
"""System calls by name, and the number of the architecture."""
MACHINES: dict[str, Machine] = {
    "x86_64": {
        "arch": 0xC000003E,
        "capset": 126,
        "socket": 41,
        "socketpair": 53,
        "truncate": 76,
        "open": 2,
        "openat": 257,
        "add_key": 248,
        "request_key": 249,
        "keyctl": 250,
        "seccomp": 317,
        "chmod": 90,
        "fchmod": 91,
        "fchmodat": 268,
        "fchmodat2": 452,
        "chown": 92,
        "lchown": 94,
        "fchown": 93,
        "fchownat": 260,
        "setxattr": 188,
        "removexattr": 197,
        "prlimit64": 302,
        "shmget": 29,
        "shmat": 30,
        "shmctl": 31,
        "semget": 64,
        "semop": 65,
        "semctl": 66,
        "semtimedop": 220,
        "msgget": 68,
        "msgsnd": 69,
        "msgrcv": 70,
        "msgctl": 71,
        "mq_open": 240,
        "mq_unlink": 241,
    },
    "aarch64": {
        "arch": 0xC00000B7,
        "capset": 91,
        "socket": 198,
        "socketpair": 199,
        "truncate": 45,
        "openat": 56,
        "add_key": 217,
        "request_key": 218,
        "keyctl": 219,
        "seccomp": 277,
        "fchmod": 52,
        "fchmodat": 53,
        "fchmodat2": 452,
        "fchown": 55,
        "fchownat": 54,
        "setxattr": 5,
        "removexattr": 14,
        "prlimit64": 261,
        "shmget": 194,
        "shmat": 196,
        "shmctl": 195,
        "semget": 190,
        "semop": 193,
        "semctl": 191,
        "semtimedop": 192,
        "msgget": 186,
        "msgsnd": 189,
        "msgrcv": 188,
        "msgctl": 187,
        "mq_open": 180,
        "mq_unlink": 181,
    },
}
KEYRING = ("add_key", "request_key", "keyctl")
MODES = {"chmod": 1, "fchmod": 1, "fchmodat": 2, "fchmodat2": 2}
"""Calls that change permissions, with the position of the mode."""
OWNERS = ("chown", "lchown", "fchown", "fchownat")
SHARED = (
    *("shmget", "shmat", "shmctl", "semget", "semop", "semctl", "semtimedop"),
    *("msgget", "msgsnd", "msgrcv", "msgctl", "mq_open", "mq_unlink"),
)
"""Calls on memory, semaphores and queues that all processes of the user share."""
IO_URING_SETUP, OPENAT2, SETXATTRAT, REMOVEXATTRAT = 425, 437, 463, 466

Filter = list[tuple[int, int, int, int]]
"""Instructions of ``linux/filter.h``: code, jump if true, jump if false, operand."""
LOAD, EQUAL, AT_LEAST, AND, RETURN = 0x20, 0x15, 0x35, 0x54, 0x06
ALLOW, NOTIFY, REFUSE = 0x7FFF0000, 0x7FC00000, 0x00050000
NEW_LISTENER = 8
NUMBER, ARCH, ARGUMENTS = 0, 4, 16
START = 6
"""Instructions of each filter that come before those for single system calls."""

_libc = ctypes.CDLL(None, use_errno=True)


def main() -> None:
    """Confine this process and start the command in it."""
    plan, program = decode(sys.argv[1:])
    machine = MACHINES.get(os.uname().machine)
    abi = min(landlock_abi(), plan.abi, MAX_ABI)
    _forget_coercion()
    _end_with(plan.parent)
    _prctl(PR_SET_NO_NEW_PRIVS, 1)
    channel = None
    if plan.is_strict:
        if abi < 1 or machine is None:
            raise OSError(ENOSYS, "this kernel or machine has no Landlock")
        _drop_capabilities(machine)
        channel = _supervised(plan, machine)
    if plan.is_strict or abi >= MAX_ABI:
        _restrict(plan, abi)
    if machine is not None:
        code = build_filter(machine, plan.families, guards_truncation=_is_blunt(plan, abi))
        if channel is None:
            _filter(code)
        else:
            _filter_strictly(code, machine, channel)
    # Python ignores these two, and a program that is started inherits that.
    for number in (SIGPIPE, SIGXFSZ):
        _libc.signal(number, None)
    os.execv(program[0], program)  # noqa: S606  # no shell is wanted


def _end_with(parent: int) -> None:
    _prctl(PR_SET_PDEATHSIG, SIGKILL)
    if os.getppid() != parent:
        sys.exit(126)


def _supervised(plan: Plan, machine: Machine) -> _socket.socket:
    """Return a channel to the supervisor, in a child of it.

    The supervisor is the parent, because Yama lets only ancestors read the memory of a process.
    """
    sys.path.append(os.path.dirname(os.path.dirname(__file__)))  # noqa: PTH120  # pathlib costs time
    from nanobot_shell.supervisor import adopt_orphans, supervise

    ours, theirs = _socket.socketpair()
    parent = os.getpid()
    adopt_orphans()
    child = os.fork()
    if not child:
        ours.close()
        _end_with(parent)
        return theirs
    theirs.close()

    calls = {machine[name]: name for name in (*MODES, *OWNERS) if name in machine}
    roots = [os.fsencode(path) for rights, paths in plan.paths if rights == WRITE for path in paths]
    supervise(child, plan.parent, ours, calls, roots)
    return ours


def _is_blunt(plan: Plan, abi: int) -> bool:
    return plan.is_strict and abi < 3


def _forget_coercion() -> None:
    """Remove the locale that Python itself put into the environment (PEP 538)."""
    with open("/proc/self/environ", "rb") as file:  # noqa: PTH123  # pathlib costs time at start
        if b"LC_CTYPE=" not in file.read():
            os.unsetenv("LC_CTYPE")


def landlock_abi() -> int:
    """Return the version of Landlock that the kernel has, 0 if it has none."""
    abi: int = _libc.syscall(CREATE_RULESET, None, 0, 1)
    return max(abi, 0)


def _restrict(plan: Plan, abi: int) -> None:
    files = RIGHTS_OF_ABI[abi] if plan.is_strict else 0
    attributes = struct.pack("=QQQ", files, 0, SCOPED if abi >= MAX_ABI else 0)
    size = 24 if abi >= MAX_ABI else 8
    ruleset = _call(CREATE_RULESET, attributes, size, 0)
    for rights, paths in plan.paths:
        for path in paths:
            _allow(ruleset, path, rights & files)
    _call(RESTRICT_SELF, ruleset, 0)
    os.close(ruleset)


def _allow(ruleset: int, path: str, rights: int) -> None:
    # Paths for writing are free of links; a link there has been put in the place of the file.
    link = 0 if not rights & WRITE & ~READ else os.O_NOFOLLOW
    try:
        handle = os.open(path, os.O_PATH | os.O_CLOEXEC | link)
    except OSError:
        return
    mode = os.fstat(handle).st_mode
    if not stat.S_ISDIR(mode):
        rights &= OF_FILES
    if not stat.S_ISLNK(mode):
        _call(ADD_RULE, ruleset, 1, struct.pack("=Qi", rights, handle), 0)
    os.close(handle)


def _drop_capabilities(machine: Machine) -> None:
    """Give up what root may do; without new privileges no program brings it back."""
    _libc.prctl(PR_CAP_AMBIENT, 4, 0, 0, 0)
    _call(machine["capset"], struct.pack("=Ii", 0x20080522, 0), bytes(24))


def build_filter(machine: Machine, families: list[int], *, guards_truncation: bool) -> Filter:
    """Return the program that seccomp runs for each system call."""
    refuse, missing = REFUSE | EACCES, REFUSE | ENOSYS
    code: Filter = [(LOAD, 0, 0, ARCH), (EQUAL, 1, 0, machine["arch"]), (RETURN, 0, 0, refuse)]
    code += [(LOAD, 0, 0, NUMBER), (AT_LEAST, 0, 1, 1 << 30), (RETURN, 0, 0, refuse)]
    for number in (*(machine[name] for name in KEYRING), IO_URING_SETUP):
        code += _on(number, [(RETURN, 0, 0, missing)])
    code += _on(machine["socket"], _only(0, families, refuse))
    if AF_UNIX not in families:
        # A pair of datagram sockets could be connected to another one later.
        kinds = _only(1, [SOCK_STREAM, SOCK_SEQPACKET], refuse)
        code += _on(machine["socketpair"], [kinds[0], (AND, 0, 0, 0xF), *kinds[1:]])
    if guards_truncation:
        code += _on(machine["truncate"], [(RETURN, 0, 0, refuse)])
        code += _on(OPENAT2, [(RETURN, 0, 0, missing)])
        code += _on(machine["openat"], _no_reading_truncation(2, refuse))
        if "open" in machine:
            code += _on(machine["open"], _no_reading_truncation(1, refuse))
    return [*code, (RETURN, 0, 0, ALLOW)]


def build_strict_filter(machine: Machine, code: Filter, *, is_supervised: bool) -> Filter:
    """Return `code` with rules on permissions of files, and on what belongs to other processes.

    Args:
        is_supervised: the supervisor decides; else nothing is opened to others.
    """
    refuse = [(RETURN, 0, 0, REFUSE | EPERM)]
    guarded: Filter = []
    for name in (*MODES, *OWNERS):
        if name in machine:
            body: Filter = refuse
            if is_supervised:
                body = [(RETURN, 0, 0, NOTIFY)]
            elif name in MODES:
                body = [(LOAD, 0, 0, ARGUMENTS + 8 * MODES[name]), (AND, 0, 0, 0o6077)]
                body += [*_on(0, [(RETURN, 0, 0, ALLOW)]), *refuse]
            guarded += _on(machine[name], body)
    guarded += _on(machine["prlimit64"], _only(0, [0], REFUSE | EPERM))
    for name in SHARED:
        guarded += _on(machine[name], [(RETURN, 0, 0, REFUSE | ENOSYS)])
    extended = [machine[name] + kind for name in ("setxattr", "removexattr") for kind in range(3)]
    for number in (*extended, SETXATTRAT, REMOVEXATTRAT):
        guarded += _on(number, [(RETURN, 0, 0, REFUSE | EOPNOTSUPP)])
    return [*code[:START], *guarded, *code[START:]]


def _on(number: int, body: Filter) -> Filter:
    """Return `body`, which must end with a return, for one system call."""
    return [(EQUAL, 0, len(body), number), *body]


def _only(argument: int, values: list[int], refuse: int) -> Filter:
    code: Filter = [(LOAD, 0, 0, ARGUMENTS + 8 * argument)]
    for value in values:
        code += _on(value, [(RETURN, 0, 0, ALLOW)])
    return [*code, (RETURN, 0, 0, refuse)]


def _no_reading_truncation(argument: int, refuse: int) -> Filter:
    flags = os.O_ACCMODE | os.O_TRUNC
    code: Filter = [(LOAD, 0, 0, ARGUMENTS + 8 * argument), (AND, 0, 0, flags)]
    return [*code, *_on(os.O_TRUNC, [(RETURN, 0, 0, refuse)]), (RETURN, 0, 0, ALLOW)]


def _filter_strictly(code: Filter, machine: Machine, channel: _socket.socket) -> None:
    try:
        guarded = build_strict_filter(machine, code, is_supervised=True)
        listener = _filter(guarded, seccomp=machine["seccomp"])
        passed = (_socket.SOL_SOCKET, _socket.SCM_RIGHTS, struct.pack("i", listener))
        channel.sendmsg([b"x"], [passed])
    except OSError:
        # Another filter of this process, such as that of a container, has the one listener.
        _filter(build_strict_filter(machine, code, is_supervised=False))


def _filter(code: Filter, *, seccomp: int | None = None) -> int:
    """Install a filter; with the number of the system call, return its listener."""
    packed = b"".join(struct.pack("=HBBI", *instruction) for instruction in code)
    memory = ctypes.create_string_buffer(packed, len(packed))
    program = struct.pack("HxxxxxxP", len(code), ctypes.addressof(memory))
    if seccomp is not None:
        return _call(seccomp, 1, NEW_LISTENER, program)
    _prctl(PR_SET_SECCOMP, 2, ctypes.create_string_buffer(program, len(program)))
    return -1


def _prctl(option: int, *arguments: object) -> None:
    rest = [ctypes.c_ulong(each) if isinstance(each, int) else each for each in arguments]
    rest += [ctypes.c_ulong(0)] * (4 - len(rest))
    if _libc.prctl(ctypes.c_int(option), *rest):
        _fail(f"prctl {option}")


def _call(number: int, *arguments: bytes | int) -> int:
    rest = [
        ctypes.c_long(each)
        if isinstance(each, int)
        else ctypes.create_string_buffer(each, len(each))
        for each in arguments
    ]
    result: int = _libc.syscall(ctypes.c_long(number), *rest)
    if result < 0:
        _fail(f"system call {number}")
    return result


def _fail(what: str) -> None:
    code = ctypes.get_errno()
    raise OSError(code, f"{what}: {os.strerror(code)}")


if __name__ == "__main__":
    try:
        main()
    except OSError as error:
        sys.stderr.write(f"cannot start in the sandbox: {error.strerror}\n")
        sys.exit(126)
