"""bubblewrap: the wall round a command.

Only what is listed here exists inside: system programs and libraries read-only, the workspace
read-write, empty folders in the place of the home folder and of temporary files. The rest of the
disk, /etc but for a few public files, and other processes are not there at all.
"""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

PROBE_LIMIT_S = 1.5
"""Below the two seconds that a check of ``nanobot doctor`` may take."""

INSTALL_HINT = (
    "install bubblewrap (apt install bubblewrap, dnf install bubblewrap) and allow unprivileged "
    "user namespaces, or set tools.exec.sandbox to none where the host is isolated already"
)
_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/opt", "/nix/store")
_PUBLIC_ETC = (
    *("alternatives", "ca-certificates", "crypto-policies", "fonts", "gai.conf", "group"),
    *("host.conf", "hosts", "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "localtime"),
    *("mime.types", "nsswitch.conf", "os-release", "passwd", "pki", "protocols", "resolv.conf"),
    *("services", "ssl/certs", "ssl/openssl.cnf", "timezone", "java", "perl", "python3"),
)
_PROTECTED = (
    *("sessions", ".nanobot", "memory/.git"),
    *("memory/history.jsonl", "memory/.dream_cursor", "history.jsonl", ".dream_cursor"),
)
"""The agent's own records below the workspace, which no file tool writes either."""
TEMPORARY_BYTES = 512 * 1024 * 1024
"""Most that a command may keep in memory as temporary files, per folder."""

_EMPTY = (
    *("--size", str(TEMPORARY_BYTES), "--tmpfs", "/tmp"),  # noqa: S108  # a folder inside the sandbox
    *("--symlink", "/tmp", "/var/tmp"),  # noqa: S108  # the same
)


@dataclass(frozen=True, slots=True)
class Sandbox:
    """How to put a command into bubblewrap.

    Attributes:
        program: path of ``bwrap``.
        workspace: the one folder that commands may change, absolute.
        home: folder that is empty inside, absolute.
        has_network: commands share the host's network.
        readable: more folders that are readable inside.
    """

    program: str
    workspace: Path
    home: Path
    has_network: bool
    readable: tuple[str, ...] = ()

    def wrap(self, argv: list[str], working_dir: Path) -> list[str]:
        """Return the command that runs `argv` in `working_dir` inside the sandbox."""
        workspace = str(self.workspace)
        options = [
            *("--die-with-parent", "--new-session", "--cap-drop", "ALL"),
            *("--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"),
            *(() if self.has_network else ("--unshare-net",)),
            *_system_binds(),
            *("--proc", "/proc", "--dev", "/dev", "--tmpfs", "/run"),
            *_EMPTY,
            *self._hidden_home(),
            *_read_only("/run/systemd/resolve"),
        ]
        for folder in self.readable:
            options += _read_only(folder)
        options += ["--bind", workspace, workspace]
        for path in self._records():
            options += _read_only(str(path))
        return [self.program, *options, "--chdir", str(working_dir), "--", *argv]

    def _records(self) -> list[Path]:
        """Return the records that exist; what a command has put in the place of one is none.

        bwrap follows links, and a link out of the workspace would be bound over the hidden home.
        """
        records = [self.workspace / name for name in _PROTECTED]
        return [path for path in records if path.exists() and path.resolve() == path]

    def _hidden_home(self) -> tuple[str, ...]:
        # Services often have the root as their home; nothing of it but what is listed is inside.
        if self.home == Path("/"):
            return ()
        return ("--size", str(TEMPORARY_BYTES), "--tmpfs", str(self.home))


@dataclass(frozen=True, slots=True)
class Probe:
    """Whether the sandbox works here: the sandbox, or why there is none."""

    sandbox: Sandbox | None
    reason: str = ""


def probe_sandbox(
    workspace: Path, home: Path, *, has_network: bool, path: str, readable: tuple[str, ...] = ()
) -> Probe:
    """Start ``true`` in the sandbox and report; blocking, at most `PROBE_LIMIT_S` seconds.

    Args:
        workspace: folder that is writable inside, absolute.
        home: folder that is hidden, absolute.
        has_network: whether the host's network is shared.
        path: folders in which ``bwrap`` is looked for, separated by colons.
        readable: more folders that are readable inside.
    """
    program = shutil.which("bwrap", path=path)
    if program is None:
        return Probe(None, "bubblewrap is not installed")
    sandbox = Sandbox(program, workspace.resolve(), home.resolve(), has_network, readable)
    try:
        done = subprocess.run(
            sandbox.wrap(["true"], sandbox.workspace),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=PROBE_LIMIT_S,
            check=False,
            env={"PATH": path},
        )
    except subprocess.TimeoutExpired:
        return Probe(None, f"bubblewrap did not start within {PROBE_LIMIT_S:g} seconds")
    except OSError as error:
        return Probe(None, f"bubblewrap cannot be started: {error.strerror}")
    if done.returncode != 0:
        said = done.stderr.decode(errors="replace").strip()[:200]
        return Probe(None, f"bubblewrap does not work here: {said or done.returncode}")
    return Probe(sandbox)


def _system_binds() -> list[str]:
    options: list[str] = []
    for folder in _SYSTEM:
        if Path(folder).is_symlink():
            options += ["--symlink", str(Path(folder).readlink()), folder]
        else:
            options += _read_only(folder)
    for name in _PUBLIC_ETC:
        options += _read_only(f"/etc/{name}")
    return options


def _read_only(path: str) -> list[str]:
    return ["--ro-bind-try", path, path]
