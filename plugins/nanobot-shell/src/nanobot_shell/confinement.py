"""Confines commands to the workspace without a sandbox, by the files that their lines name.

This works for a few programs whose arguments are file names, with options that do not name files.
It refuses other programs, and everything that the shell decides only at run time. No program here
creates or moves links, so a name still means the same file when the command uses it.
"""

from __future__ import annotations

import re
from pathlib import Path

from nanobot_core import PathGuard, ToolError
from nanobot_shell.reading import Reading, is_file
from nanobot_shell.syntax import Command, Word

_READERS = {
    "cat": "AbeEnstTuv",
    "head": "ncqvz",
    "tail": "ncqvz",
    "wc": "cmlwL",
    "cut": "bcdfszn",
    "sort": "bcdfgikMnrsuVzt",
    "tac": "brs",
    "nl": "",
    "grep": "ABCEFchHilLmnoqsvwxe",
    "diff": "abBiuwy",
    "cmp": "bls",
    "comm": "123",
    "paste": "s",
    "stat": "",
    "file": "bi",
    "base64": "dw",
    "md5sum": "bt",
    "sha1sum": "bt",
    "sha256sum": "bt",
    "sha512sum": "bt",
    "ls": "1AaFghilnopqrstStuUvxX",
}
"""Programs that read the files they name, with the letters of options that name none."""
_WRITERS = {"mkdir": "pv", "rmdir": "v", "touch": "acm", "rm": "fv", "tee": "a", "cp": "fnv"}
"""Programs that read and write the files they name."""
_TALKERS = frozenset(
    {*("basename", "dirname", "echo", "false", "pwd", "seq", "sleep", "tr", "true", ":"), "printf"}
)
"""Programs that open no file."""
_OF_FOLDERS = frozenset({"ls", "mkdir", "rmdir", "cp"})
"""Programs that do not go through what is in a folder that they are given."""
_VALUE = "0123456789,.:;+| -"
_HINT = "without a sandbox; use another tool, or ask the owner to install a sandbox"


def find_escape(reading: Reading, files: PathGuard, folder: Path) -> str:
    """Return why a line cannot be confined to the workspace, or an empty string; blocking.

    Args:
        files: what may be read and written.
        folder: where it starts, free of links.
    """
    script = reading.script
    if not script.is_complete or not script.is_plain:
        return f"what the shell decides while it runs cannot be confined {_HINT}"
    try:
        for command in script.commands:
            if reason := _objection(command, files, folder):
                return reason
    except ToolError as error:
        return str(error)
    return ""


def _objection(command: Command, files: PathGuard, folder: Path) -> str:
    words = (*command.words, *(redirect.target for redirect in command.redirects))
    decided = next((each for each in words if _is_decided(each)), None)
    if decided or command.assigned:
        shown = decided.text[:80] if decided else command.source[:80]
        return f"{shown!r} is decided only while the command runs and cannot be confined {_HINT}"
    for redirect in filter(is_file, command.redirects):
        if redirect.writes:
            _require(redirect.target, files, folder, writes=True)
        if not redirect.writes or "<" in redirect.operator:
            _require(redirect.target, files, folder, writes=False)
    if not command.words:
        return ""
    name = command.words[0].text
    if name in _TALKERS:
        takes_option = name == "printf" and any(w.text[:1] == "-" for w in command.words[1:2])
        return f"options of printf cannot be confined {_HINT}" if takes_option else ""
    letters = _WRITERS.get(name, _READERS.get(name))
    if letters is None:
        return f"{name!r} cannot be confined {_HINT}"
    operands, option = _split(command.words[1:], letters)
    if option:
        return f"option {option!r} of {name} cannot be confined {_HINT}"
    return _check(name, operands, files, folder)


def _is_decided(word: Word) -> bool:
    """Whether the shell makes something else of `word`; a tilde that was quoted counts as well."""
    return not word.is_literal or word.has_glob or word.text.startswith("~")


def _split(words: tuple[Word, ...], letters: str) -> tuple[list[Word], str]:
    """Return the operands, and the first option that is not known to name no file."""
    operands: list[Word] = []
    for position, word in enumerate(words):
        if word.text == "--":
            return [*operands, *words[position + 1 :]], ""
        if not re.match(r"-.", word.text):
            operands.append(word)
        elif word.text.startswith("--") or set(word.text[1:]) - {*letters, *_VALUE}:
            return [], word.text
    return operands, ""


def _check(name: str, operands: list[Word], files: PathGuard, folder: Path) -> str:
    for word in operands:
        _require(word, files, folder, writes=name in _WRITERS)
        if name not in _OF_FOLDERS and (folder / word.text).is_dir():
            return f"{name} of the folder {word.text!r} cannot be confined {_HINT}"
    if name == "cp" and len(operands) > 1 and (folder / operands[-1].text).is_dir():
        for word in operands[:-1]:
            target = Word(f"{operands[-1].text}/{Path(word.text).name}")
            _require(target, files, folder, writes=True)
    return ""


def _require(word: Word, files: PathGuard, folder: Path, *, writes: bool) -> None:
    """Check one file, which the shell and the program take as it is written.

    Raises:
        ToolError: it lies outside, or belongs to nanobot.
    """
    text = str(folder / word.text)
    files.resolve_read(text)
    if writes:
        files.resolve_write(text)
