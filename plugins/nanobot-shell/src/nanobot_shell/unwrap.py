"""Commands that run commands: what ``sudo``, ``xargs``, ``sh -c`` and their kind start."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from nanobot_shell.programs import (
    ALWAYS_CODE,
    CODE_MODULES,
    CODE_OPTIONS,
    CODE_VARIABLES,
    CODE_WORDS,
    INLINE_CODE,
    LINE_TAKERS,
    LOADER,
    OPERAND_FIRST,
    OPTIONS_WITH_VALUE,
    READS_COMMANDS,
    SHELLS,
    WRAPPERS,
    git_code,
)
from nanobot_shell.syntax import Command, Script, Word, parse_script

MAX_DEPTH = 6
"""Command lines inside command lines that are followed; deeper ones count as unreadable."""

_FIND_ACTIONS = frozenset({"-exec", "-execdir", "-ok", "-okdir"})
_DURATION = re.compile(r"[\d.]+[smhd]?$")
_OPTION_VALUE = re.compile(r"--?[\w-]+=(.*)", re.DOTALL)
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
            if found := CODE_VARIABLES.search(command.source):
                self._give_up(f"programs take code from the variable {found[1]}")

    def _step(self, words: tuple[Word, ...], command: Command, depth: int) -> None:
        head, arguments = words[0], words[1:]
        if not head.is_literal or head.has_glob:
            self._give_up(f"the program is decided by {head.text!r}")
        name = _base_name(head)
        self.steps.append(Step(name, arguments, command))
        if name in SHELLS:
            self._shell(name, arguments, depth)
        elif name in LINE_TAKERS:
            for word in arguments:
                if re.search(r"\s", word.text):
                    value = _OPTION_VALUE.match(word.text)
                    self._inline((Word(value[1], word.is_literal) if value else word,), depth)
        elif name in {"eval", "trap"}:
            arguments = arguments[1:] if arguments and arguments[0].text == "--" else arguments
            self._inline(arguments if name == "eval" else arguments[:1], depth)
        elif name in {".", "source"} and (not arguments or not _is_file(arguments[0])):
            self._give_up(f"{name} reads commands from elsewhere")
        elif name in {"alias", "hash", "enable"} and arguments:
            self._give_up(f"{name} changes what names mean")
        elif name == "rm" and not all(word.is_literal for word in arguments):
            self._give_up("what rm deletes is decided only while it runs")
        if reason := _hidden_code(name, arguments, command):
            self._give_up(reason)

    def _shell(self, name: str, arguments: tuple[Word, ...], depth: int) -> None:
        for position, word in enumerate(arguments):
            if re.match(r"-[a-zA-Z]*c", word.text):
                line = [each for each in arguments[position + 1 :] if each.text != "--"]
                self._inline(tuple(line[:1]), depth)
                return
        for word in arguments:
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
    if name not in WRAPPERS:
        return
    if name in {"xargs", "parallel"}:
        words = (*words, Word("what the input names", is_literal=False))
    for position in range(1, len(words)):
        word, former = words[position], words[position - 1]
        if word.text.startswith("-") or "=" in word.text or _DURATION.match(word.text):
            continue
        yield from _candidates(words[position:])
        if not former.text.startswith("-") and name not in OPERAND_FIRST:
            return


def _until_end(words: tuple[Word, ...]) -> tuple[Word, ...]:
    for position, word in enumerate(words):
        if word.text in {";", "+"}:
            return words[:position]
    return words


def _base_name(word: Word) -> str:
    name = word.text.rpartition("/")[2]
    return "ld.so" if LOADER.match(name) else name


def _is_file(word: Word) -> bool:
    return word.is_literal and not word.text.startswith(("/dev/", "/proc/"))


def _hidden_code(name: str, arguments: tuple[Word, ...], command: Command) -> str:
    """Return why `arguments` hold code that is no shell's, or an empty string."""
    texts = [word.text for word in arguments]
    if name in ALWAYS_CODE:
        return f"{name} runs commands that it reads"
    if name in READS_COMMANDS and any(each.operator == "<<" for each in command.redirects):
        return f"{name} runs commands from its input"
    pattern = CODE_WORDS.get(name)
    found = git_code(texts) if name == "git" else ""
    if pattern is not None:
        found = next(filter(pattern.search, texts), "")
    if found:
        return f"{name} runs code from its argument {found!r}"
    return _interpreted(name, arguments)


def _interpreted(name: str, arguments: tuple[Word, ...]) -> str:
    """Return why an interpreter runs something other than a file, or an empty string."""
    language = _VERSION.sub("", name)
    letters = INLINE_CODE.get(language)
    if letters is None:
        return ""
    if not any(not word.text.startswith("-") or "." in word.text for word in arguments):
        inquiry = {"--version", "-V", "-v", "--help", "-h"}
        if not any(word.text in inquiry for word in arguments):
            return f"{name} reads code from its input"
    waiting = iter(arguments)
    for word in waiting:
        text = word.text
        if not text.startswith("-"):
            return "" if _is_file(word) else f"{name} runs {text!r}"
        if text.partition("=")[0] in CODE_OPTIONS:
            return f"{name} runs code from its arguments"
        if not text.startswith("--") and any(letter in text[1:] for letter in letters):
            return f"{name} runs code from its arguments"
        if text == "-m":
            module = next(waiting, Word(""))
            return f"{name} -m {module.text} runs code" if module.text in CODE_MODULES else ""
        if len(text) == 2 and text[1] in OPTIONS_WITH_VALUE.get(language, ""):
            next(waiting, None)
    return ""
