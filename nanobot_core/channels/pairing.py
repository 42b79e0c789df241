"""PairingStore: unknown senders whom the owner admits with a code."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, field, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from filelock import FileLock

from nanobot_core.channels.access import first_part
from nanobot_core.disk import corrupt_name, make_folder, replace_file
from nanobot_core.record import dataclass

if TYPE_CHECKING:
    from nanobot_core.clock import Clock
    from nanobot_core.messages import InboundMessage

LETTERS = "ABCDEFGHJKLMNPQRSTUVWXYZ23456789"
"""Without those that are mistaken for others."""
CODE_CHARS = 8
"""Forty bits, which cannot be guessed in the hour that a code is valid."""
LIFETIME = timedelta(hours=1)
MAX_PENDING = 20
LOCK_LIMIT_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PairingRequest:
    """An unknown sender who has received a code.

    Attributes:
        code: what the owner types.
        channel: channel of the message.
        sender_id: whole sender id, names included.
        chat_id: chat in which the sender gets the code.
        expires_at: ISO 8601, after which the code is void.
    """

    code: str
    channel: str
    sender_id: str
    chat_id: str
    expires_at: str


@dataclass(frozen=True, slots=True)
class _Book:
    approved: dict[str, dict[str, str]] = field(default_factory=dict)
    pending: tuple[PairingRequest, ...] = ()


class PairingStore:
    """Codes and approved senders in one file, shared by the gateway and the command line.

    All methods read and write the disk; in a running loop, call them in a thread. They raise
    `OSError` where the disk fails or another process holds the file for `LOCK_LIMIT_S`. A damaged
    file is kept aside, and then no sender is approved.

    Args:
        file: where they are kept, readable by the owner only.
        clock: source of time.
    """

    def __init__(self, file: Path, clock: Clock) -> None:
        self._file = file
        self._clock = clock

    def approved(self, channel: str) -> frozenset[str]:
        """Return the ids that may write on `channel`; a change of the file counts at once."""
        return frozenset(self._look().approved.get(channel, {}))

    def request(self, message: InboundMessage) -> PairingRequest | None:
        """Return a new code for the sender; ``None`` if one is still valid, or too many are."""
        with self._changing() as book:
            pending = book.pending
            known = {(item.channel, first_part(item.sender_id)) for item in pending}
            if (message.channel, first_part(message.sender_id)) in known:
                return None
            if len(pending) >= MAX_PENDING:
                return None
            code = "".join(secrets.choice(LETTERS) for _ in range(CODE_CHARS))
            asked = PairingRequest(
                code=code,
                channel=message.channel,
                sender_id=message.sender_id,
                chat_id=message.chat_id,
                expires_at=(self._clock.now() + LIFETIME).isoformat(),
            )
            self._write(replace(book, pending=(*pending, asked)))
        return asked

    def approve(self, code: str) -> PairingRequest | None:
        """Admit the sender with `code`; ``None`` if no such code is valid. A code works once."""
        with self._changing() as book:
            wanted = code.strip().upper().encode()
            found = [
                item for item in book.pending if secrets.compare_digest(item.code.encode(), wanted)
            ]
            if not found:
                return None
            asked = found[0]
            approved = {channel: dict(ids) for channel, ids in book.approved.items()}
            ids = approved.setdefault(asked.channel, {})
            ids[first_part(asked.sender_id)] = asked.sender_id
            rest = tuple(item for item in book.pending if item is not asked)
            self._write(_Book(approved, rest))
        return asked

    def admit(self, channel: str, sender_id: str) -> None:
        """Approve a sender without a code, such as one whom another program has approved."""
        with self._changing() as book:
            approved = {name: dict(ids) for name, ids in book.approved.items()}
            approved.setdefault(channel, {})[first_part(sender_id)] = sender_id
            self._write(replace(book, approved=approved))

    def revoke(self, channel: str, sender_id: str) -> bool:
        """Withdraw an approval; False if no sender with that id is approved."""
        with self._changing() as book:
            approved = {name: dict(ids) for name, ids in book.approved.items()}
            gone = approved.get(channel, {}).pop(first_part(sender_id), None)
            if gone is not None:
                self._write(replace(book, approved=approved))
        return gone is not None

    def pending(self) -> tuple[PairingRequest, ...]:
        """Return the codes that are valid."""
        return _valid(self._look(), self._clock.now()).pending

    def everyone(self) -> list[tuple[str, str]]:
        """Return (channel, sender id) of each approved sender."""
        book = self._look()
        return [(name, who) for name, ids in sorted(book.approved.items()) for who in ids.values()]

    @contextmanager
    def _changing(self) -> Iterator[_Book]:
        with self._locked():
            yield _valid(self._repaired(), self._clock.now())

    @contextmanager
    def _locked(self) -> Iterator[None]:
        make_folder(self._file.parent)
        with FileLock(f"{self._file}.lock", timeout=LOCK_LIMIT_S, mode=0o600):
            yield

    def _look(self) -> _Book:
        """Return the content of the file, without the lock unless it is damaged."""
        try:
            return self._read()
        except ValueError:
            with self._locked():
                return self._repaired()

    def _repaired(self) -> _Book:
        """Return the content of the file; a damaged one is put aside. Needs the lock."""
        try:
            return self._read()
        except ValueError as damage:
            from loguru import logger

            kept = self._file.replace(corrupt_name(self._file))
            logger.error(
                "'{}' is damaged and kept as '{}'; all approvals are lost, pair again: {}",
                self._file,
                kept,
                damage,
            )
            return _Book()

    def _read(self) -> _Book:
        try:
            return _parse_book(self._file.read_bytes())
        except FileNotFoundError:
            return _Book()

    def _write(self, book: _Book) -> None:
        content = {"approved": book.approved, "pending": [asdict(item) for item in book.pending]}
        replace_file(self._file, json.dumps(content, indent=2))


def _parse_book(text: bytes) -> _Book:
    """Return the content of the file.

    Raises:
        ValueError: this module has not written it.
    """
    try:
        content: dict[str, Any] = json.loads(text)
        pending = tuple(PairingRequest(**item) for item in content["pending"])
        for item in pending:
            if datetime.fromisoformat(item.expires_at).tzinfo is None:
                msg = "a time has no zone"
                raise ValueError(msg)
            item.code.encode()
        approved = {str(channel): dict(ids) for channel, ids in content["approved"].items()}
    except (TypeError, KeyError, AttributeError, RecursionError) as error:
        raise ValueError(f"{type(error).__name__}: {error}") from error
    return _Book(approved, pending)


def _valid(book: _Book, now: datetime) -> _Book:
    kept = tuple(item for item in book.pending if datetime.fromisoformat(item.expires_at) > now)
    return replace(book, pending=kept)
