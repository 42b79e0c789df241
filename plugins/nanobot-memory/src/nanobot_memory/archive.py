"""Archive: spans that wait for their summary, in files that outlive the process."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from hashlib import sha256
from pathlib import PurePath
from typing import TYPE_CHECKING, Final

from nanobot_core import Folder, finish_in_thread
from nanobot_memory.consolidator import known_start, parts_of
from nanobot_memory.summaries import MAX_SUMMARY_CHARS, Part, cut_lines, joined, part_of

if TYPE_CHECKING:
    from nanobot_core import HistorySpan, PluginContext
    from nanobot_memory.consolidator import Consolidator
    from nanobot_memory.files import Memories, MemoryFiles

MAX_ATTEMPTS: Final = 3
"""Attempts to summarise a span; then what is missing is kept as ``[RAW]``."""
MAX_PARTS: Final = 50
"""Parts of a span that are summarised; older ones are kept as ``[RAW]``."""
_MAX_BYTES = 20_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class _Record:
    """A span on disk.

    Attributes:
        workspace: the workspace of its memory.
        scope: name of the memory.
        summary: of what was said before it.
        attempts: how often a summary failed.
        parts: what becomes an entry each.
    """

    workspace: str
    scope: str
    summary: str
    attempts: int
    parts: tuple[Part, ...]


class Archive:
    """Keeps spans until they are in the history. One process at a time summarises them."""

    def __init__(self, ctx: PluginContext, memories: Memories, consolidator: Consolidator) -> None:
        self._ctx = ctx
        self._log = ctx.logger
        self._memories = memories
        self._consolidator = consolidator
        self._folder = Folder(ctx.data_dir / "pending")
        self._is_working = False
        self._next_s: float | None = 0.0  # nothing is known of the folder yet

    async def add(self, files: MemoryFiles, span: HistorySpan) -> None:
        """Keep a span; it is on disk when the call returns, and is summarised afterwards."""
        if await finish_in_thread(partial(self._store, files, span)):
            self._next_s = 0.0
            self.resume()

    def resume(self) -> None:
        """Summarise what waits, in the background, unless it failed a short time ago."""
        if self._is_working or self._next_s is None:
            return
        if self._ctx.clock.monotonic_s() >= self._next_s:
            self._is_working = True
            self._ctx.spawn(self._work(), name="archive")

    def _store(self, files: MemoryFiles, span: HistorySpan) -> bool:
        """Store a span unless the history has it; return whether it waits for a summary."""
        start = known_start(files, span)
        if start == len(span.messages):
            return False
        before = "" if span.is_summarised else span.summary
        if span.is_summarised and not files.has_session(span.scope.session_key):
            # Later, such a summary repeats what earlier entries say, as if it were new.
            part = part_of(span, 0, len(span.messages))
            text = cut_lines(span.summary.strip(), 2 * MAX_SUMMARY_CHARS) or part.raw
            files.append([part.entry(text)])
            return False
        rest = replace(span, messages=span.messages[start:], first_index=span.first_index + start)
        parts = parts_of(rest)
        old = [replace(part, text="") for part in parts[:-MAX_PARTS]]
        record = _Record(
            workspace=str(files.root.path),
            scope=files.scope,
            summary=before,
            attempts=0,
            parts=(*old, *parts[-MAX_PARTS:]),
        )
        name = sha256(f"{record.workspace}\0{record.scope}\0{parts[0]}".encode(errors="replace"))
        self._folder.make()
        self._write(f"{name.hexdigest()[:32]}.json", record)
        return True

    async def _work(self) -> None:
        self._next_s = None
        try:
            with self._locked() as is_mine:
                names = await asyncio.to_thread(self._names) if is_mine else []
                for name in names:
                    await self._finish(name)
        finally:
            self._is_working = False

    async def _finish(self, name: str) -> None:
        """Summarise one span and remove its file; if that fails, it waits for the next time."""
        record = await asyncio.to_thread(self._read, name)
        if record is None:
            return
        files = self._memories.files(record.scope)
        is_last = record.attempts + 1 >= MAX_ATTEMPTS
        summary = record.summary
        for part in record.parts:
            pause_s = self._consolidator.pause_s(files)
            text = None
            if pause_s == 0 or not part.text:
                text = await self._consolidator.take_up(files, part, summary, must=is_last)
            if text is None:
                failed = replace(record, attempts=record.attempts + (pause_s == 0))
                await finish_in_thread(partial(self._write, name, failed))
                now_s = self._ctx.clock.monotonic_s()
                self._next_s = now_s + self._consolidator.pause_s(files)
                return
            summary = joined(summary, text)
        await finish_in_thread(partial(self._folder.remove, name))

    def _names(self) -> list[str]:
        entries = self._folder.scan()
        entries.sort(key=lambda entry: entry.facts.st_mtime_ns)
        return [entry.name for entry in entries if PurePath(entry.name).suffix == ".json"]

    def _write(self, name: str, record: _Record) -> None:
        self._folder.replace(name, json.dumps(asdict(record)).encode(), mode=0o600)

    def _read(self, name: str) -> _Record | None:
        """Return a span of this workspace; one that is damaged is renamed and reported."""
        try:
            raw = json.loads(self._folder.read(name, _MAX_BYTES))
            if raw["workspace"] != str(self._memories.files().root.path):
                return None
            return _Record(**raw | {"parts": tuple(Part(**part) for part in raw["parts"])})
        except FileNotFoundError:
            return None
        except (ValueError, TypeError, KeyError) as error:
            self._folder.rename(name, f"{name}.corrupt")
            self._log.error(
                "{} in {} is damaged and was renamed to {}.corrupt; the messages are in the file "
                "of their session: {}",
                name,
                self._folder.path,
                name,
                error,
            )
            return None

    @contextmanager
    def _locked(self) -> Iterator[bool]:
        """Yield whether this process may work on the folder until the block ends."""
        self._folder.make()
        handle = self._folder.open(".lock", os.O_RDWR | os.O_CREAT)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True
        finally:
            os.close(handle)  # also unlocks
