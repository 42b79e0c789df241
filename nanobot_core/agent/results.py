"""Tool results as the model reads them: uniform, and of limited length."""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TypeGuard, TypeVar

from nanobot_core.contracts.tool import ToolOutput, ToolResult
from nanobot_core.errors import FOREIGN_ERRORS, ToolError, ToolFailed
from nanobot_core.folder import Folder
from nanobot_core.messages import (
    ContentBlock,
    ImageBlock,
    JsonObject,
    TextBlock,
    content_text,
)
from nanobot_core.text import truncate_middle

T = TypeVar("T")
RESULTS_FOLDER = Path(".nanobot") / "tool-results"


async def result_of(call: Callable[[], Awaitable[T]]) -> T:
    """Return the result of a call of a tool's code.

    Raises:
        ToolError: it failed, whatever it raised.
    """
    try:
        return await call()
    except ToolError:
        raise
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        raise ToolFailed(f"it cancelled itself: {error}") from error
    except FOREIGN_ERRORS as error:
        raise ToolFailed(f"{type(error).__name__}: {error}") from error


def normalise_output(tool: str, output: ToolOutput) -> ToolResult:
    """Return the output of a tool as a `ToolResult`; empty output becomes a sentence.

    Args:
        tool: name of the tool.
        output: of its ``execute``; a value of another type becomes an error.
    """
    result = output if isinstance(output, ToolResult) else ToolResult(output)  # type: ignore[arg-type]  # checked below
    content: object = result.content
    if isinstance(content, list):
        content = tuple(content)
    if not isinstance(content, str) and not _are_blocks(content):
        kind = type(output.content if isinstance(output, ToolResult) else output).__name__
        return ToolResult(
            f"Error: {tool} returned {kind}, which is not a tool result", is_error=True
        )
    result = replace(result, content=content)
    if not _has_image(result) and not content_text(result.content).strip():
        return replace(result, content=f"({tool} completed with no output)")
    return result


class ResultFiles:
    """Keeps results that are too long for the model, one file each, below the workspace.

    Args:
        workspace: the agent's folder. A model may have written to it, so links are not followed.
    """

    def __init__(self, workspace: Folder) -> None:
        self._workspace = workspace

    def folder_of(self, session_key: str) -> Path:
        """Return the folder for the results of one session."""
        return self._workspace.path / RESULTS_FOLDER / _safe(session_key)

    def bounded(self, text: str, max_chars: int, session_key: str, call_id: str) -> str:
        """Return `text`, or its head and tail and the file with the whole text. May block.

        Args:
            text: the result.
            max_chars: longest text that is returned unchanged.
            session_key: session of the call.
            call_id: id of the call, for the name of the file.

        Raises:
            OSError: the file cannot be written.
        """
        if len(text) <= max_chars:
            return text
        name = RESULTS_FOLDER / _safe(session_key) / f"{_safe(call_id)}.txt"
        self._workspace.replace(name, text.encode(errors="replace"))
        place = self._workspace.path / name
        note = f"[{len(text):,} characters; the full text is in {place}, read it in parts]"
        return f"{truncate_middle(text, max_chars)}\n{note}"

    def remove_old(self, keep_days: float) -> int:
        """Delete results older than `keep_days`; return how many. Blocks."""
        oldest = time.time() - keep_days * 86_400
        removed = 0
        with suppress(OSError):  # no result was ever kept
            for session in self._workspace.scan(RESULTS_FOLDER):
                # Another process may be faster; the next start tries again.
                with suppress(OSError):
                    removed += self._remove_old_of(RESULTS_FOLDER / session.name, oldest)
        return removed

    def _remove_old_of(self, folder: Path, oldest: float) -> int:
        removed = 0
        for name, facts in self._workspace.scan(folder):
            if name.endswith(".txt") and facts.st_mtime < oldest:
                with suppress(OSError):
                    self._workspace.remove(folder / name)
                    removed += 1
        return removed


def call_hint(name: str, arguments: JsonObject) -> str:
    """Return a short form of a call, such as ``web_search("query")``."""
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
    """Return a file name that cannot leave its folder and is different for different names."""
    plain = re.sub(r"[^a-zA-Z0-9_-]", "_", name)[:60]
    if plain == name:
        return plain
    return f"{plain}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"
