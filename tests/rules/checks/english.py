"""Idioms that read like a translation, and the plain terms for them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Final

from tests.rules.checks.source import parse

PAGES: Final = ("*.md", "docs/**/*.md", "plugins/*/README.md", "changelog.d/*.md")
CODE: Final = (
    "nanobot_core/**/*.py",
    "plugins/*/src/**/*.py",
    "benchmarks/**/*.py",
    "docs/**/*.py",
)
TESTS: Final = ("tests/**/*.py", "plugins/*/tests/**/*.py")

IDIOMS: Final[dict[str, str]] = {
    r"\banew\b": "again",
    r"\bmend(?:s|ed|ing)?\b": "fix, repair",
    r"\bwho(?:so)?ever\b": "anyone who; or name the caller, the sender, the user",
    r"\b(?:is|are|was|were|be|been|being|gets?|got) told\b": "is notified, sees, gets a message",
    r"\b(?:is|are|was|were) to be (?!re-)\w+": "must be, will be, should be",
    r"\bnobody waits\b": "none pending",
    r"\bmay (?:\w+ ){1,2}no (?:more|longer)\b": "can no longer",
    r"\btakes? a (?:new|fresh) start\b": "requires a restart",
    r"\bthere (?:is|are|was|were) none of (?:it|them)\b": "if there is none",
    r"\bthere (?:is|was) nobody\b": "unknown, no one",
    r"\bwhat (?:has )?bec[oa]mes? of\b": "the result, the state",
    r"\bwhat (?:is there|there is)\b": "what exists",
    r"\bslips? of the pen\b": "a typing error",
    r"\bodd data\b": "invalid data",
    r"\bbe it\b": "whether",
    r"\bhow (?:things|it|they|matters) stands?\b": "the state",
    r"\bstands? (?:in (?!for)|on|at|for itself|below|above|beside|behind|there|here|whole)": "is",
    r"\bas (?:it|they) stands?\b": "unchanged",
    r"\bin trouble\b": "has a problem",
    r"\bhears? of (?:it|them|this|that)\b": "is notified of",
    r"\blaid to\b": "attributed to",
    r"\bgone through again\b": "repeated",
    r"\bby its name alone\b": "by name",
    r"\b(?:is|are|was|were) not there\b": "does not exist, is missing",
    r"\bwithout a word\b": "silently",
    r"\bin two hands\b": "used by two processes",
    r"\bha(?:s|ve) (?:its|the last) (?:say|word)\b": "applies, decides",
    r"\bof (?:its|their|our|your) own accord\b": "by itself",
    r"\burgent commands?\b": "control command",
}
"""Regular expression to the plain term."""

IDIOMS_OF_PRODUCT: Final[dict[str, str]] = {
    r"\b(?:goes|go|went) on\b(?! *\")": "continue",
    r"\b(?:is|are|was|were|be) let in\b|\blets? (?:\w+ )?in\b": "admit",
    r"\bside by side\b": "concurrently",
    r"\btold\b": "reported; or say what happens",
    r"\btells? (?:whether|why)\b": "return whether, show why",
    r"\bcomes? to (?:do|judge|use)\b|\b(?:has|have) come to\b": "the verb alone",
    r"\bnothing of (?:it|the|a|an|another|what)\b": "it is not; none of its parts",
    r"\b(?:plugins?|extras?|request|them) (?:would )?brings?\b": "contribute, install, have",
    r"\b(?:that|which) brings?\b": "contribute, install, have",
    r"\bwhat it gives\b": "what it contributes",
    r"\b(?:the|a) way in\b": "inbox, entry",
    r"\bstood for\b": "represented",
    r"\bof no use\b": "useless, invalid",
    r"\bmade if\b": "created if",
    r"\ba former\b": "previous",
}
"""More of them, for pages and code. Tests may name what happens in their own words."""

NO_NOUN: Final = re.compile(
    r"(?<!there )\b(?:is|are|was|were) no (?!longer\b|more\b|if\b)\w+", re.IGNORECASE
)
"""A negation before the noun, as in "it is no file": write "it is not a file"."""

STRING_OR_COMMENT: Final = re.compile(
    r'''"""(?:[^\\]|\\.)*?"""|"(?:[^"\\\n]|\\.)*"'''
    r"""|'''(?:[^\\]|\\.)*?'''|'(?:[^'\\\n]|\\.)*'|(#[^\n]*)""",
    re.DOTALL,
)
"""What quotes and ``#`` begin in a module. `tokenize` finds the same, more slowly."""


def idiom_findings(path: str, text: str) -> list[str]:
    """Report each idiom in the prose of a file, with the plain term for it."""
    idioms = IDIOMS if "tests/" in path else {**IDIOMS, **IDIOMS_OF_PRODUCT}
    prose = prose_of(path, text)
    # All at once: a file has hundreds of passages, and most files have no idiom.
    whole = "\n".join(passage for _, passage in prose).lower()
    if not re.search("|".join(idioms), whole):
        return []
    return [
        f"{path}:{line}: '{match[0]}'; write: {plain}"
        for line, passage in prose
        for pattern, plain in idioms.items()
        for match in re.finditer(pattern, passage, re.IGNORECASE)
    ]


@cache
def prose_of(path: str, text: str) -> Sequence[tuple[int, str]]:
    """Return the prose of a page or a module: (line, text) with the white space made single."""
    if path.endswith(".py"):
        return list(_prose_of_module(path, text))
    return [
        (text.count("\n", 0, match.start()) + 1, " ".join(match[0].split()))
        for match in re.finditer(r"(?:[^\n]+\n?)+", text)
    ]


def files(root: Path, *patterns: str) -> Iterator[tuple[str, str]]:
    """Give the files that match, as (path, text)."""
    for pattern in patterns:
        for found in sorted(root.glob(pattern)):
            if found.is_file() and "_build" not in found.parts:
                yield found.relative_to(root).as_posix(), found.read_text("utf-8")


def _prose_of_module(path: str, text: str) -> Iterator[tuple[int, str]]:
    """Give docstrings, other strings with a space in them, and blocks of comments."""
    for node in ast.walk(parse(path, text)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
            yield node.lineno, " ".join(node.value.split())
    block: list[str] = []
    first = last = 0
    for line, comment in _comments(text):
        if block and line != last + 1:
            yield first, " ".join(block)
            block = []
        first, last = (first if block else line), line
        block.append(comment.lstrip("# "))
    if block:
        yield first, " ".join(block)


def _comments(text: str) -> Iterator[tuple[int, str]]:
    """Give each comment of a module with its line."""
    if "#" not in text:
        return
    line, counted = 1, 0
    for match in STRING_OR_COMMENT.finditer(text):
        if match[1]:
            line += text.count("\n", counted, match.start())
            counted = match.start()
            yield line, match[1]
