"""Syncing: receives what happens in the rooms of the account."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from nanobot_core.chat import CallFailed, Cause
from nanobot_matrix import wire
from nanobot_matrix.known import Known
from nanobot_matrix.mapping import answered_by, replaced_by

if TYPE_CHECKING:
    from nanobot_core import PluginContext
    from nanobot_core.chat import Intake, Received
    from nanobot_matrix.cipher import Cipher
    from nanobot_matrix.homeserver import Homeserver
    from nanobot_matrix.mapping import Reader
    from nanobot_matrix.settings import MatrixSettings

WAIT_MS = 30_000
"""How long the homeserver holds a sync without news."""
_LEAST_WAIT_S = 1.0
_BUSY_WAIT_S = 5.0
_GAP = 100
"""Most messages of one room that are read back after a gap."""
_OPEN_BATCHES = 50
"""Syncs whose messages are not all stored; more wait."""
_JOIN_ATTEMPTS = 10
_FEW = 2
"""A room of so many members is a direct chat."""
_PASSED = (Cause.FORBIDDEN, Cause.REFUSED)


@dataclass(slots=True)
class _Batch:
    """The messages of a sync.

    Attributes:
        token: with which the next sync continues.
        pending: messages that are not stored, and one more while the sync is being read.
    """

    token: str
    pending: int = 1


class Syncing:
    """Passes the messages of the account to `intake`, and remembers how far they are stored.

    Args:
        reader: reads messages.
        cipher: reads what is encrypted.
    """

    def __init__(
        self,
        ctx: PluginContext,
        server: Homeserver,
        settings: MatrixSettings,
        reader: Reader,
        intake: Intake,
        cipher: Cipher,
    ) -> None:
        self._clock = ctx.clock
        self._log = ctx.logger
        self._server = server
        self._settings = settings
        self._reader = reader
        self._known = ctx.shared(Known)
        self._intake = intake
        self._cipher = cipher
        self._settled: list[tuple[str, str]] = []
        self._batches: deque[_Batch] = deque()
        self._stored = asyncio.Event()
        self._fewer = asyncio.Event()

    async def run(self) -> None:
        """Receive until cancelled.

        Raises:
            CallFailed: the homeserver cannot be reached, or does not accept the session.
        """
        me = self._reader.user_id
        saved = await self._known.tokens.get(me)
        since: str | None = saved if isinstance(saved, str) else None
        async with asyncio.TaskGroup() as group:
            group.create_task(self._save(me), name="matrix token")
            while True:
                begun_s = self._clock.monotonic_s()
                answer, since = await self._next(since)
                self._intake.alive()
                batch = _Batch(answer.next_batch)
                self._batches.append(batch)
                # Before the next call: the homeserver then forgets what devices sent.
                await self._cipher.take(answer, is_first=since is None)
                await self._read_invites(answer.rooms.invite)
                for room, raw in answer.rooms.join.items():
                    await self._read_room(room, raw, since, batch)
                    self._intake.alive()
                for room, event in await self._cipher.late():
                    await self._pass_on(room, event, batch)
                batch.pending -= 1
                self._stored.set()
                await self._join()
                is_news = answer.rooms.join and answer.next_batch != since
                is_quick = self._clock.monotonic_s() - begun_s < _LEAST_WAIT_S
                if since is not None and is_quick and not is_news:
                    # The homeserver does not hold the call, or repeats its answer.
                    await self._clock.sleep(_LEAST_WAIT_S)
                since = answer.next_batch
                while len(self._batches) > _OPEN_BATCHES:
                    self._fewer.clear()
                    await self._fewer.wait()

    async def _next(self, since: str | None) -> tuple[wire.Sync, str | None]:
        """Return the next sync, and where it begins: ``None`` for the first one."""
        while True:
            try:
                return await self._server.sync(since, 0 if since is None else WAIT_MS), since
            except CallFailed as error:
                if error.cause is Cause.BUSY:
                    self._intake.alive()
                    await self._clock.sleep(error.retry_after_s or _BUSY_WAIT_S)
                elif error.cause is Cause.REFUSED and since is not None:
                    self._log.warning(
                        "the homeserver does not know how far messages were read, so those since "
                        "then are left out: {}",
                        error,
                    )
                    since = None
                else:
                    raise

    async def _save(self, me: str) -> None:
        """Save the token of each sync after all messages up to it are stored."""
        saved = ""
        while True:
            await self._stored.wait()
            self._stored.clear()
            token = saved
            while self._batches and self._batches[0].pending == 0:
                token = self._batches.popleft().token
            settled, self._settled = self._settled, []
            if settled:
                await self._cipher.settle(settled)
            self._fewer.set()
            if token != saved:
                try:
                    await self._known.tokens.put(me, token)
                except OSError as error:
                    self._log.warning("how far messages were read cannot be saved: {}", error)
                saved = token

    # --- rooms

    async def _read_room(self, room: str, raw: object, since: str | None, batch: _Batch) -> None:
        found = self._intake.parsed(partial(wire.JoinedRoom.model_validate, raw))
        if found is None:
            return
        state = self._events(found.state.events)
        events = self._events(found.timeline.events)
        self._note(room, found.summary, [*state, *events])
        await self._cipher.note(room, [*state, *events])
        if since is None:
            return
        is_new = any(self._has_joined(event) for event in events)
        if found.timeline.limited and found.timeline.prev_batch and not is_new:
            older = await self._gap(room, found.timeline.prev_batch, since)
            events = [*self._events(older), *events]
        for event in self._after_invite(events):
            await self._take(room, event, batch)

    def _events(self, raw: Iterable[object]) -> list[wire.Event]:
        found = (self._intake.parsed(partial(wire.Event.model_validate, each)) for each in raw)
        return [event for event in found if event is not None]

    def _note(self, room: str, summary: wire.Summary, events: Iterable[wire.Event]) -> None:
        for event in events:
            if event.type == "m.room.member":
                self._known.people.drop(room)
        if summary.joined is not None and summary.invited is not None:
            self._known.people.put(room, summary.joined + summary.invited)

    def _membership(self, event: wire.Event) -> str:
        is_own = event.type == "m.room.member" and event.state_key == self._reader.user_id
        return str(event.content.get("membership")) if is_own else ""

    def _has_joined(self, event: wire.Event) -> bool:
        """Whether the agent joins by an event; a changed name repeats the membership."""
        before = event.unsigned.get("prev_content")
        was_in = isinstance(before, dict) and before.get("membership") == "join"
        return self._membership(event) == "join" and not was_in

    def _after_invite(self, events: list[wire.Event]) -> list[wire.Event]:
        """Leave out what was written before the agent was last invited and joined."""
        begin, invited = 0, None
        for index, event in enumerate(events):
            if self._has_joined(event):
                begin = index if invited is None else invited
            if membership := self._membership(event):
                invited = index if membership == "invite" else None
        return events[begin:]

    async def _gap(self, room: str, begin: str, since: str) -> list[dict[str, object]]:
        """Return what a sync left out of a room, oldest first."""
        found: list[dict[str, object]] = []
        try:
            while len(found) < _GAP:
                page = await self._server.messages(room, begin, since, _GAP - len(found))
                found += page.chunk
                if not page.end or page.end == begin or not page.chunk:
                    break
                begin = page.end
            else:
                self._log.warning("more than {} messages of room {} are left out", _GAP, room)
        except CallFailed as error:
            if error.cause not in _PASSED:
                raise
            self._log.warning("messages of room {} cannot be read: {}", room, error)
        return found[:_GAP][::-1]

    async def _take(self, room: str, event: wire.Event, batch: _Batch) -> None:
        if self._reader.may_want(event):
            opened = await self._cipher.read(room, event)
            if opened is not None:
                await self._pass_on(room, opened, batch)

    async def _pass_on(self, room: str, event: wire.Event, batch: _Batch) -> None:
        """Pass a message that its sender wrote in this form to the intake."""
        received = await self._received(room, event) if self._reader.wants(event) else None
        if received is None:
            self._settled.append((room, event.event_id))
            return

        def done() -> None:
            batch.pending -= 1
            self._settled.append((room, event.event_id))
            self._stored.set()

        batch.pending += 1
        mark = partial(self._mark_read, room, event.event_id)
        self._intake.put(replace(received, settled=mark), done)

    async def _received(self, room: str, event: wire.Event) -> Received | None:
        related = replaced_by(event.content) or answered_by(event.content)
        other = await self._event(room, related) if related else None
        is_group = await self._is_group(room)
        return self._intake.parsed(
            partial(self._reader.read, room, event, other, is_group=is_group)
        )

    async def _mark_read(self, room: str, event_id: str, is_admitted: bool) -> None:
        if is_admitted:
            await self._server.call("POST", "rooms", room, "receipt", "m.read", event_id, body={})

    async def _event(self, room: str, event_id: str) -> wire.Event | None:
        try:
            found = await self._server.event(room, event_id)
            return await self._cipher.quote(room, found)
        except CallFailed as error:
            if error.cause is Cause.CREDENTIALS:
                raise
            return None

    async def _is_group(self, room: str) -> bool:
        people = self._known.people.get(room)
        if people is None:
            try:
                found = await self._server.call("GET", "rooms", room, "joined_members")
            except CallFailed as error:
                if error.cause not in _PASSED:
                    raise
                return True
            joined = found.get("joined")
            people = len(joined) if isinstance(joined, dict) else _FEW + 1
            self._known.people.put(room, people)
        return people > _FEW

    # --- invitations

    async def _read_invites(self, invites: dict[str, object]) -> None:
        for room, raw in invites.items():
            found = self._intake.parsed(partial(wire.InvitedRoom.model_validate, raw))
            events = self._events(found.invite_state.events) if found is not None else []
            inviters = [each.sender for each in events if self._membership(each) == "invite"]
            if not inviters:
                continue
            allowed = self._settings.allow_from
            if "*" in allowed or inviters[-1] in allowed:
                await self._known.invites.put(room, 0)
            else:
                self._log.info(
                    "an invitation of {} to room {} is not accepted: channels.matrix.allow_from "
                    "does not list this id",
                    inviters[-1],
                    room,
                )

    async def _join(self) -> None:
        """Join the rooms of accepted invitations; a homeserver may offer them only once."""
        for room, attempts in (await self._known.invites.entries()).items():
            failed = attempts + 1 if isinstance(attempts, int) else 1
            try:
                await self._server.call("POST", "rooms", room, "join", body={})
            except CallFailed as error:
                if error.cause is Cause.CREDENTIALS:
                    raise
                if error.cause not in _PASSED and failed < _JOIN_ATTEMPTS:
                    await self._known.invites.put(room, failed)
                    continue
                self._log.warning("room {} cannot be joined: {}", room, error)
            await self._known.invites.drop([room])
