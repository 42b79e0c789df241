"""Draft: what one run of Dream may change, and what it has changed so far.

The model may obey an attacker whose words it has read. What it asks for is therefore compared with
the findings, by code: only lines that a finding names are removed, and only what a finding says is
added. Nothing is written before the run has ended.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from nanobot_core import ToolFailed, ToolInputError
from nanobot_memory.files import TOPIC
from nanobot_memory.findings import Fact, FileKind, Findings, Removal, SkillIdea, is_visible
from nanobot_memory.passages import estimate_tokens
from nanobot_memory.skill import require_skill

if TYPE_CHECKING:
    from nanobot_memory.files import MemoryFiles
    from nanobot_memory.settings import MemorySettings

MAX_REMOVED: Final = 0.3
"""Part of a file, in characters, that one run may remove or replace without the owner."""
FREE_LINES: Final = 3
"""Lines that may be removed from any file, which is a large part of a short one."""
SHRINK_AT: Final = 0.8
"""Part of its tokens at which a file must shrink before it grows."""
_MAX_REFUSALS = 6
_MAX_HEADING_CHARS = 80
_MAX_LINE_CHARS = 1_000
_LIKENESS = 0.5
SKILL_NAME: Final = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
_SKILL = re.compile(r"skills/([a-z0-9]+(?:-[a-z0-9]+)*)/SKILL\.md")
_POINTER = re.compile(r"(?:see )?(?:memory/)?topics/[a-z0-9-]+\.md")
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The files as a run has read them.

    Attributes:
        texts: text of the long-term files and topic files, by path; undecodable bytes are lone
            surrogates.
        skills: names of the skills, and of the proposed ones.
    """

    texts: Mapping[str, str]
    skills: frozenset[str]


class Draft:
    """The files as they will be after the run.

    Attributes:
        blocked: why the owner must decide before the run can change anything, or empty.

    Args:
        files: the memory.
        snapshot: its files.
        findings: what the run may do.
        settings: of the plugin.
        is_allowed: the owner allows it to remove much.
    """

    def __init__(
        self,
        files: MemoryFiles,
        snapshot: Snapshot,
        findings: Findings,
        settings: MemorySettings,
        *,
        is_allowed: bool = False,
    ) -> None:
        self.blocked: str = ""
        self._files = files
        self._base = snapshot
        self._findings = findings
        self._settings = settings
        self._is_allowed = is_allowed
        self._texts = dict(snapshot.texts)
        self._skills: dict[str, str] = {}
        self._refusals = 0

    def edit(self, name: str, old: str, new: str) -> str:
        """Replace the only occurrence of `old` in a file; without `old`, append.

        Raises:
            ToolInputError: the file or the change is not allowed; the text says why.
            ToolFailed: too many changes were refused, or the owner must decide first.
        """
        self._require_open()
        try:
            path, kind = self._path(name)
            before = self._texts.get(path, "")
            after = _replaced(before, old, new)
            self._require_named(path, kind, after)
            self._require_room(path, kind, before, after)
        except ToolInputError:
            self._refusals += 1
            raise
        self._texts[path] = after
        tokens = estimate_tokens(after)
        return f"Edited {name}: {tokens:,} of {self._settings.file_tokens:,} tokens."

    def write(self, name: str, content: str) -> str:
        """Write a new skill, or the proposal of one.

        Raises:
            ToolInputError: the file or its content is not allowed; the text says why.
            ToolFailed: too many changes were refused, or the owner must decide first.
        """
        self._require_open()
        try:
            match = _SKILL.fullmatch(name.strip())
            if match is None:
                raise ToolInputError(f"'{name}' is not allowed; write skills/<name>/SKILL.md")
            skill = match[1]
            wanted = {item.name for item in self._findings.items if isinstance(item, SkillIdea)}
            if self._settings.dream.skills == "off" or skill not in wanted:
                raise ToolInputError(f"no finding asks for the skill '{skill}'; do not write it")
            if skill in self._base.skills or skill in self._skills:
                raise ToolInputError(f"the skill '{skill}' exists; do not write it again")
            is_always = require_skill(skill, content)
        except ToolInputError:
            self._refusals += 1
            raise
        is_proposal = is_always or self._settings.dream.skills == "propose"
        folder = "memory/proposals" if is_proposal else "skills"
        self._skills[skill] = f"{folder}/{skill}/SKILL.md"
        self._texts[self._skills[skill]] = content
        return "Proposed to the owner." if is_proposal else f"Wrote {name}."

    def changed(self) -> dict[str, tuple[bytes | None, bytes]]:
        """Return the files that change, with their content before and after.

        Lines of a ``MEMORY.md`` that has outgrown its tokens are moved to a topic file.
        """
        memory = str(self._files.path_of("MEMORY.md"))
        self._texts |= overflow(self._texts, memory, self._settings.file_tokens)
        former = self._base.texts
        return {
            path: (_bytes(former[path]) if path in former else None, _bytes(text))
            for path, text in self._texts.items()
            if former.get(path) != text
        }

    def _require_open(self) -> None:
        if self.blocked:
            raise ToolFailed(f"{self.blocked}; the owner decides; end with a short answer")
        if self._refusals >= _MAX_REFUSALS:
            raise ToolFailed("too many changes were refused; end with a short answer")

    def _path(self, name: str) -> tuple[str, FileKind]:
        plain = name.strip().removeprefix(f"{self._files.folder}/")
        for kind in ("SOUL", "USER", "MEMORY"):
            if plain == f"{kind}.md" and plain in self._files.names:
                return str(self._files.path_of(plain)), _kind(kind)
        if TOPIC.fullmatch(plain):
            return str(self._files.path_of(plain)), "MEMORY"
        allowed = ", ".join([*self._files.names, "topics/<name>.md"])
        raise ToolInputError(f"'{name}' cannot be edited; only {allowed} can")

    def _require_named(self, path: str, kind: FileKind, after: str) -> None:
        base = self._base.texts.get(path, "")
        before, now = (Counter(_lines(text)) for text in (base, after))
        removed, added = before - now, now - before
        numbered = numbered_lines(base)
        is_topic = path != str(self._files.path_of(f"{kind}.md"))
        allowed = [
            numbered[number - 1].strip()
            for item in self._findings.items
            if isinstance(item, Fact | Removal) and item.file == kind and not is_topic
            for number in item.lines
            if 0 < number <= len(numbered)
        ]
        unnamed = [line for line in removed if line not in allowed]
        if unnamed:
            raise ToolInputError(f"no finding names this line of {path}; keep it: {unnamed[0]!r}")
        said = [item.text for item in self._findings.items if _is_fact_of(item, kind)]
        if is_topic:
            memory = self._base.texts.get(str(self._files.path_of("MEMORY.md")), "")
            said += _lines(memory)
        for line in added:
            _require_said(line, [*said, *allowed])
        self._require_few(path, base, removed)

    def _require_few(self, path: str, base: str, removed: Counter[str]) -> None:
        part = sum(len(line) * count for line, count in removed.items()) / (len(base) or 1)
        if removed.total() > FREE_LINES and part > MAX_REMOVED and not self._is_allowed:
            self.blocked = f"the run would remove or replace {part:.0%} of {path}"
            self._require_open()

    def _require_room(self, path: str, kind: FileKind, before: str, after: str) -> None:
        tokens, limit = estimate_tokens(after), self._settings.file_tokens
        grows = tokens > estimate_tokens(before)
        if grows and tokens > limit and path != str(self._files.path_of("MEMORY.md")):
            raise ToolInputError(
                f"{path} would have {tokens:,} of {limit:,} tokens; "
                + ("choose another topic file" if kind == "MEMORY" else "put it into MEMORY.md")
            )


def overflow(texts: Mapping[str, str], path: str, limit: int) -> dict[str, str]:
    """Return the files that change because ``MEMORY.md`` has more than `limit` tokens.

    Its oldest dated lines go to ``topics/<year>-<month>.md``, then the first ones of the others to
    ``topics/earlier.md``. ``MEMORY.md`` gets one line for each topic file.
    """
    text = texts.get(path, "")
    if estimate_tokens(text) <= limit:
        return {}
    folder = path.removesuffix("MEMORY.md") + "topics/"
    newline = "\r\n" if "\r\n" in text else "\n"
    lines = numbered_lines(text)
    excess = estimate_tokens(text) - int(limit * SHRINK_AT)
    moved: dict[str, list[str]] = {}
    gone: set[int] = set()
    for number in sorted(range(len(lines)), key=lambda each: _age(lines[each], each)):
        line = lines[number]
        if excess <= 0 or not line.strip() or line.startswith("#") or folder in line:
            continue
        date = _DATE.search(line)
        moved.setdefault(f"{folder}{date[0][:7] if date else 'earlier'}.md", []).append(line)
        gone.add(number)
        excess -= estimate_tokens(line)
    kept = [line for number, line in enumerate(lines) if number not in gone]
    kept += [f"- More: {topic}" for topic in sorted(moved) if topic not in text]
    changed = {path: newline.join([*kept, ""])}
    for topic, added in moved.items():
        former = texts.get(topic, "")
        gap = newline if former and not former.endswith("\n") else ""
        changed[topic] = former + gap + newline.join([*added, ""])
    return changed


def _age(line: str, number: int) -> tuple[int, str, int]:
    date = _DATE.search(line)
    return (0, date[0], number) if date else (1, "", number)


def _replaced(before: str, old: str, new: str) -> str:
    newline = "\r\n" if before.count("\r\n") > before.count("\n") / 2 else "\n"
    old, new = (text.replace("\r\n", "\n").replace("\n", newline) for text in (old, new))
    if old == new:
        raise ToolInputError("old_text and new_text are the same; nothing would change")
    if not is_visible(new.replace("\n", "").replace("\r", "").replace("\t", "")):
        raise ToolInputError("new_text has invisible characters; leave them out")
    if not old:
        gap = newline if before and not before.endswith("\n") else ""
        return before + gap + new + ("" if new.endswith("\n") else newline)
    if (count := before.count(old)) != 1:
        problem = "is not in the file" if count == 0 else f"occurs {count} times"
        raise ToolInputError(f"old_text {problem}; copy whole lines, without their numbers")
    return before.replace(old, new)


def _require_said(line: str, said: Iterable[str]) -> None:
    if line.startswith("#") and len(line) <= _MAX_HEADING_CHARS:
        return
    if len(line) > _MAX_LINE_CHARS:
        raise ToolInputError(f"a line has {len(line):,} characters; use one line for each fact")
    parts = _parts(_POINTER.sub("", line))
    if not any(len(parts & _parts(text)) >= _LIKENESS * len(parts) for text in said):
        raise ToolInputError(f"no finding says this; write what a finding says: {line!r}")


def _parts(text: str) -> set[str]:
    """Return the overlapping three-letter parts of a text, of letters and digits only."""
    plain = "".join(character for character in text.casefold() if character.isalnum())
    return {plain[start : start + 3] for start in range(max(len(plain) - 2, 1))}


def _is_fact_of(item: object, kind: FileKind) -> bool:
    return isinstance(item, Fact) and item.file == kind


def numbered_lines(text: str) -> list[str]:
    """Return the lines that findings number, without line ends."""
    return [line.removesuffix("\r") for line in text.removesuffix("\n").split("\n")]


def _lines(text: str) -> list[str]:
    return [line.strip() for line in numbered_lines(text) if line.strip()]


def _kind(name: str) -> FileKind:
    return "SOUL" if name == "SOUL" else "USER" if name == "USER" else "MEMORY"


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")
