"""Commands that are refused whatever the sandbox would make of them."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import PurePath

from nanobot_shell.places import Places
from nanobot_shell.syntax import Word
from nanobot_shell.unwrap import Step

PROTECTED_NAMES = frozenset({"history.jsonl", ".dream_cursor"})
"""Files of the agent's own memory that no command may write."""

_SAFE_DEVICES = frozenset(
    f"/dev/{name}" for name in ("null", "stdin", "stdout", "stderr", "tty", "zero", "full")
)
_POWER = frozenset({"shutdown", "reboot", "poweroff", "halt", "telinit"})
_POWER_ACTIONS = frozenset({"poweroff", "reboot", "halt", "kexec", "suspend", "hibernate"})
_DISKS = frozenset(
    {"diskpart", "wipefs", "mke2fs", "mkswap", "fdisk", "sfdisk", "parted", "sgdisk"}
)
_WRITERS = frozenset(
    {
        *("tee", "cp", "mv", "install", "ln", "truncate", "shred", "rm", "unlink", "rsync"),
        *("touch", "dd", "sponge", "patch", "ed", "ex", "vim", "vi", "nano", "chmod", "chattr"),
    }
)
_FIND_TESTS = re.compile(
    r"-(i?name|i?path|i?regex|i?wholename|empty|[acm](time|min)|newer\w*|size)$"
)
_FOREIGN_PROCESS = re.compile(
    r"/proc/+(?!self/|thread-self/)[^/]+/.*(environ|mem|auxv|root|cwd|fd)"
)

Rule = Callable[[Step, Places], str]


def refusal_of(step: Step, places: Places) -> str:
    """Return why `step` must not run and what to do instead, or an empty string."""
    for rule in _RULES:
        if reason := rule(step, places):
            return reason
    return ""


def _recursive_delete(step: Step, places: Places) -> str:
    if step.name == "rm" and has_option(step, "rR", "--recursive"):
        targets = _operands(step)
    elif step.name == "find" and any(word.text == "-delete" for word in step.arguments):
        return _find_delete(step, places)
    elif step.name == "rsync" and any(w.text.startswith("--del") for w in step.arguments):
        targets = _operands(step)[-1:]
    else:
        return ""
    unsafe = next((word for word in targets if not places.may_delete(word)), None)
    if targets and unsafe is None:
        return ""
    shown = repr(unsafe.text) if unsafe else "what its input names"
    return (
        f"recursive deletion of {shown} is refused; name a folder or file below the workspace "
        "literally, without '..', variables or a pattern at its top, in a line that makes no links"
    )


def _find_delete(step: Step, places: Places) -> str:
    starts: list[Word] = []
    for word in step.arguments:
        if word.text.startswith(("-", "(", "!")):
            break
        starts.append(word)
    selects = any(_FIND_TESTS.match(word.text) for word in step.arguments)
    if selects and all(places.is_inside(word) for word in starts or [Word(".")]):
        return ""
    return (
        "find -delete is refused here; start it inside the workspace at a literal path and "
        "select what goes with -name or the like"
    )


def _windows_delete(step: Step, _: Places) -> str:
    name = step.name.lower().removesuffix(".exe")
    switches = {word.text.lower() for word in step.arguments}
    if (name in {"del", "erase"} and switches & {"/f", "/s", "/q"}) or (
        name in {"rmdir", "rd"} and "/s" in switches
    ):
        return f"{name} with such switches is refused; delete single files"
    return ""


def _disk(step: Step, _: Places) -> str:
    name = step.name.lower().removesuffix(".exe").removesuffix(".com")
    formats = name == "format" and any(re.match(r"[a-zA-Z]:", w.text) for w in step.arguments)
    if formats or name in _DISKS or name.startswith("mkfs"):
        return f"{step.name} changes disks and is refused; ask the owner to run it"
    return ""


def _device_copy(step: Step, _places: Places) -> str:
    if step.name not in {"dd", "dcfldd", "ddrescue"}:
        return ""
    for word in step.arguments:
        key, _, value = word.text.partition("=")
        device = _is_device(value) and value not in {"/dev/null", "/dev/stdin", "/dev/stdout"}
        if key in {"if", "of"} and (device or not word.is_literal):
            return f"dd with {word.text!r} is refused; use files, or head -c for bytes of a source"
    return ""


def _device_write(step: Step, _: Places) -> str:
    targets = [redirect.target for redirect in step.command.redirects if redirect.writes]
    if step.name in _WRITERS:
        targets.extend(_operands(step))
    for word in targets:
        path = re.sub(r"/+", "/", word.text)
        if _is_device(path) and path not in _SAFE_DEVICES and not path.startswith("/dev/fd/"):
            return f"writing to {word.text!r} is refused; devices belong to the owner"
    return ""


def _power(step: Step, _: Places) -> str:
    words = {word.text for word in step.arguments}
    if (
        step.name in _POWER
        or (step.name == "init" and words & {"0", "6"})
        or (step.name == "systemctl" and words & _POWER_ACTIONS)
    ):
        return f"{step.name} would stop the machine and is refused; ask the owner"
    return ""


def _foreign_process(step: Step, _: Places) -> str:
    for word in (*step.arguments, *(redirect.target for redirect in step.command.redirects)):
        if _FOREIGN_PROCESS.search(word.text):
            return f"{word.text!r} is refused: the memory and environment of others are private"
    return ""


def _own_memory(step: Step, _: Places) -> str:
    targets = [redirect.target for redirect in step.command.redirects if redirect.writes]
    edits_in_place = step.name in {"sed", "gsed", "perl"} and has_option(step, "i", "--in-place")
    if step.name in _WRITERS or edits_in_place:
        targets.extend(step.arguments)
    for word in targets:
        name = PurePath(word.text.partition("=")[2] or word.text).name
        if name in PROTECTED_NAMES:
            return (
                f"{name} is kept by the agent itself and must not be written; use the memory tools"
            )
    return ""


def has_option(step: Step, letters: str, long: str) -> bool:
    """Whether one of the options is given, the long one also where it is cut short."""
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


def _is_device(path: str) -> bool:
    return path.startswith("/dev/")


_RULES: tuple[Rule, ...] = (
    _recursive_delete,
    _windows_delete,
    _disk,
    _device_copy,
    _device_write,
    _power,
    _foreign_process,
    _own_memory,
)
