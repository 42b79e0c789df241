"""Seatbelt: the sandbox of macOS, by ``sandbox-exec`` and a profile."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from nanobot_shell.view import View

PROGRAM = "/usr/bin/sandbox-exec"
_SYSTEM = (
    *("/usr", "/bin", "/sbin", "/opt", "/nix/store", "/Library", "/System", "/private/etc"),
    *("/private/var/db", "/private/var/select", "/Applications/Xcode.app", "/dev"),
)
_DEVICES = ("/dev/null", "/dev/zero", "/dev/tty")
_BASE = """\
(version 1)
(deny default)
(import "bsd.sb")
(allow process-fork)
(allow process-exec)
(allow signal (target same-sandbox))
(allow sysctl-read)
(allow file-read-metadata)"""


@dataclass(frozen=True, slots=True)
class Seatbelt:
    """How to put a command into Seatbelt."""

    name: str = "Seatbelt"
    has_own_folders: bool = False
    limits: str = "temporary files go to $TMPDIR"

    def wrap(self, argv: list[str], view: View, working_dir: Path) -> list[str]:
        """Return the command that runs `argv` in the sandbox, in the current folder."""
        return [PROGRAM, "-p", render_profile(view), *argv]


def render_profile(view: View) -> str:
    """Return the profile for `view`. The last rule that matches applies."""
    rules = [
        _BASE,
        _rule("allow file-read*", map(Path, _SYSTEM)),
        _rule("deny file-read*", [] if view.home == Path("/") else [view.home]),
        _rule("allow file-read*", view.readable),
        _rule("allow file-write*", map(Path, _DEVICES)),
    ]
    outer = [path for path in view.hidden if not _is_in(path, view.workspace)]
    rules.append(_rule("deny file-read* file-write*", outer))
    own = [path for path in (view.workspace, view.temporary) if path]
    rules.append(_rule("allow file-read* file-write*", own))
    if view.workspace is not None:
        records = [view.workspace / name for name in view.records]
        git = [view.workspace / ".git" / name for name in ("config", "hooks", "commondir")]
        rules.append(_rule("deny file-write*", [*records, *(git if records else [])]))
        if records:
            # A renamed repository would no longer be protected.
            rules.append(f"(deny file-write-unlink (literal {_quoted(view.workspace / '.git')}))")
        inner = [path for path in view.hidden if _is_in(path, view.workspace)]
        rules.append(_rule("deny file-read* file-write*", inner))
    if view.has_network:
        rules.append("(allow network* system-socket)")
    return "\n".join(filter(None, rules)) + "\n"


def _is_in(path: Path, folder: Path | None) -> bool:
    return folder is not None and path.is_relative_to(folder)


def _rule(what: str, paths: Iterable[Path]) -> str:
    filters = "".join(f"\n  (subpath {_quoted(path)})" for path in paths)
    return f"({what}{filters})" if filters else ""


def _quoted(path: Path) -> str:
    text = str(path).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{text}"'
