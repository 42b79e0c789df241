"""The trigger ``file``: a file, or a file in a folder, is created, changed or removed.

The files are compared with their last known state every few seconds: the notifications of operating
systems miss network drives and lose events when their queue is full. The state is stored, so that
changes while the gateway is down are found later.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, replace
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from nanobot_core import Folder, ToolInputError, Trigger, TriggerEvent
from nanobot_cron.errors import JobsUnavailable
from nanobot_cron.snapshot import Change, Place, Snapshot, take_snapshot
from nanobot_cron.store import JobStore
from nanobot_cron.wording import as_code, join

if TYPE_CHECKING:
    from nanobot_core import Fire, JsonObject, PluginContext, ToolContext

POLL_S = 5.0
"""Seconds between two snapshots. A change counts once two consecutive snapshots show it."""
_PAUSES = 200
"""The pause after a snapshot is at least this many times as long as the snapshot took."""
_MAX_NAMED = 50
_MAX_STATE_BYTES = 8_000_000
_FOLDER = "watched"


class _Stored(BaseModel):
    """Options of a job, as `FileTrigger.check` returns them."""

    model_config = ConfigDict(frozen=True)

    path: Path
    shown: str
    folder: bool
    pattern: str = "*"
    recursive: bool = False
    events: tuple[Change, ...] = ("created", "changed", "removed")
    since_ns: int = 0

    @property
    def place(self) -> Place:
        return Place(
            path=self.path,
            is_folder=self.folder,
            pattern=self.pattern,
            is_recursive=self.recursive,
        )


@dataclass(frozen=True, slots=True)
class _Known:
    """The last known state of a place.

    Attributes:
        files: as in `Snapshot`.
        event: id and text, stored before it is fired, so that the same one is fired after a crash.
    """

    files: Mapping[str, str]
    event: tuple[str, str] | None = None


_KNOWN: TypeAdapter[_Known] = TypeAdapter(_Known)

_PARAMETERS: JsonObject = {
    "type": "object",
    "properties": {
        "path": {
            "type": "string",
            "description": "File or folder, absolute or relative to the workspace.",
        },
        "pattern": {
            "type": "string",
            "maxLength": 200,
            "description": "Of a folder, only files with such a name, such as *.pdf.",
        },
        "recursive": {
            "type": "boolean",
            "description": "Of a folder, also files in the folders below it.",
        },
        "events": {
            "type": "array",
            "minItems": 1,
            "items": {"type": "string", "enum": ["created", "changed", "removed"]},
            "description": "Which changes start the job; all by default.",
        },
    },
    "required": ["path"],
    "additionalProperties": False,
}


class FileTrigger(Trigger):
    """Compares files with their last known state."""

    name = "file"
    description = "a file, or a file in a folder, is created, changed or removed"
    parameters = _PARAMETERS

    def __init__(self, ctx: PluginContext) -> None:
        self._ctx = ctx
        self._log = ctx.logger
        self._is_tidy = False

    async def check(self, context: ToolContext, options: JsonObject) -> JsonObject:
        """Resolve the path and note the newest change there, after which changes count.

        Raises:
            ToolInputError: the path cannot be watched.
            ToolDenied: the creator may not read it.
            ToolFailed: the folder has too many files.
        """
        stored = await asyncio.to_thread(_resolve, context, options)
        found = await asyncio.to_thread(take_snapshot, stored.place)
        newest_ns = found.newest_ns if found else 0
        return stored.model_copy(update={"since_ns": newest_ns}).model_dump(mode="json")

    async def watch(self, job_id: str, options: JsonObject, fire: Fire) -> None:
        """Fire one event for all changes that a snapshot shows.

        A snapshot is taken every `POLL_S` seconds, less often of a large folder.
        """
        stored = _Stored.model_validate(options)
        await self._forget_removed(job_id)
        known = await asyncio.to_thread(self._load, job_id, stored)
        before: Snapshot | None = None
        while True:
            if known.event is not None:
                event_id, text = known.event
                await fire(TriggerEvent(id=event_id, text=text))
                known = await self._store(job_id, replace(known, event=None))
            began_s = self._ctx.clock.monotonic_s()
            now = await asyncio.to_thread(take_snapshot, stored.place)
            took_s = self._ctx.clock.monotonic_s() - began_s
            if settled := _settled_changes(known, before, now):
                known = await self._store(job_id, _after(known, now, settled, stored))
            before = now
            if known.event is None:
                await self._ctx.clock.sleep(max(POLL_S, took_s * _PAUSES))

    def describe(self, options: JsonObject) -> str:
        """Return the place in words."""
        stored = _Stored.model_validate(options)
        what, shown = join(stored.events, "or"), as_code(stored.shown)
        if not stored.folder:
            return f"{shown} is {what}"
        below = " or a folder below it" if stored.recursive else ""
        pattern = "" if stored.pattern == "*" else f" {as_code(stored.pattern)}"
        return f"a file{pattern} in {shown}{below} is {what}"

    async def _forget_removed(self, job_id: str) -> None:
        """Remove the states of jobs that no longer exist, once for each process."""
        if self._is_tidy:
            return
        self._is_tidy = True
        try:
            jobs = (await self._ctx.shared(JobStore).read()).jobs
            await asyncio.to_thread(self._keep, {_state_name(each) for each in (job_id, *jobs)})
        except (JobsUnavailable, OSError) as error:
            self._log.warning("cannot remove the states of removed jobs: {}", error)

    def _keep(self, names: set[str]) -> None:
        folder = self._folder()
        for entry in folder.scan():
            if entry.name not in names:
                folder.unlink(entry.name)

    def _load(self, job_id: str, stored: _Stored) -> _Known:
        """Return the known state; at first, the files as they were when the job was added."""
        try:
            data = self._folder().read(_state_name(job_id), _MAX_STATE_BYTES)
            return _KNOWN.validate_json(data)
        except FileNotFoundError:
            pass
        except (OSError, ValidationError) as error:
            self._log.warning(
                "cannot read the state of the files of job {}, which is replaced by that of its "
                "creation: {}",
                job_id,
                type(error).__name__,
            )
        first = take_snapshot(stored.place, until_ns=stored.since_ns)
        return _Known(first.files if first else {})

    async def _store(self, job_id: str, known: _Known) -> _Known:
        data = _KNOWN.dump_json(known)
        await asyncio.to_thread(lambda: self._folder().replace(_state_name(job_id), data))
        return known

    def _folder(self) -> Folder:
        folder = Folder(self._ctx.data_dir / _FOLDER)
        folder.make()
        return folder


def _resolve(context: ToolContext, options: JsonObject) -> _Stored:
    text = str(options["path"])
    path = context.files.resolve_read(text)
    given = {name: value for name, value in options.items() if name != "path"}
    stored = _Stored.model_validate(
        {**given, "path": path, "shown": context.files.shown(path), "folder": path.is_dir()}
    )
    if not stored.folder and not path.parent.is_dir():
        msg = f"path: the folder of '{text}' does not exist; create it, or watch one that exists"
        raise ToolInputError(msg)
    if {"pattern", "recursive"} & options.keys() and not path.exists():
        msg = f"path: the folder '{text}' does not exist; create it first"
        raise ToolInputError(msg)
    if not stored.folder and {"pattern", "recursive"} & options.keys():
        msg = f"path: '{text}' is not a folder; leave out pattern and recursive"
        raise ToolInputError(msg)
    if path.exists() and not (stored.folder or path.is_file()):
        msg = f"path: '{text}' is neither a regular file nor a folder"
        raise ToolInputError(msg)
    return stored


def _settled_changes(
    known: _Known, before: Snapshot | None, now: Snapshot | None
) -> list[tuple[str, Change]]:
    """Return the changes that two consecutive snapshots show; a file being written waits."""
    if before is None or now is None:
        return []
    return [
        (name, change)
        for name, change in now.changes_from(known.files)
        if before.files.get(name) == now.files.get(name)
    ]


def _after(
    known: _Known, now: Snapshot | None, changes: list[tuple[str, Change]], stored: _Stored
) -> _Known:
    """Return the state after `changes`, with the event for those that start the job."""
    current = now.files if now else {}
    files = dict(known.files)
    seen = blake2b(digest_size=16)
    lines = []
    for name, change in changes:
        former = files.pop(name, "")
        if name in current:
            files[name] = current[name]
        if change in stored.events:
            seen.update(f"{change} {name} {former} {current.get(name, '')}\n".encode())
            lines.append(f"- {change}: {name or stored.shown}")
    if not lines:
        return _Known(files)
    if len(lines) > _MAX_NAMED:
        lines[_MAX_NAMED:] = [f"- and {len(lines) - _MAX_NAMED:,} more"]
    head = f"Files in {stored.path}:" if stored.folder else f"The file {stored.path}:"
    return _Known(files, (f"file:{seen.hexdigest()}", "\n".join((head, *lines))))


def _state_name(job_id: str) -> str:
    return f"{blake2b(job_id.encode(), digest_size=12).hexdigest()}.json"
