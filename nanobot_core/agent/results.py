"""Tool results as the model reads them: normal in form, bounded in length."""

from __future__ import annotations

import hashlib
import json
import re
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TypeGuard

from nanobot_core.contracts.tool import ToolOutput, ToolResult
from nanobot_core.messages import (
    ContentBlock,
    ImageBlock,
    JsonObject,
    TextBlock,
    content_text,
)
from nanobot_core.text import truncate_middle

RESULTS_FOLDER = Path(".nanobot") / "tool-results"


def normalise_output(tool: str, output: ToolOutput) -> ToolResult:
    """Return what a tool gave as a `ToolResult`; empty output becomes a sentence.

    Args:
        tool: name of the tool.
        output: what its ``execute`` returned; anything else is told as an error.
    """
    result = output if isinstance(output, ToolResult) else ToolResult(output)  # type: ignore[arg-type]  # checked below
    content: object = result.content
    if isinstance(content, list):
        content = tuple(content)
    if not isinstance(content, str) and not _are_blocks(content):
        kind = type(output.content if isinstance(output, ToolResult) else output).__name__
        return ToolResult(f"Error: {tool} returned {kind}, which is no tool result", is_error=True)
    result = replace(result, content=content)
    if not _has_image(result) and not content_text(result.content).strip():
        return replace(result, content=f"({tool} completed with no output)")
    return result


def bound_text(text: str, max_chars: int, folder: Path, call_id: str) -> str:
    """Return `text`, or its head and tail and where the whole is. Blocks while it writes.

    Args:
        text: the result.
        max_chars: longest text that stays as it is.
        folder: where the whole goes when it is longer.
        call_id: id of the call, for the name of the file.
    """
    if len(text) <= max_chars:
        return text
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{_safe(call_id)}.txt"
    file.write_text(text, encoding="utf-8", errors="replace")
    note = (
        f"[{len(text):,} characters; the whole is in {file}, use read_file with offset and limit]"
    )
    return f"{truncate_middle(text, max_chars)}\n{note}"


def results_folder(workspace: Path, session_key: str) -> Path:
    """Return the folder for over-long results of one session."""
    return workspace / RESULTS_FOLDER / _safe(session_key)


def remove_old_results(workspace: Path, keep_days: float) -> int:
    """Delete over-long results older than `keep_days`; return how many. Blocks."""
    oldest = time.time() - keep_days * 86_400
    removed = 0
    for file in (workspace / RESULTS_FOLDER).glob("*/*.txt"):
        with suppress(OSError):  # another process may be faster; the next start tries again
            if file.stat().st_mtime < oldest:
                file.unlink()
                removed += 1
    return removed


def call_hint(name: str, arguments: JsonObject) -> str:
    """Return a call in a few characters, such as ``web_search("query")``."""
    texts = [value for value in arguments.values() if isinstance(value, str)]
    first = texts[0][:60] if texts else next(iter(arguments.values()), "")
    shown = json.dumps(first, ensure_ascii=False) if first != "" else ""
    return f"{name}({shown if len(shown) <= 60 else shown[:57] + '…' + shown[-1]})"


def _are_blocks(content: object) -> TypeGuard[tuple[ContentBlock, ...]]:
    return isinstance(content, tuple) and all(
        isinstance(block, TextBlock | ImageBlock) for block in content
    )


def _has_image(result: ToolResult) -> bool:
    return not isinstance(result.content, str) and any(
        isinstance(block, ImageBlock) for block in result.content
    )


def _safe(name: str) -> str:
    """Return a file name that cannot leave its folder and differs for different names."""
    plain = re.sub(r"[^a-zA-Z0-9_-]", "_", name)[:60]
    if plain == name:
        return plain
    return f"{plain}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"
