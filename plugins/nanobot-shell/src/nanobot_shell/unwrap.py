"""Commands that run commands: what ``sudo``, ``xargs``, ``sh -c`` and their kind start."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from nanobot_shell.syntax import Command, Script, Word, parse_script

MAX_DEPTH = 6
"""Command lines inside command lines that are followed; deeper ones count as unreadable."""

SHELLS = frozenset({"sh", "bash", "dash", "zsh", "ksh", "mksh", "ash", "fish", "rbash", "csh"})
_WRAPPERS = frozenset(
    {
        *("sudo", "doas", "su", "env", "command", "builtin", "exec", "nohup", "nice", "ionice"),
        *("time", "timeout", "stdbuf", "setsid", "chroot", "xargs", "busybox", "toybox", "watch"),
        *("unshare", "nsenter", "parallel", "flock", "strace", "script", "coproc", "chrt", "then"),
        *("runuser", "pkexec", "systemd-run", "caffeinate", "rlwrap", "unbuffer", "taskset", "!"),
    }
)
_FIND_ACTIONS = frozenset({"-exec", "-execdir", "-ok", "-okdir"})
_INLINE_CODE = {
    "python": "c",
    "pypy": "c",
    "perl": "eE",
    "ruby": "e",
    "node": "ep",
    "nodejs": "ep",
    "bun": "ep",
    "php": "rR",
    "lua": "e",
    "pwsh": "c",
    "osascript": "e",
    "tclsh": "",
    "gdb": "x",
    "deno": "",
}
"""Interpreters by name without version, and the letters of options that take code."""
_CODE_WORDS = {
    **dict.fromkeys(("awk", "gawk", "mawk", "nawk"), re.compile(r"system|\||getline|load")),
    **dict.fromkeys(
        ("sed", "gsed"), re.compile(r"(^|[;\d$/{])\s*e(\s|$)|/[gipmIM\d]*e[gipmIM\d]*$")
    ),
    **dict.fromkeys(("vim", "vi", "ex", "ed", "emacs", "nvim"), re.compile(r"!|system|shell|eval")),
    "tar": re.compile(r"^--(checkpoint-action|to-command|use-compress-program|rsh-command)|^-I"),
    "git": re.compile(
        r"(alias\.|core\.(pager|editor|sshcommand|hookspath|fsmonitor)).*=", re.IGNORECASE
    ),
}
"""Programs that run code found in an argument, and what such an argument looks like."""
_OPERAND_FIRST = frozenset({"flock", "chroot", "taskset", "su", "runuser", "script", "chrt"})
"""Wrappers with an operand of their own before the command."""
_LINE_TAKERS = frozenset({"su", "runuser", "script", "env", "watch", "parallel", "flock"})
"""Programs that may take a whole command line as one argument."""
_DURATION = re.compile(r"[\d.]+[smhd]?$")
_VERSION = re.compile(r"[\d.]+$")


@dataclass(frozen=True, slots=True)
class Step:
    """One program that the line starts, with its arguments.

    Attributes:
        name: the program without its folder; empty where only the shell decides.
        arguments: what follows the name.
        command: the simple command that it comes from.
    """

    name: str
    arguments: tuple[Word, ...]
    command: Command


@dataclass(frozen=True, slots=True)
class Reading:
    """All that could be read of a command line.

    Attributes:
        steps: the programs it starts, in order.
        unreadable: why something will run that cannot be read here; empty when all was read.
        has_fork_bomb: a function starts itself without end.
    """

    steps: tuple[Step, ...]
    unreadable: str = ""
    has_fork_bomb: bool = False


def read_command_line(text: str) -> Reading:
    """Return what `text` starts, command lines in arguments included."""
    reader = _Reader()
    reader.read(text, 0)
    return Reading(tuple(reader.steps), reader.unreadable, reader.has_fork_bomb)


class _Reader:
    def __init__(self) -> None:
        self.steps: list[Step] = []
        self.unreadable = ""
        self.has_fork_bomb = False

    def read(self, text: str, depth: int) -> None:
        if depth > MAX_DEPTH:
            self._give_up("command lines are nested too deeply")
            return
        script: Script = parse_script(text)
        self.has_fork_bomb |= script.is_fork_bomb
        if not script.is_complete:
            self._give_up("its syntax could not be parsed")
        for command in script.commands:
            for words in _candidates(command.words):
                self._step(words, command, depth)
            if not command.words:
                self.steps.append(Step("", (), command))

    def _step(self, words: tuple[Word, ...], command: Command, depth: int) -> None:
        head, arguments = words[0], words[1:]
        if not head.is_literal or head.has_glob:
            self._give_up(f"the program is decided by {head.text!r}")
        name = _base_name(head)
        self.steps.append(Step(name, arguments, command))
        if name in SHELLS:
            self._shell(name, arguments, depth)
        elif name in _LINE_TAKERS:
            for word in arguments:
                if re.search(r"\s", word.text):
                    self._inline((word,), depth)
        elif name in {"eval", "trap"}:
            self._inline(arguments if name == "eval" else arguments[:1], depth)
        elif name in {".", "source"} and (not arguments or not _is_file(arguments[0])):
            self._give_up(f"{name} reads commands from elsewhere")
        elif name in {"alias", "hash", "enable"} and arguments:
            self._give_up(f"{name} changes what names mean")
        elif name == "rm" and not all(word.is_literal for word in arguments):
            self._give_up("what rm deletes is decided only while it runs")
        elif reason := _hidden_code(name, arguments):
            self._give_up(reason)

    def _shell(self, name: str, arguments: tuple[Word, ...], depth: int) -> None:
        for position, word in enumerate(arguments):
            if re.match(r"-[a-zA-Z]*c", word.text):
                self._inline(arguments[position + 1 : position + 2], depth)
                return
            if not word.text.startswith(("-", "+")):
                if not _is_file(word):
                    self._give_up(f"{name} reads commands from {word.text!r}")
                return
        if not any(word.text in {"--version", "--help"} for word in arguments):
            self._give_up(f"{name} reads commands from its input")

    def _inline(self, words: tuple[Word, ...], depth: int) -> None:
        if not all(word.is_literal for word in words):
            self._give_up("a command line is put together while it runs")
        self.read(" ".join(word.text for word in words), depth + 1)

    def _give_up(self, reason: str) -> None:
        self.unreadable = self.unreadable or reason


def _candidates(words: tuple[Word, ...]) -> Iterator[tuple[Word, ...]]:
    """Yield `words` and, for wrappers, each tail that may be the command they start.

    Which options of a wrapper take a value is not known here: what follows an option counts as a
    program, and so does what follows that. A tail that is no command in truth names no dangerous
    program either.
    """
    if not words:
        return
    yield words
    name = _base_name(words[0])
    if name == "find":
        for position, word in enumerate(words[:-1]):
            if word.text in _FIND_ACTIONS:
                yield from _candidates(_until_end(words[position + 1 :]))
    if name not in _WRAPPERS:
        return
    if name in {"xargs", "parallel"}:
        words = (*words, Word("what the input names", is_literal=False))
    for position in range(1, len(words)):
        word, former = words[position], words[position - 1]
        if word.text.startswith("-") or "=" in word.text or _DURATION.match(word.text):
            continue
        yield from _candidates(words[position:])
        if not former.text.startswith("-") and name not in _OPERAND_FIRST:
            return


def _until_end(words: tuple[Word, ...]) -> tuple[Word, ...]:
    for position, word in enumerate(words):
        if word.text in {";", "+"}:
            return words[:position]
    return words


def _base_name(word: Word) -> str:
    return word.text.rpartition("/")[2]


def _is_file(word: Word) -> bool:
    return word.is_literal and not word.text.startswith(("/dev/", "/proc/"))


def _hidden_code(name: str, arguments: tuple[Word, ...]) -> str:
    """Return why `arguments` hold code that is no shell's, or an empty string."""
    if pattern := _CODE_WORDS.get(name):
        found = next((word for word in arguments if pattern.search(word.text)), None)
        return f"{name} runs code from its argument {found.text!r}" if found else ""
    letters = _INLINE_CODE.get(_VERSION.sub("", name))
    if letters is None:
        return ""
    if not any(not word.text.startswith("-") or "." in word.text for word in arguments):
        inquiry = {"--version", "-V", "-v", "--help", "-h"}
        if not any(word.text in inquiry for word in arguments):
            return f"{name} reads code from its input"
    for word in arguments:
        text = word.text
        if not text.startswith("-"):
            return "" if _is_file(word) else f"{name} runs {text!r}"
        if text in {"--eval", "--print", "-", "-Command"}:
            return f"{name} runs code from its arguments"
        if not text.startswith("--") and any(letter in text[1:] for letter in letters):
            return f"{name} runs code from its arguments"
        if text == "-m":
            return ""
    return ""
