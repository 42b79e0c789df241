"""The programs that a command line starts, as far as they are known before it runs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from nanobot_shell.syntax import Command, Redirect, Script, Word, parse_script

MAX_DEPTH = 4
"""Command lines inside command lines that are followed."""
MAX_WORDS = 64
"""Arguments of such a command that are looked at."""
HARMLESS_FILES = frozenset(f"/dev/{name}" for name in ("null", "stdin", "stdout", "stderr"))

_STARTERS = frozenset(
    {
        *("!", "builtin", "busybox", "chroot", "chrt", "command", "coproc", "doas", "env", "eval"),
        *("exec", "find", "flock", "ionice", "nice", "nohup", "nsenter", "parallel", "pkexec"),
        *("prlimit", "runuser", "script", "setpriv", "setsid", "stdbuf", "strace", "su", "sudo"),
        *("systemd-run", "taskset", "time", "timeout", "toybox", "trap", "unshare", "watch"),
        *("xargs", "ash", "bash", "dash", "ksh", "sh", "zsh"),
    }
)
"""Programs that start what their arguments name: each argument may be a program or a line."""


@dataclass(frozen=True, slots=True)
class Step:
    """A program that the line starts, or may start, with its arguments.

    Attributes:
        name: the program without its folder.
        arguments: what follows the name.
        command: the simple command that it comes from.
        is_head: it is the command itself, and not one of its arguments.
    """

    name: str
    arguments: tuple[Word, ...]
    command: Command
    is_head: bool = True

    @property
    def written(self) -> list[Word]:
        """The files into which the shell redirects."""
        redirects = self.command.redirects if self.is_head else ()
        return [redirect.target for redirect in redirects if redirect.writes]

    @property
    def text(self) -> str:
        """Name and arguments, quotes removed."""
        return " ".join((self.name, *(word.text for word in self.arguments)))


@dataclass(frozen=True, slots=True)
class Reading:
    """All that could be read of a command line.

    Attributes:
        script: the line itself.
        steps: the programs it starts, those in arguments of others included.
    """

    script: Script
    steps: tuple[Step, ...] = field(default=())

    @property
    def values(self) -> tuple[str, ...] | None:
        """What the owner's patterns are compared with; ``None`` if the line could not be read.

        Each simple command as it was written, and by itself each file that one is connected with,
        so that a pattern for a program does not allow writing to a file.
        """
        commands = self.script.commands
        if not self.script.is_complete or not commands:
            return None
        files = (each.source for command in commands for each in command.redirects if is_file(each))
        return tuple(dict.fromkeys((*(command.whole for command in commands), *files)))

    @property
    def has_computed_program(self) -> bool:
        """Whether the shell decides only at run time what it starts."""
        heads = (command.words[0] for command in self.script.commands if command.words)
        return any(not head.is_literal or head.has_glob for head in heads)


def read_command_line(text: str) -> Reading:
    """Return what `text` starts."""
    script = parse_script(text)
    return Reading(script, tuple(_steps(script, 0)))


def is_file(redirect: Redirect) -> bool:
    """Whether a redirection opens a file that can have content."""
    target = redirect.target
    is_copy = redirect.operator.endswith("&") and (target.text.isdigit() or target.text == "-")
    is_text = redirect.operator == "<<"
    return not is_copy and not is_text and target.text not in HARMLESS_FILES


def _steps(script: Script, depth: int) -> Iterator[Step]:
    for command in script.commands:
        if not command.words:
            yield Step("", (), command)
        for start, word in enumerate(command.words[:MAX_WORDS]):
            yield Step(_base_name(word), command.words[start + 1 :], command, not start)
            if _base_name(command.words[0]) not in _STARTERS:
                break
            if start and depth < MAX_DEPTH and re.search(r"[\s;&|]", word.text):
                yield from _steps(parse_script(word.text), depth + 1)


def _base_name(word: Word) -> str:
    return word.text.rpartition("/")[2]
