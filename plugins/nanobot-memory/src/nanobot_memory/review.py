"""What the two phases of Dream read: the files with numbered lines, the history as data."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING

from nanobot_memory.draft import SHRINK_AT, SKILL_NAME, Snapshot, numbered_lines
from nanobot_memory.findings import Fact, Finding, Findings, SkillIdea, render_finding
from nanobot_memory.passages import estimate_tokens, looks_poisoned, without_poison
from nanobot_memory.versions import paths_of, read_path

if TYPE_CHECKING:
    from nanobot_memory.files import MemoryFiles
    from nanobot_memory.history import HistoryEntry

SKILL_FOLDERS = ("skills", "memory/proposals")
_SAID = ("user:", "owner:")
"""What begins a line of a history entry that the person said themselves."""


def take_snapshot(files: MemoryFiles) -> Snapshot:
    """Read the files of a memory, and the names of skills. Blocks."""
    texts: dict[str, str] = {}
    for path in sorted(paths_of(files)):
        data = read_path(files, path)
        if data is not None:
            texts[path] = data.decode("utf-8", "surrogateescape")
    skills: set[str] = set()
    for folder in SKILL_FOLDERS:
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            skills |= {entry.name for entry in files.root.scan(folder)}
    return Snapshot(texts, frozenset(skills))


def render_files(files: MemoryFiles, snapshot: Snapshot, limit: int) -> str:
    """Return the files with numbered lines and their tokens, and the names of skills."""
    parts = []
    for name in files.names:
        text = snapshot.texts.get(str(files.path_of(name)), "")
        tokens = estimate_tokens(text)
        full = " FULL" if tokens > SHRINK_AT * limit else ""
        lines = [f"{number}| {line}" for number, line in enumerate(_shown(text), 1)]
        parts.append(f"## {name} ({tokens:,} of {limit:,} tokens{full})\n\n" + "\n".join(lines))
    prefix = f"{files.folder}/topics/"
    topics = [path for path in snapshot.texts if path.startswith(prefix)]
    if topics:
        parts.append("## Topic files\n\n" + "\n".join(f"- {path}" for path in topics))
    if "USER.md" not in files.names:
        parts.append("There is no USER.md and no SOUL.md here: every fact is a `[MEMORY]` finding.")
    elif skills := sorted(filter(SKILL_NAME.fullmatch, snapshot.skills)):
        parts.append("## Skills\n\n" + "\n".join(f"- {name}" for name in skills))
    return "\n\n".join(parts)


def render_history(entries: Iterable[HistoryEntry]) -> str:
    """Return entries of history, quoted line by line, so that none can pass for a heading."""
    parts = []
    for entry in entries:
        quoted = "\n".join(f"> {line}" for line in without_poison(entry.content).splitlines())
        parts.append(f"Entry {entry.cursor}, {entry.timestamp}:\n{quoted}")
    return "\n\n".join(parts)


def render_request(now: datetime, shown_files: str, heading: str, rest: str) -> str:
    """Return the message of a phase."""
    return f"Today is {now:%A, %Y-%m-%d}.\n\n{shown_files}\n\n## {heading}\n\n{rest}"


def render_findings(findings: Findings) -> str:
    """Return findings one to a line, without the entries that they come from."""
    items = (
        replace(each, entries=()) if isinstance(each, Fact) else each for each in findings.items
    )
    return "\n".join(map(render_finding, items))


def admit(files: MemoryFiles, findings: Findings, entries: Iterable[HistoryEntry]) -> Findings:
    """Return the findings that may change this memory; the others count as rejected.

    A fact for ``SOUL.md`` must name an entry in which a line says that the person said it: words
    of web pages, mails and tools never become a rule. What reads like an order to the agent is
    no finding. A memory that has ``MEMORY.md`` only keeps
    all facts there, and gets no skills.
    """
    said = {
        entry.cursor
        for entry in entries
        if any(line.strip(" -*").lower().startswith(_SAID) for line in entry.content.splitlines())
    }
    kept = [
        item
        for finding in findings.items
        if not looks_poisoned(finding.text) and (item := _admitted(files, finding, said))
    ]
    return Findings(tuple(kept), findings.rejected + len(findings.items) - len(kept))


def _admitted(files: MemoryFiles, finding: Finding, said: set[int]) -> Finding | None:
    if isinstance(finding, SkillIdea):
        return finding if "USER.md" in files.names else None
    if isinstance(finding, Fact) and finding.file == "SOUL":
        is_wish = bool(finding.entries) and set(finding.entries) <= said
        return finding if is_wish and "SOUL.md" in files.names else None
    if f"{finding.file}.md" in files.names:
        return finding
    return Fact("MEMORY", finding.text) if isinstance(finding, Fact) else None


def _shown(text: str) -> list[str]:
    return numbered_lines(without_poison(text.encode("utf-8", "replace").decode())) if text else []
