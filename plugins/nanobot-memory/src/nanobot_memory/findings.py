"""Findings: the first phase's answer, as data.

The answer of a model is text of anyone whose words it has read. Only lines that follow the grammar
become findings, and only findings allow the second phase to change something.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from typing import Final, Literal

FileKind = Literal["SOUL", "USER", "MEMORY"]
MAX_FINDINGS: Final = 60
MAX_TEXT_CHARS: Final = 600
"""Characters of one line."""
MAX_ANSWER_CHARS: Final = 60_000
MAX_NUMBERS: Final = 50
"""Lines or entries that one finding may name."""

_FACT = re.compile(r"\[(SOUL|USER|MEMORY)\] (\S.*)")
_REMOVAL = re.compile(r"\[FILE-REMOVE\] (SOUL|USER|MEMORY)\.md lines? ([\d, -]+): (\S.*)")
_SKILL = re.compile(r"\[SKILL\] ([a-z0-9]+(?:-[a-z0-9]+)*): (\S.*)")
_REPLACES = re.compile(r" \(replaces lines? ([\d, -]+)\)")
_FROM = re.compile(r" \(from(?: entry| entries)? ([\d, -]+)\)")
_MAX_NAME_CHARS = 64
_JOINERS = "\u200c\u200d"


class FindingsInvalid(ValueError):
    """An answer without a finding, and without the statement that there are none."""


@dataclass(frozen=True, slots=True)
class Fact:
    """A line to add to a file, or to put in the place of others.

    Attributes:
        file: the file.
        text: the line.
        lines: numbers of the lines that it replaces, from 1.
        entries: numbers of the history entries that it comes from, if named.
    """

    file: FileKind
    text: str
    lines: tuple[int, ...] = ()
    entries: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Removal:
    """Lines to remove from a file, and why."""

    file: FileKind
    lines: tuple[int, ...]
    text: str


@dataclass(frozen=True, slots=True)
class SkillIdea:
    """A workflow that deserves a skill."""

    name: str
    text: str


Finding = Fact | Removal | SkillIdea


@dataclass(frozen=True, slots=True)
class Findings:
    """The findings of an answer.

    Attributes:
        items: in the order of the answer.
        rejected: how many lines are not findings.
    """

    items: tuple[Finding, ...] = ()
    rejected: int = 0


def parse_findings(answer: str) -> Findings:
    """Return the findings of an answer; lines that are not findings are counted.

    Raises:
        FindingsInvalid: it has none and does not say ``[SKIP]`` either, or is too long.
    """
    if len(answer) > MAX_ANSWER_CHARS:
        raise FindingsInvalid(f"the answer has {len(answer):,} characters")
    lines = [line.strip() for line in answer.split("\n")]
    lines = [line.removeprefix("- ") for line in lines if line]
    found = [_parse_line(line) for line in lines if line != "[SKIP]"]
    items = tuple(item for item in found if item is not None)
    if not items and "[SKIP]" not in lines:
        raise FindingsInvalid("the answer has no finding, and no [SKIP]")
    if len(items) > MAX_FINDINGS:
        raise FindingsInvalid(f"the answer has {len(items)} findings, more than {MAX_FINDINGS}")
    return Findings(items, len(found) - len(items))


def render_finding(finding: Finding) -> str:
    """Return the line that `parse_findings` reads."""
    if isinstance(finding, SkillIdea):
        return f"[SKILL] {finding.name}: {finding.text}"
    if isinstance(finding, Removal):
        return f"[FILE-REMOVE] {finding.file}.md lines {_listed(finding.lines)}: {finding.text}"
    replaces = f" (replaces lines {_listed(finding.lines)})" if finding.lines else ""
    entries = f" (from {_listed(finding.entries)})" if finding.entries else ""
    return f"[{finding.file}] {finding.text}{replaces}{entries}"


def is_visible(text: str) -> bool:
    """Whether a text has no control characters and no invisible ones, which can hide orders."""
    return all(
        character in _JOINERS or unicodedata.category(character) not in {"Cc", "Cf", "Cs", "Co"}
        for character in text
    )


def _parse_line(line: str) -> Finding | None:
    if len(line) > MAX_TEXT_CHARS or not is_visible(line):
        return None
    if match := _FACT.fullmatch(line):
        return _parse_fact(match[1], match[2])
    if match := _REMOVAL.fullmatch(line):
        numbers = _numbers(match[2])
        return Removal(_kind(match[1]), numbers, match[3]) if numbers else None
    if (match := _SKILL.fullmatch(line)) and len(match[1]) <= _MAX_NAME_CHARS:
        return SkillIdea(match[1], match[2])
    return None


def _parse_fact(file: str, text: str) -> Fact | None:
    found: list[tuple[int, ...]] = []
    for pattern in (_REPLACES, _FROM):
        match = pattern.search(text)
        numbers = _numbers(match[1]) if match else ()
        if numbers is None:
            return None
        found.append(numbers)
        text = pattern.sub("", text, count=1).strip()
    return Fact(_kind(file), text, *found) if text else None


def _kind(name: str) -> FileKind:
    if name == "SOUL":
        return "SOUL"
    return "USER" if name == "USER" else "MEMORY"


def _numbers(text: str) -> tuple[int, ...] | None:
    """Return the numbers of ``3, 7-9``, or ``None`` if it is not such a list."""
    numbers: list[int] = []
    for part in text.split(","):
        first, dash, last = (piece.strip() for piece in part.partition("-"))
        if not first.isdecimal() or (dash and not last.isdecimal()) or len(part) > 2 * 9:
            return None
        until = int(last) if dash else int(first)
        if until - int(first) >= MAX_NUMBERS or len(numbers) >= MAX_NUMBERS:
            return None
        numbers += range(int(first), until + 1)
    return tuple(dict.fromkeys(numbers)) or None


def _listed(numbers: tuple[int, ...]) -> str:
    return ", ".join(map(str, numbers))
