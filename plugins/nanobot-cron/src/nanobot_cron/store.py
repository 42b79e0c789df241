"""JobStore: the file with the jobs, which several processes and a person's editor may change."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar
from zlib import crc32

from filelock import FileLock, Timeout
from pydantic import ValidationError

from nanobot_core import Folder, JsonValue, corrupt_name, finish_in_thread, replace_file
from nanobot_cron.errors import JobsUnavailable
from nanobot_cron.job import Job, SystemRecord
from nanobot_cron.original import find_original

if TYPE_CHECKING:
    from nanobot_core import PluginContext

FILE = "jobs.json"
VERSION = 1
MAX_BYTES = 200_000_000
_LOCK_S = 10.0
_CATCHES_UP_S = 5.0
_MAX_NOTICE_ITEMS = 5
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Book:
    """The content of the file.

    Attributes:
        jobs: by id, in the order in which they were added.
        system: state of the jobs of plugins, by id.
        unreadable: entries that are not valid jobs; they are kept unchanged.
        written_at: when it was last written; ``None`` if never. Each planned run was planned at
            or before this instant: if now is earlier, the clock was set back.
        rest: keys that this release does not know.
    """

    jobs: Mapping[str, Job] = field(default_factory=dict)
    system: Mapping[str, SystemRecord] = field(default_factory=dict)
    unreadable: Sequence[JsonValue] = ()
    written_at: datetime | None = None
    rest: Mapping[str, JsonValue] = field(default_factory=dict)

    def with_job(self, job: Job) -> Book:
        """Return the book with a job added or replaced."""
        return replace(self, jobs={**self.jobs, job.id: job})

    def with_entries(self, jobs: Mapping[str, Job], system: Mapping[str, SystemRecord]) -> Book:
        """Return the book with jobs of people and of plugins replaced."""
        return replace(self, jobs={**self.jobs, **jobs}, system={**self.system, **system})

    def without(self, job_id: str) -> Book:
        """Return the book without a job."""
        return replace(self, jobs={key: job for key, job in self.jobs.items() if key != job_id})


@dataclass(slots=True)
class _Edit(Generic[T]):
    """A change that waits to be written."""

    change: Callable[[Book], tuple[Book, T]]
    done: asyncio.Future[T]


class JobStore:
    """The jobs of one home, in ``jobs.json``; get it with ``ctx.shared(JobStore)``.

    A change is applied to what the file holds at that moment, in a thread and under a lock that
    other processes respect, and becomes visible once it is on disk. Changes that
    arrive during a write share the next one.

    Attributes:
        changed: set after each change, and never cleared here.
    """

    def __init__(self, ctx: PluginContext) -> None:
        self.changed: asyncio.Event = asyncio.Event()
        self._caught_up: asyncio.Event | None = None
        self._ctx = ctx
        self._folder = ctx.data_dir
        self._path = ctx.data_dir / FILE
        self._book = Book()
        self._identity: tuple[int, int, int] | None = None
        self._is_loaded = False
        self._texts: dict[str, tuple[Job | SystemRecord, str]] = {}
        self._notices: dict[str, str] = {}
        self._waiting: list[_Edit[Any]] = []
        self._writing = asyncio.Lock()

    @contextmanager
    def followed(self) -> Iterator[asyncio.Event]:
        """Note that a scheduler follows the changes.

        Returns:
            To set whenever it acts by the current content; a change clears it.
        """
        self._caught_up = asyncio.Event()
        try:
            yield self._caught_up
        finally:
            self._caught_up = None

    async def wait_for_scheduler(self) -> None:
        """Wait, for a few seconds at most, until the scheduler acts by the current content."""
        if self._caught_up is not None:
            with suppress(TimeoutError):  # what is stored counts as soon as possible
                async with asyncio.timeout(_CATCHES_UP_S):
                    await self._caught_up.wait()

    async def read(self) -> Book:
        """Return the current content; the file is read again if it has changed.

        Raises:
            JobsUnavailable: it cannot be read.
        """
        async with self._writing:
            former = self._book
            await self._in_thread(self._read)
            self._compare(former)
        await self._report()
        return self._book

    async def change(self, change: Callable[[Book], tuple[Book, T]]) -> T:
        """Apply a change and store the result.

        Args:
            change: returns the new book and a result; it is called in a thread. If it returns
                the same book, nothing is written.

        Returns:
            The result of `change`.

        Raises:
            JobsUnavailable: the file cannot be read or written; nothing was changed.
            Exception: what `change` raised.
        """
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        edit = _Edit(change, future)
        self._waiting.append(edit)
        try:
            async with self._writing:
                if not edit.done.done():
                    batch, self._waiting = self._waiting, []
                    await self._commit(batch)
        finally:
            if edit in self._waiting:
                self._waiting.remove(edit)
        await self._report()
        return await future

    async def _commit(self, batch: list[_Edit[Any]]) -> None:
        outcomes: list[tuple[object, Exception | None]] = []
        failure: Exception | None = None
        former = self._book
        try:
            await self._in_thread(partial(self._apply, batch, outcomes))
        except JobsUnavailable as error:
            failure = error
        finally:  # also if this caller was cancelled meanwhile: the work has ended
            lost = failure or JobsUnavailable("the change was not stored")
            for number, edit in enumerate(batch):
                result, refusal = outcomes[number] if outcomes and not failure else (None, lost)
                _resolve(edit.done, result, refusal)
            self._compare(former)

    def _compare(self, former: Book) -> None:
        if self._book is not former:
            self.changed.set()
            if self._caught_up is not None:
                self._caught_up.clear()

    async def _in_thread(self, work: Callable[[], None]) -> None:
        try:
            await finish_in_thread(work)
        except Timeout:
            msg = f"another process holds the lock of '{self._path}'; try again"
            raise JobsUnavailable(msg) from None
        except OSError as error:
            msg = f"'{self._path}' cannot be used: {error.strerror or error}"
            raise JobsUnavailable(msg) from error

    async def _report(self) -> None:
        """Report problems of the file, in the log or to the owner."""
        while self._notices:
            key, text = self._notices.popitem()
            if (gateway := self._ctx.gateway) is not None:
                await gateway.notify_owner(text, key)
            else:
                bound = self._ctx.logger.bind(file=str(self._path))
                bound.warning("{}", text)

    # --- in a thread -------------------------------------------------------------------------

    def _read(self) -> None:
        if self._is_loaded and self._identity == self._current_identity():
            return
        with self._lock():
            self._load()

    def _apply(
        self, batch: list[_Edit[Any]], outcomes: list[tuple[object, Exception | None]]
    ) -> None:
        with self._lock():
            if not self._is_loaded or self._identity != self._current_identity():
                self._load()
            book, found = self._book, list[tuple[object, Exception | None]]()
            for edit in batch:
                try:
                    book, result = edit.change(book)
                    found.append((result, None))
                except Exception as error:  # noqa: BLE001 - raised where the change was asked for
                    found.append((None, error))
            if book is not self._book:
                self._write(book)
            outcomes += found

    def _lock(self) -> FileLock:
        # Another thread may release it than the one that acquired it.
        name = self._folder / f".{FILE}.lock"
        return FileLock(name, timeout=_LOCK_S, mode=0o600, thread_local=False)

    def _current_identity(self) -> tuple[int, int, int] | None:
        try:
            facts = self._path.stat()
        except FileNotFoundError:
            return None
        return facts.st_ino, facts.st_mtime_ns, facts.st_size

    def _load(self) -> None:
        for left in self._folder.glob(f".{FILE}.*"):  # by a process that was killed in a write
            if left.suffix != ".lock":
                left.unlink(missing_ok=True)
        identity = self._current_identity()
        if identity is None:
            if self._is_loaded:
                text = f"'{self._path}' was removed; it is written again from memory"
                self._notices[f"cron-removed-{self._ctx.clock.now().isoformat()}"] = text
                self._write(self._book)
            else:
                self._begin()
            return
        data = Folder(self._folder).read(FILE, MAX_BYTES + 1)
        if len(data) > MAX_BYTES:
            msg = f"'{self._path}' is larger than {MAX_BYTES // 1_000_000} MB"
            raise JobsUnavailable(msg)
        try:
            content = json.loads(data)
        except (ValueError, RecursionError):
            content = None
        if not isinstance(content, dict) or not isinstance(content.get("jobs", []), list):
            self._rescue(data)
            return
        self._check_version(content)
        self._book = _book_of(content)
        self._identity, self._is_loaded = identity, True
        self._note_unreadable()

    def _begin(self) -> None:
        """Import the jobs of the original, if there are any."""
        home = self._folder.parent.parent
        gateway = self._ctx.gateway
        found = find_original(
            (home, self._ctx.workspace),
            now=self._ctx.clock.now(),
            owners_chat=gateway.owners_chat if gateway else None,
        )
        self._is_loaded, self._identity, self._book = True, None, Book()
        if found is None:
            if gateway is not None:  # so that a file that appears later is not imported
                self._write(self._book)
            return
        text = f"{len(found.jobs)} scheduled jobs were imported from '{found.path}'"
        if found.refused:
            text += f"; {len(found.refused)} entries are invalid and were left out: "
            text += "; ".join(found.refused[:_MAX_NOTICE_ITEMS])
        if found.jobs:
            self._is_loaded = False
            self._write(Book(jobs={job.id: job for job in found.jobs}))
            self._is_loaded = True
        self._notices["cron-original"] = text

    def _rescue(self, data: bytes) -> None:
        """Keep a damaged file under another name, and continue with the jobs that can be read."""
        kept = _keep(self._path)
        book = self._book if self._is_loaded else _book_of({"jobs": _whole_lines(data)})
        self._write(replace(book, unreadable=()) if not self._is_loaded else book)
        source = "in memory" if self._is_loaded else "found in it"
        self._is_loaded = True
        self._notices[f"cron-damaged-{kept.name}"] = (
            f"'{self._path}' was damaged. It is kept as '{kept.name}'; {len(book.jobs)} jobs were "
            f"{source} and continue. Compare the list of jobs with that file."
        )

    def _check_version(self, content: Mapping[str, JsonValue]) -> None:
        version = content.get("version", VERSION)
        if isinstance(version, int) and version <= VERSION:
            return
        msg = (
            f"'{self._path}' has version {json.dumps(version)}, and this release reads up to "
            f"{VERSION}; upgrade nanobot-cron, or move the file away to begin without jobs"
        )
        raise JobsUnavailable(msg)

    def _note_unreadable(self) -> None:
        if count := len(self._book.unreadable):
            text = json.dumps(self._book.unreadable, sort_keys=True)
            self._notices[f"cron-unreadable-{crc32(text.encode()):08x}"] = (
                f"{count} entries of '{self._path}' are not valid jobs; they are kept there under "
                "'unreadable' and do not run. Correct or remove them."
            )

    def _write(self, book: Book) -> None:
        book = replace(book, written_at=self._ctx.clock.now())
        text = self._encode(book)
        replace_file(self._path, text)
        self._book, self._identity = book, self._current_identity()

    def _encode(self, book: Book) -> str:
        head = {**book.rest, "version": VERSION, "written_at": _stamp(book.written_at)}
        lists = {
            "jobs": [self._text(job) for job in book.jobs.values()],
            "system": [self._text(record) for record in book.system.values()],
            "unreadable": [json.dumps(entry) for entry in book.unreadable],
        }
        parts = [json.dumps(head)[1:-1]]
        parts += [f'"{name}": [{_lines(texts)}]' for name, texts in lists.items()]
        self._texts = {key: value for key, value in self._texts.items() if _knows(book, value[0])}
        return "{" + ",\n".join(parts) + "}\n"

    def _text(self, entry: Job | SystemRecord) -> str:
        """Return an entry on one line; most have not changed since the last time."""
        key = f"{type(entry).__name__} {entry.id}"
        known = self._texts.get(key)
        if known is None or known[0] is not entry:
            text = entry.model_dump_json()
            known = self._texts[key] = (entry, text)
        return known[1]


def _knows(book: Book, entry: Job | SystemRecord) -> bool:
    entries: Mapping[str, Job | SystemRecord] = book.jobs if isinstance(entry, Job) else book.system
    return entries.get(entry.id) is entry


def _resolve(future: asyncio.Future[Any], result: object, error: Exception | None) -> None:
    if future.done():  # its caller was cancelled
        return
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)


def _lines(texts: list[str]) -> str:
    return "\n" + ",\n".join(texts) + "\n" if texts else ""


def _stamp(instant: datetime | None) -> str | None:
    return instant.isoformat() if instant else None


def _book_of(content: Mapping[str, Any]) -> Book:
    """Return the content of a file; entries that are not valid jobs are kept apart."""
    jobs: dict[str, Job] = {}
    unreadable: list[JsonValue] = []
    for entry in (*content.get("jobs", ()), *_list(content.get("unreadable"))):
        job = _job(entry)
        if job is not None and job.id not in jobs:
            jobs[job.id] = job
        else:
            unreadable.append(entry)
    known = {"version", "written_at", "jobs", "system", "unreadable"}
    records = filter(None, map(_record, _list(content.get("system"))))
    return Book(
        jobs=jobs,
        system={record.id: record for record in records},
        unreadable=unreadable,
        written_at=_instant(content.get("written_at")),
        rest={key: value for key, value in content.items() if key not in known},
    )


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _job(entry: object) -> Job | None:
    try:
        return Job.model_validate(entry)
    except (ValidationError, ValueError):
        return None


def _record(entry: object) -> SystemRecord | None:
    try:
        return SystemRecord.model_validate(entry)
    except (ValidationError, ValueError):
        return None


def _instant(value: object) -> datetime | None:
    try:
        instant = datetime.fromisoformat(value) if isinstance(value, str) else None
    except ValueError:
        return None
    return instant.astimezone(UTC) if instant and instant.tzinfo else None


def _whole_lines(data: bytes) -> list[JsonValue]:
    """Return the objects that are on a line of their own, as `JobStore` writes them.

    Only at the beginning of a line: texts of people and models are inside one.
    """
    found: list[JsonValue] = []
    for line in data.splitlines():
        if not line.startswith(b'{"id":'):
            continue
        try:
            found.append(json.loads(line.rstrip(b", ")))
        except (ValueError, RecursionError):
            continue
    return found


def _keep(path: Path) -> Path:
    """Give the file a second name, which remains when the first is used for another file."""
    for kept in path.parent.glob(f"{path.name}.corrupt-*"):
        if kept.samefile(path):
            return kept  # by an attempt that could not write
    kept = corrupt_name(path)
    os.link(path, kept)
    return kept
