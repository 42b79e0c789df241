"""Tool calls as editors show them: kind, places, and what they change in files."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeAlias

from acp import schema

from nanobot_core import ToolCall

MAX_FILE_BYTES: Final = 1_000_000
"""Larger files are not shown as a difference."""
MAX_FILES: Final = 50
MAX_RESULT_CHARS: Final = 20_000
"""What the editor gets of a result."""
KINDS: Final[Mapping[str, schema.ToolKind]] = {
    "read_file": "read",
    "list_dir": "read",
    "glob": "search",
    "grep": "search",
    "write_file": "edit",
    "edit_file": "edit",
    "apply_patch": "edit",
    "notebook_edit": "edit",
    "exec": "execute",
    "web_fetch": "fetch",
    "web_search": "fetch",
}
WRITING: Final = frozenset(name for name, kind in KINDS.items() if kind == "edit")
_PATCHED = re.compile(r"^\*\*\* (?:(?:Add|Update|Delete) File|Move to): (.+)$", re.MULTILINE)

Content: TypeAlias = (
    schema.ContentToolCallContent | schema.FileEditToolCallContent | schema.TerminalToolCallContent
)


def kind_of(name: str) -> schema.ToolKind:
    """Return the kind of a tool, by which an editor chooses how to show its calls."""
    return KINDS.get(name, "other")


def paths_of(call: ToolCall, folder: str) -> Sequence[Path]:
    """Return the absolute paths of the files that a call names."""
    given = call.arguments.get("path")
    named = [given] if isinstance(given, str) and call.name in KINDS else []
    if call.name == "apply_patch" and isinstance(patch := call.arguments.get("patch"), str):
        named = [match.strip() for match in _PATCHED.findall(patch)[:MAX_FILES]]
    return [_absolute(name, folder) for name in named]


def locations_of(call: ToolCall, folder: str) -> list[schema.ToolCallLocation]:
    """Return the places in files that a call names."""
    line = call.arguments.get("offset")
    number = line if call.name == "read_file" and isinstance(line, int) and line > 0 else None
    return [schema.ToolCallLocation(path=str(p), line=number) for p in paths_of(call, folder)]


def text_content(text: str) -> schema.ContentToolCallContent:
    """Return the text of a result as an editor shows it, the beginning of a long one."""
    shown = text if len(text) <= MAX_RESULT_CHARS else f"{text[:MAX_RESULT_CHARS]}\n[shortened]"
    block = schema.TextContentBlock(type="text", text=shown)
    return schema.ContentToolCallContent(type="content", content=block)


@dataclass(frozen=True, slots=True)
class Before:
    """The files of a call as they were before it; ``None`` for one that did not exist.

    It has none that is no text or longer than `MAX_FILE_BYTES`.
    """

    texts: Mapping[Path, str | None] = field(default_factory=dict)

    def changes(self) -> list[Content]:
        """Return what has changed in the files since. Blocks."""
        found: list[Content] = []
        for path, old in self.texts.items():
            is_readable, new = _read(path)
            if is_readable and new != old:
                found.append(_difference(path, old, new or ""))
        return found


def read_before(call: ToolCall, folder: str) -> Before:
    """Return the files that a call may change. Blocks.

    They may be shown only after the call was allowed: a model can name any file.
    """
    if call.name not in WRITING:
        return Before()
    found = {path: _read(path) for path in paths_of(call, folder)}
    return Before({path: text for path, (is_readable, text) in found.items() if is_readable})


def proposed(call: ToolCall, folder: str) -> list[Content]:
    """Return what a call would change, as far as its arguments show.

    No file is read: the question comes before it is known whether the call may read it.
    """
    given = call.arguments
    content, before, after = (given.get(name) for name in ("content", "old_text", "new_text"))
    for path in paths_of(call, folder):
        if call.name == "write_file" and isinstance(content, str):
            return [_difference(path, None, content)]
        if call.name == "edit_file" and isinstance(before, str) and isinstance(after, str):
            return [_difference(path, before, after)]
    return []


def _absolute(name: str, folder: str) -> Path:
    try:
        path = Path(name).expanduser()
    except RuntimeError:  # the home folder of an unknown user
        path = Path(name)
    return Path(os.path.normpath(Path(folder, path)))


def _difference(path: Path, old: str | None, new: str) -> schema.FileEditToolCallContent:
    return schema.FileEditToolCallContent(type="diff", path=str(path), old_text=old, new_text=new)


def _read(path: Path) -> tuple[bool, str | None]:
    """Return whether a file can be shown, and its text; ``None`` if it does not exist."""
    try:
        # A pipe must not make it wait.
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return True, None
    except OSError:
        return False, None
    with os.fdopen(handle, "rb") as file:
        facts = os.fstat(handle)
        if not stat.S_ISREG(facts.st_mode) or facts.st_size > MAX_FILE_BYTES:
            return False, None
        try:
            return True, file.read(MAX_FILE_BYTES).decode()
        except (OSError, UnicodeDecodeError):
            return False, None
