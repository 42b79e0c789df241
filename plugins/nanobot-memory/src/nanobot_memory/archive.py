"""Archive: spans that wait for their summary, in files that outlive the process."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from hashlib import sha256
from pathlib import PurePath
from typing import TYPE_CHECKING, Final

from nanobot_core import Folder, finish_in_thread, truncate_middle
from nanobot_memory.consolidator import known_start, parts_of
from nanobot_memory.history import digest_of
from nanobot_memory.summaries import MAX_SUMMARY_CHARS, Part, cut_lines, joined, part_of

if TYPE_CHECKING:
    from nanobot_core import HistorySpan, PluginContext
    from nanobot_memory.consolidator import Consolidator
    from nanobot_memory.files import Memories, MemoryFiles

MAX_ATTEMPTS: Final = 3
"""Attempts to summarise a span; then what is missing is kept as ``[RAW]``."""
SETTLE_LIMIT_S: Final = 15.0
"""Seconds that `Archive.add` waits for messages that it was given before a kill."""
MAX_PARTS: Final = 50
"""Parts of a span that are summarised; older ones are kept as ``[RAW]``."""
MAX_WAITING_CHARS: Final = 2_000
"""Characters of the prompt for what waits for a summary."""
_USERS_LINE = re.compile(r"^(?:\[[^\]\n]*\] )?User: (.*)$", re.MULTILINE)
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
        self._idle = asyncio.Event()
        self._idle.set()
        self._waiting_names: list[str] = []
        self._waiting: dict[str, str] = {}
        self._next_s: float | None = 0.0  # nothing is known of the folder yet

    async def add(self, files: MemoryFiles, span: HistorySpan) -> None:
        """Keep a span; it is on disk when the call returns, and is summarised afterwards."""
        with suppress(TimeoutError):
            async with asyncio.timeout(SETTLE_LIMIT_S):
                await self.settle(files, span)
        if await finish_in_thread(partial(self._store, files, span)):
            self._next_s = 0.0
            self.resume()

    def resume(self) -> None:
        """Summarise what waits, in the background, unless it failed a short time ago."""
        if not self._idle.is_set() or self._next_s is None:
            return
        if self._ctx.clock.monotonic_s() >= self._next_s:
            self._idle.clear()
            self._ctx.spawn(self._work(), name="archive")

    def waiting(self, files: MemoryFiles) -> str:
        """Return the beginning of what people said and no summary tells yet. Blocks."""
        names = self._names()
        if names != self._waiting_names:
            records = [record for name in names if (record := self._read(name)) is not None]
            self._waiting = {}
            for record in records:
                said = self._waiting.get(record.scope, "")
                for part in record.parts:
                    said += "\n".join(_USERS_LINE.findall(part.text)) + "\n"
                self._waiting[record.scope] = truncate_middle(said, MAX_WAITING_CHARS)
            self._waiting_names = names
        return self._waiting.get(files.scope, "").strip()

    async def settle(self, files: MemoryFiles, span: HistorySpan) -> bool:
        """Wait until no messages of a span wait for a summary; return false if it failed.

        After a kill, a span can come again before what was kept of it is in the history.
        """
        if not await asyncio.to_thread(self._overlapping, files, span):
            return True
        self.resume()
        await self._idle.wait()
        return not await asyncio.to_thread(self._overlapping, files, span)

    def _store(self, files: MemoryFiles, span: HistorySpan) -> bool:
        """Store a span unless the history has it; return whether it waits for a summary."""
        start = known_start(files, span)
        if start == len(span.messages):
            return False
        before = "" if span.is_summarised else span.summary
        key = span.scope.session_key
        if span.is_summarised and all(key != each.session_key for each in files.all_entries()):
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
        former = self._overlapping(files, rest) if self._idle.is_set() else []
        name = f"{_prefix(files, rest)}{rest.first_index:010}-{parts[0].digest}.json"
        self._folder.make()
        self._write(name, record)
        for each in former:
            if each != name and (kept := self._read(each)) and _contains(rest, kept.parts):
                self._folder.remove(each)
        return True

    def _overlapping(self, files: MemoryFiles, span: HistorySpan) -> list[str]:
        """Return the files with messages of the span's session, from its first one on."""
        prefix = _prefix(files, span)
        first = f"{prefix}{span.first_index:010}"
        return [name for name in self._names() if name.startswith(prefix) and name >= first]

    async def _work(self) -> None:
        self._next_s = None
        try:
            with self._locked() as is_mine:
                seen: set[str] = set()
                while is_mine:
                    names = await asyncio.to_thread(self._names)
                    if not (new := [name for name in names if name not in seen]):
                        break
                    for name in new:
                        await self._finish(name)
                    seen.update(new)
        finally:
            self._idle.set()

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
        try:
            entries = self._folder.scan()
        except FileNotFoundError:
            return []
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
            try:
                self._folder.rename(name, f"{name}.corrupt")
            except FileNotFoundError:  # another thread has read it at the same time
                return None
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


def _prefix(files: MemoryFiles, span: HistorySpan) -> str:
    """Return what the names of the files of a session begin with."""
    key = f"{files.root.path}\0{files.scope}\0{span.scope.session_key}"
    return f"{sha256(key.encode(errors='replace')).hexdigest()[:32]}-"


def _contains(span: HistorySpan, parts: Sequence[Part]) -> bool:
    """Whether all messages of `parts` are in a span."""
    start = span.first_index
    return all(
        part.last <= span.last_index
        and digest_of(span.messages[part.first - start : part.last - start]) == part.digest
        for part in parts
    )
