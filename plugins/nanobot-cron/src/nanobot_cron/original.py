"""Imports the jobs of the original nanobot, once. Its files are not changed."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeAlias

from pydantic import ValidationError

from nanobot_core import Folder, Requester
from nanobot_cron.job import MAX_RUNS, MAX_TEXT_CHARS, At, Every, Job, JobState, Run, Schedule
from nanobot_cron.schedule import ScheduleInvalid, parse_cron

MAX_BYTES = 50_000_000
_FILE = "jobs.json"
_ACTIONS = "action.jsonl"
_MACHINE = frozenset({"", "cli", "sdk"})
_STATUSES = {"ok": "ok", "error": "error", "skipped": "skipped"}
_ID = re.compile(r"[^\s@/]{1,64}")
Chat: TypeAlias = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Original:
    """What was found.

    Attributes:
        path: the file.
        jobs: its jobs in our form.
        refused: name of each entry that cannot be used, with the reason.
    """

    path: Path
    jobs: tuple[Job, ...]
    refused: tuple[str, ...]


def find_original(
    folders: Sequence[Path], *, now: datetime, owners_chat: Chat | None
) -> Original | None:
    """Return the jobs below the first of `folders` that has a file of the original.

    Args:
        folders: where the original keeps its folder ``cron``.
        now: the current time.
        owners_chat: channel and chat of the owner. Jobs for it have the owner's rights, and jobs
            for other chats those of guests.
    """
    for folder in folders:
        path = folder / "cron" / _FILE
        actions = _read_actions(path.parent)
        try:
            data = Folder(path.parent).read(_FILE, MAX_BYTES)
        except OSError as error:
            if not actions or not isinstance(error, FileNotFoundError):
                continue
            # Jobs that were made while no gateway of the original ran.
            path, data = path.with_name(_ACTIONS), b"[]"
        try:
            entries = _entries(json.loads(data), actions)
        except (ValueError, TypeError, RecursionError):
            return Original(path, (), ("the file is not valid JSON",))
        return _convert_all(path, entries, now, owners_chat)
    return None


def _read_actions(folder: Path) -> list[Any]:
    """Return the changes that the original has not merged into its file yet."""
    found: list[Any] = []
    try:
        lines = Folder(folder).read(_ACTIONS, MAX_BYTES).splitlines()
    except OSError:
        return []
    for line in lines:
        try:
            found.append(json.loads(line))
        except (ValueError, RecursionError):
            continue  # the last line of a process that was killed
    return found


def _entries(content: Any, actions: list[Any]) -> list[Any]:  # noqa: ANN401 - JSON
    entries = content.get("jobs") if isinstance(content, dict) else content
    if not isinstance(entries, list):
        msg = "the file has no list of jobs"
        raise TypeError(msg)
    by_id: dict[object, Any] = {}
    for number, entry in enumerate(entries):
        key = entry.get("id") if isinstance(entry, dict) else None
        by_id[key if isinstance(key, str) and key not in by_id else number] = entry
    for action in actions:
        params = action.get("params") if isinstance(action, dict) else None
        if not isinstance(params, dict):
            continue
        key = params.get("id") or params.get("job_id") or params.get("jobId")
        if action.get("action") == "del":
            by_id.pop(key, None)
        elif isinstance(key, str) and action.get("action") in ("add", "update"):
            by_id[key] = params
    return list(by_id.values())


def _convert_all(
    path: Path, entries: list[Any], now: datetime, owners_chat: Chat | None
) -> Original:
    jobs: dict[str, Job] = {}
    refused: list[str] = []
    for number, entry in enumerate(entries, start=1):
        fields = _Fields(entry if isinstance(entry, dict) else {})
        name = fields.text("name") or fields.text("id") or f"entry {number}"
        try:
            job = _convert(fields, f"original-{number}", now, owners_chat)
        except (ScheduleInvalid, ValidationError, _Refused, OverflowError) as error:
            reason = "its fields are invalid" if isinstance(error, ValidationError) else str(error)
            refused.append(f"{name}: {reason}")
        else:
            jobs[job.id if job.id not in jobs else f"original-{number}"] = job
    return Original(path, tuple(jobs.values()), tuple(refused))


class _Refused(Exception):
    """An entry cannot be used."""


class _Fields:
    """Fields of an object, in camel case or with underscores, of which any may be missing."""

    def __init__(self, content: Mapping[str, Any]) -> None:
        self._content = content

    def get(self, name: str) -> Any:  # noqa: ANN401 - JSON
        """Return a value, ``None`` if there is none."""
        value = self._content.get(name)
        if value is None:
            value = self._content.get(re.sub(r"([A-Z])", lambda m: f"_{m[1].lower()}", name))
        return value

    def part(self, name: str) -> _Fields:
        """Return an object."""
        value = self.get(name)
        return _Fields(value if isinstance(value, dict) else {})

    def text(self, name: str) -> str:
        """Return a text, also of a number."""
        value = self.get(name)
        return str(value).strip() if isinstance(value, str | int) else ""

    def number(self, name: str) -> float | None:
        """Return a number, also from a text."""
        value = self.get(name)
        try:
            return float(value) if isinstance(value, str | int | float) else None
        except (ValueError, OverflowError):
            return None

    def instant(self, name: str) -> datetime | None:
        """Return the instant of a number of milliseconds."""
        milliseconds = self.number(name)
        if not milliseconds:
            return None
        try:
            return datetime.fromtimestamp(milliseconds / 1000, UTC)
        except (ValueError, OverflowError, OSError):
            return None

    def items(self, name: str) -> Iterator[_Fields]:
        """Yield the objects of a list."""
        value = self.get(name)
        for item in value if isinstance(value, list) else ():
            if isinstance(item, dict):
                yield _Fields(item)


def _convert(fields: _Fields, spare_id: str, now: datetime, owners_chat: Chat | None) -> Job:
    payload, state = fields.part("payload"), fields.part("state")
    if payload.text("kind") == "system_event":
        raise _Refused("it is a job of the original program itself")
    created_at = fields.instant("createdAtMs") or now
    schedule = _schedule(fields.part("schedule"), state.instant("nextRunAtMs") or created_at)
    own_id = fields.text("id")
    requester = _requester(payload, owners_chat)
    at = schedule.at if isinstance(schedule, At) else None
    return Job(
        id=own_id if _ID.fullmatch(own_id) else spare_id,
        name=fields.text("name")[:200],
        enabled=fields.get("enabled") is not False,
        schedule=schedule,
        message=payload.text("message"),
        requester=requester,
        delivery="never" if _is_silent(payload) else "always",
        created_at=created_at,
        updated_at=fields.instant("updatedAtMs") or created_at,
        state=JobState(
            # One that was due while neither program ran must be found late, not forgotten.
            next_at=at,
            planned_for=f"at {at.isoformat()}" if at else "",
            runs=tuple(_runs(state))[-MAX_RUNS:],
        ),
    )


def _is_silent(payload: _Fields) -> bool:
    """Whether the answer goes nowhere. Since 0.2.2, that of a job with a session goes there."""
    has_session = payload.text("sessionKey") and payload.text("originChatId")
    return payload.get("deliver") is False and not has_session


def _schedule(fields: _Fields, anchor: datetime) -> Schedule:
    kind = fields.text("kind")
    if kind == "at" and (at := fields.instant("atMs")):
        return At(at=at)
    if kind == "every" and (every_ms := fields.number("everyMs")):
        return Every(seconds=every_ms / 1000, anchor=anchor)
    if kind == "cron" and (expression := fields.text("expr")):
        return parse_cron(expression, fields.text("tz"))
    raise _Refused(f"it has no usable schedule (kind '{kind[:20]}')")


def _requester(payload: _Fields, owners_chat: Chat | None) -> Requester:
    channel = payload.text("channel") or payload.text("originChannel")
    chat_id = payload.text("to") or payload.text("originChatId")
    if channel in _MACHINE:
        return Requester(authority="machine")
    is_owners = owners_chat == (channel, chat_id)
    return Requester(
        channel=channel,
        chat_id=chat_id,
        sender_id=chat_id,  # the original does not store who asked; in private chats it is the same
        session_key=payload.text("sessionKey") or f"{channel}:{chat_id}",
        authority="owner" if is_owners else "guest",
    )


def _runs(state: _Fields) -> Iterator[Run]:
    history = list(state.items("runHistory"))
    for item in history:
        if (at := item.instant("runAtMs")) is not None:
            yield _run(at, item.text("status"), item.number("durationMs"), item.text("error"))
    if not history and (at := state.instant("lastRunAtMs")):
        yield _run(at, state.text("lastStatus"), None, state.text("lastError"))


def _run(at: datetime, status: str, duration_ms: float | None, error: str) -> Run:
    return Run.model_validate(
        {
            "slot": at,
            "started_at": at,
            "status": _STATUSES.get(status, "unknown"),
            "duration_s": None if duration_ms is None else duration_ms / 1000,
            "error": error[:MAX_TEXT_CHARS],
        }
    )
