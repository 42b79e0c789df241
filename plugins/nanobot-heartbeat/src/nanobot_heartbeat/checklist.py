"""The checklist: ``HEARTBEAT.md`` in the workspace."""

from __future__ import annotations

import re
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Final

from nanobot_core import Folder

FILE: Final = "HEARTBEAT.md"
MAX_BYTES: Final = 20_000
"""Each beat sends the file to the model."""
TEMPLATE: Final = Path(__file__).parent / "templates" / FILE
_COMMENT = re.compile(r"<!--.*?(?:-->|\Z)", re.DOTALL)
_HEADING = re.compile(r" {0,3}#{1,6}(?:\s|$)")
_UNDERLINE = re.compile(r" {0,3}(?:=+|-{2,})\s*")
_CHECKED = re.compile(r"\s*(?:[-*+]|\d+[.)])\s+\[[xX]\](?:\s|$)")
_MARKER = re.compile(r"\s*(?:[-*+]|\d+[.)])(?:\s+\[ \])?(?:\s|$)")


class ChecklistTooLong(Exception):
    """The file has more than `MAX_BYTES`."""


def read_checklist(workspace: Path) -> str:
    """Return the checklist, or an empty string if it has no open task. Blocks.

    Raises:
        ChecklistTooLong: it is longer than `MAX_BYTES`.
        OSError: it cannot be read, or is not a regular file.
    """
    try:
        data = Folder(workspace).read(FILE, MAX_BYTES + 1)
    except FileNotFoundError:
        return ""
    if len(data) > MAX_BYTES:
        msg = f"{FILE} is longer than {MAX_BYTES:,} bytes; shorten it"
        raise ChecklistTooLong(msg)
    text = data.decode("utf-8-sig", "replace")
    return text.strip() if has_open_tasks(text) else ""


def add_template(workspace: Path) -> None:
    """Create the file if it is missing. Blocks.

    Raises:
        OSError: the folder cannot be used.
    """
    folder = Folder(workspace)
    with suppress(FileNotFoundError):
        folder.stat(FILE)
        return
    folder.replace(FILE, TEMPLATE.read_bytes(), mode=0o600)


def has_open_tasks(text: str) -> bool:
    """Whether a checklist has more than headings, comments, empty and checked-off lines."""
    lines = _COMMENT.sub("", text).splitlines()
    for line, following in pairwise([*lines, ""]):
        is_underlined = _UNDERLINE.fullmatch(following) and not _MARKER.match(line)
        if is_underlined or _HEADING.match(line) or _CHECKED.match(line):
            continue
        marker = _MARKER.match(line)
        if any(char.isalnum() for char in line[marker.end() if marker else 0 :]):
            return True
    return False
