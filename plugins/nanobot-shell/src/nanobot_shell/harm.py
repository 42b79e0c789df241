"""Commands that are refused in every configuration because they are plainly harmful."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path, PurePath

from nanobot_shell.reading import Reading, Step
from nanobot_shell.syntax import Word
from nanobot_shell.view import RECORDS

_MEMORY_FILES = frozenset({"history.jsonl", "history-archive.jsonl", ".dream_cursor"})
_SAFE_DEVICES = frozenset(
    f"/dev/{name}" for name in ("null", "stdin", "stdout", "stderr", "tty", "zero", "full")
)
_POWER = frozenset({"shutdown", "reboot", "poweroff", "halt", "telinit"})
_POWER_ACTIONS = frozenset({"poweroff", "reboot", "halt", "kexec", "suspend", "hibernate"})
_DISKS = frozenset(
    {"diskpart", "wipefs", "mke2fs", "mkswap", "fdisk", "sfdisk", "parted", "sgdisk"}
)
_WRITERS = frozenset(
    {"tee", "cp", "mv", "install", "ln", "truncate", "shred", "rm", "unlink", "touch", "dd"}
)
_FIND_TESTS = re.compile(r"-(i?name|i?path|i?regex|empty|[acm](time|min)|newer\w*|size)$")
_FOREIGN_PROCESS = re.compile(r"/proc/(?!self/|thread-self/)[^/]+/.*(environ|mem|auxv|root|cwd|fd)")


def normal_path(text: str) -> str:
    """Return `text` with repeated slashes and folders named ``.`` taken out."""
    plain = re.sub(r"/(?:\.?/)+", "/", text)
    return re.sub(r"^/proc/(?:self|thread-self)/root(?=/)", "", plain)


@dataclass(frozen=True, slots=True)
class Ground:
    """Where recursive deletion is accepted; blocking, because links are followed on the disk.

    Attributes:
        workspace: the folder that commands work in, free of links.
        folders: where relative paths of the line may start, free of links.
        is_certain: no other folder is possible, and the line makes no links.
    """

    workspace: Path
    folders: tuple[Path, ...]
    is_certain: bool

    def may_delete(self, word: Word) -> bool:
        """Whether `word` is below the workspace and may be deleted with its contents."""
        path = Path(word.text)
        if not self.is_certain or not word.is_literal or word.text.startswith("~"):
            return False
        target = path.parent if word.has_glob else path
        if ".." in path.parts or any(mark in str(target) for mark in "*?[{"):
            return False
        return all(self._is_below(folder / target) for folder in self.folders)

    def holds(self, word: Word) -> bool:
        """Whether `word` is the workspace or something in it."""
        if not self.is_certain or not word.is_literal or word.has_glob or word.text[:1] == "~":
            return False
        return all(_resolve(at / word.text).is_relative_to(self.workspace) for at in self.folders)

    def _is_below(self, path: Path) -> bool:
        path = _resolve(path)
        if path == self.workspace or not path.is_relative_to(self.workspace):
            return False
        return path not in self.folders and path.relative_to(self.workspace).parts[0] not in RECORDS


def find_ground(workspace: Path, working_dir: Path, reading: Reading) -> Ground:
    """Return where the line may delete if it starts in `working_dir` and changes folders."""
    workspace = _resolve(workspace)
    folders, is_certain = [_resolve(working_dir)], True
    for step in reading.steps:
        if step.name in {"ln", "link", "mount"}:
            is_certain = False
        if step.name in {"cd", "pushd", "popd"}:
            operands = _operands(step)
            target = _resolve(folders[0] / operands[0].text) if operands else Path("/")
            plain = len(operands) == 1 and operands[0].is_literal and not operands[0].has_glob
            inside = target.is_relative_to(workspace) and not operands[0].text.startswith("~")
            is_certain = is_certain and plain and inside and ".." not in operands[0].text
            folders.append(target)
    return Ground(workspace, tuple(folders), is_certain)


def find_harm(reading: Reading, ground: Ground) -> str:
    """Return why a line must not run and what to do instead, or an empty string."""
    if reading.script.is_fork_bomb:
        return "a function that starts itself without end is refused; use a loop with a bound"
    return next(
        (why for step in reading.steps for rule in _RULES if (why := rule(step, ground))), ""
    )


def _recursive_delete(step: Step, ground: Ground) -> str:
    operands = _operands(step)
    if step.name == "rm" and has_option(step, "rR", "--recursive"):
        targets = operands
    elif step.name == "rsync" and any(w.text.startswith("--del") for w in step.arguments):
        targets = operands[-1:]
    elif step.name == "find" and any(word.text == "-delete" for word in step.arguments):
        return _find_delete(step, ground)
    else:
        return ""
    unsafe = next((word for word in targets if not ground.may_delete(word)), None)
    if targets and unsafe is None:
        return ""
    shown = repr(unsafe.text) if unsafe else "what its input names"
    return (
        f"recursive deletion of {shown} is refused; name a folder or file below the workspace "
        "literally, without '..', variables or a pattern at its top, in a line that makes no links"
    )


def _find_delete(step: Step, ground: Ground) -> str:
    starts: list[Word] = []
    for word in step.arguments:
        if word.text.startswith(("-", "(", "!")):
            break
        starts.append(word)
    selects = any(_FIND_TESTS.match(word.text) for word in step.arguments)
    if selects and all(ground.holds(word) for word in starts or [Word(".")]):
        return ""
    return (
        "find -delete is refused here; start it inside the workspace at a literal path and "
        "select what goes with -name or the like"
    )


def _windows_delete(step: Step, _ground: Ground) -> str:
    name = step.name.lower().removesuffix(".exe")
    refused = {"del": "/f/s/q", "erase": "/f/s/q", "rmdir": "/s", "rd": "/s"}.get(name, "")
    if any(
        re.match(r"/\w$", w.text) and w.text.lower() in refused for w in step.arguments if refused
    ):
        return f"{name} with such switches is refused; delete single files"
    return ""


def _disk(step: Step, _ground: Ground) -> str:
    name = step.name.lower().removesuffix(".exe").removesuffix(".com")
    formats = name == "format" and any(re.match(r"[a-zA-Z]:", w.text) for w in step.arguments)
    if formats or name in _DISKS or name.startswith("mkfs"):
        return f"{step.name} changes disks and is refused; ask the owner to run it"
    return ""


def _device(step: Step, _ground: Ground) -> str:
    targets = step.written
    if step.name in _WRITERS:
        targets += _operands(step)
    for word in targets:
        key, _, value = word.text.partition("=")
        path = normal_path(value if step.name == "dd" and key in {"if", "of"} else word.text)
        safe = _SAFE_DEVICES - {"/dev/zero"} if step.name == "dd" else _SAFE_DEVICES
        is_device = re.match(r"/dev/(?!fd/|shm/)", path) and path not in safe
        if is_device or (step.name == "dd" and not word.is_literal):
            return f"{word.text!r} is refused; devices belong to the owner"
    return ""


def _power(step: Step, _ground: Ground) -> str:
    actions = {"init": {"0", "6"}, "systemctl": _POWER_ACTIONS}.get(step.name, set())
    if step.name in _POWER or any(word.text in actions for word in step.arguments if actions):
        return f"{step.name} would stop the machine and is refused; ask the owner"
    return ""


def _foreign_process(step: Step, _ground: Ground) -> str:
    redirected = (redirect.target for redirect in step.command.redirects)
    for word in (*step.arguments, *redirected) if step.is_head else ():
        if _FOREIGN_PROCESS.search(normal_path(word.text)):
            return f"{word.text!r} is refused: the memory and environment of others are private"
    return ""


def _own_memory(step: Step, _ground: Ground) -> str:
    targets = step.written
    edits_in_place = step.name in {"sed", "perl"} and has_option(step, "i", "--in-place")
    if step.name in _WRITERS or edits_in_place:
        targets += step.arguments
    for word in targets:
        name = PurePath(word.text.partition("=")[2] or word.text).name
        if name in _MEMORY_FILES:
            return f"{name} is written by the agent itself, and commands cannot change it"
    return ""


def has_option(step: Step, letters: str, long: str) -> bool:
    """Whether one of the options is given; the long one can be abbreviated."""
    for word in step.arguments:
        text = word.text
        if text.startswith("--"):
            name = text.partition("=")[0]
            if len(name) > 3 and long.startswith(name):
                return True
        elif text.startswith("-") and any(letter in text for letter in letters):
            return True
    return False


def _operands(step: Step) -> list[Word]:
    return [word for word in step.arguments if not word.text.startswith("-")]


def _resolve(path: Path) -> Path:
    """Return `path` with links followed; if that fails, the root, which is never inside."""
    try:
        return path.resolve()
    except (OSError, ValueError, RuntimeError):
        return Path("/")


_RULES: tuple[Callable[[Step, Ground], str], ...] = (
    _recursive_delete,
    _windows_delete,
    _disk,
    _device,
    _power,
    _foreign_process,
    _own_memory,
)
