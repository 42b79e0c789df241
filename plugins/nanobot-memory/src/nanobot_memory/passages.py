"""The passages of memory in the system prompt."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from nanobot_core import ContextBlock
from nanobot_memory.files import is_template

if TYPE_CHECKING:
    from nanobot_memory.files import MemoryFiles
    from nanobot_memory.history import HistoryEntry
    from nanobot_memory.settings import MemorySettings

MAX_RECENT: Final = 50
"""Most entries of recent history in the prompt."""
WITHHELD: Final = (
    "[a line was left out here because it reads like an order to the agent; "
    "`nanobot memory show` prints it]"
)
_ORDER = re.compile(
    r"\b(?:ignore|disregard|forget|override)\b.{0,40}\b(?:previous|prior|above|earlier|all|your)\b"
    r".{0,40}\b(?:instructions?|rules?|prompts?|guidelines?)\b"
    r"|\byou are now\b.{0,60}\b(?:mode|unrestricted|jailbroken|root|admin)"
    r"|\bnew (?:system )?(?:instructions?|prompt)\s*:"
    r"|</?(?:system|assistant|developer)>|<\|im_(?:start|end)\|>"
    r"|\bdo not (?:tell|inform|mention (?:this|it) to) the (?:user|owner)\b",
    re.IGNORECASE,
)
_FORMAT_ALLOWED = frozenset("\u200c\u200d\ufe0f\u00ad")
"""Invisible characters of ordinary text: joiners of scripts and emoji, soft hyphens."""


def estimate_tokens(text: str) -> int:
    """Return about how many tokens a text has: four characters of ASCII, or one other, each."""
    others = sum(map(len, re.findall(r"[^\x00-\x7f]+", text)))
    return (len(text) - others + 3) // 4 + others


def looks_poisoned(line: str) -> bool:
    """Whether a line reads like an order to the agent, or hides characters from people."""
    if not line.isascii() and any(
        unicodedata.category(char) in {"Cf", "Co"} and char not in _FORMAT_ALLOWED for char in line
    ):
        return True
    return _ORDER.search(line) is not None


def without_poison(text: str) -> str:
    """Return `text` with a placeholder for each line that looks poisoned."""
    return "\n".join(WITHHELD if looks_poisoned(line) else line for line in text.split("\n"))


def memory_block(files: MemoryFiles, settings: MemorySettings) -> ContextBlock | None:
    """Return the passage of ``MEMORY.md``; ``None`` while it is empty. Blocks."""
    text = files.read("MEMORY.md").replace("\r\n", "\n").replace("\x00", "")
    if is_template(text):
        return None
    lines = without_poison(text.strip()).split("\n")
    shown = _fitting(lines, settings.file_tokens)
    path = files.path_of("MEMORY.md")
    if len(shown) < len(lines):
        shown.append(f"[… {len(lines) - len(shown)} more lines do not fit here; read {path}]")
    return ContextBlock(
        name="Memory",
        text=f"From {path}:\n\n" + "\n".join(shown),
        placement="stable",
        position=100,
        max_tokens=settings.file_tokens * 2,
    )


def history_block(
    entries: Iterable[HistoryEntry], settings: MemorySettings, waiting: str = ""
) -> ContextBlock | None:
    """Return the passage of recent history: the newest entries that fit; ``None`` without any.

    Args:
        entries: of the history.
        settings: how long the passage may be.
        waiting: what people said last and no entry tells yet.
    """
    newest = sorted(entries, key=lambda entry: entry.cursor)[-MAX_RECENT:]
    lines = [f"[{entry.timestamp}] {without_poison(entry.content.strip())}" for entry in newest]
    if waiting:
        lines.append(f"[not summarised yet] The person said:\n{without_poison(waiting)}")
    shown = _fitting(lines[::-1], settings.history_tokens)
    if not shown:
        return None
    return ContextBlock(
        name="Recent History",
        text="\n\n".join(shown[::-1]),
        placement="stable",
        position=900,
        max_tokens=settings.history_tokens * 2,
    )


def _fitting(lines: list[str], tokens: int) -> list[str]:
    """Return those of `lines` that fit into `tokens`, from the first one on."""
    kept: list[str] = []
    for line in lines:
        tokens -= estimate_tokens(line) + 1
        if tokens < 0:
            break
        kept.append(line)
    return kept
