"""Encryption: end-to-end encryption of rooms. It needs the extra ``e2e``."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from pydantic import ValidationError

from nanobot_core.chat import CallFailed, Cause, Recent
from nanobot_matrix import unread, wire
from nanobot_matrix.cipher import Cipher, Notice
from nanobot_matrix.megolm import (
    Opened,
    ReceivedKeys,
    Rule,
    Why,
    rule_of,
    settle,
    store_rule,
)
from nanobot_matrix.olm import OwnDevice
from nanobot_matrix.publishing import Publishing
from nanobot_matrix.roster import Roster
from nanobot_matrix.sharing import Sharing
from nanobot_matrix.signature import MEGOLM, fingerprint
from nanobot_matrix.vault import Vault
from nanobot_matrix.wire import as_id, as_object

if TYPE_CHECKING:
    from nanobot_core import JsonObject, PluginContext
    from nanobot_matrix.homeserver import Homeserver
    from nanobot_matrix.known import Known
    from nanobot_matrix.settings import MatrixSettings
    from nanobot_matrix.vault import Keys

_PASSED = (Cause.FORBIDDEN, Cause.REFUSED)
_PATIENCE_S = 20.0
"""How long a key may take before the room gets a notice."""
_QUERY_PAUSE_S = 60.0
_REPAIR_LIMIT_S = 20.0
"""How long receiving waits for a repair; what is left out is tried again later."""
_RENEWALS = 10
"""Most repairs of each kind, between two syncs."""
_ROOM_KEYS = ("m.room_key", "m.forwarded_room_key")
NOTICES = {
    Why.NO_KEY: (
        "I cannot read a message here, because I did not get its key; please send it again."
    ),
    Why.UNKNOWN_DEVICE: (
        "I cannot read a message here, because I do not know the device that sent it; please send "
        "it again from a device that is still signed in."
    ),
    Why.UNVERIFIED: (
        "I do not read a message here, because its device is not verified; please verify the "
        "session in your client, or let my owner list it in channels.matrix.trusted_keys."
    ),
    Why.PLAIN: "I do not read messages here that are not encrypted; please send it encrypted.",
}


@dataclass(frozen=True, slots=True)
class _Taken:
    """What the messages of devices led to.

    Attributes:
        is_news: messages that could not be read may be readable now.
        failed: senders, and their identity keys, whose messages could not be read.
        requests: for room keys.
    """

    is_news: bool
    failed: list[tuple[str, str]]
    requests: list[wire.ToDevice]


class Encryption(Cipher):
    """Encrypts and decrypts the messages of rooms with the keys of one device.

    Args:
        own: the agent's device.
        vault: where its keys are kept; `aclose` closes it.
        notice: sends a text to a room.
    """

    def __init__(
        self,
        ctx: PluginContext,
        server: Homeserver,
        settings: MatrixSettings,
        own: OwnDevice,
        vault: Vault,
        *,
        known: Known,
        notice: Notice,
    ) -> None:
        self.device: str = f"device {own.device_id}, fingerprint {fingerprint(own.ed25519)}"
        self._clock = ctx.clock
        self._log = ctx.logger
        self._server = server
        self._own = own
        self._vault = vault
        self._known = known
        self._notice = notice
        self._encrypted_only = settings.encrypted_only
        self._roster = Roster(own.user_id, settings.trusted_keys, settings.e2e_verified_only)
        self._received = ReceivedKeys(own, self._roster)
        self._publishing = Publishing(ctx, server, own, vault)
        self._sharing = Sharing(ctx, server, own, self._roster, vault)
        self._rules: Recent[str, Rule] = Recent(2_000)
        # Not in `known`: changes since the last connection are only reported by the next sync.
        self._plain: Recent[str, bool] = Recent(2_000)
        self._members: Recent[str, frozenset[str]] = Recent(200)
        self._member_changes = 0
        self._asked: Recent[tuple[str, str], bool] = Recent(1_000)
        self._queried: Recent[str, float] = Recent(1_000)
        self._requests_left = _RENEWALS
        # What waits from an earlier start is looked at once.
        self._is_news = True

    @classmethod
    async def begin(
        cls,
        ctx: PluginContext,
        server: Homeserver,
        settings: MatrixSettings,
        known: Known,
        notice: Notice,
    ) -> Encryption:
        """Return the encryption of the account's device, whose keys are then published.

        Raises:
            CallFailed: the device has keys of another program, or the homeserver cannot be reached.
        """
        account = await server.account()
        if not account.device_id:
            reason = (
                "the session has no device, so it cannot encrypt; set channels.matrix.user_id and "
                "channels.matrix.password, or channels.matrix.e2ee_enabled: false"
            )
            raise CallFailed(Cause.CREDENTIALS, reason)
        name = hashlib.sha256(f"{account.user_id} {account.device_id}".encode()).hexdigest()[:16]
        vault = Vault(ctx.data_dir / f"keys-{name}.db")
        try:
            own = await vault.run(
                partial(OwnDevice.open, user_id=account.user_id, device_id=account.device_id)
            )
            made = cls(ctx, server, settings, own, vault, known=known, notice=notice)
            # Changes of devices since the last start are only reported by the next sync.
            await vault.run(partial(made._roster.note_changes, users=None))
            await made._publishing.publish()
        except BaseException:
            await vault.aclose()
            raise
        return made

    @property
    def _now_s(self) -> float:
        return self._clock.now().timestamp()

    async def aclose(self) -> None:
        """Close the vault. Can be called again."""
        await self._vault.aclose()

    # --- what devices send

    async def take(self, sync: wire.Sync, *, is_first: bool) -> None:
        """Take room keys and changes of devices. They are then on disk."""
        self._requests_left = _RENEWALS
        events = []
        for raw in sync.to_device.events:
            try:
                events.append(wire.ToDevice.model_validate(raw))
            except ValidationError:
                self._log.debug("a malformed event of a device is dropped")
        changed = None if is_first else (*sync.device_lists.changed, *sync.device_lists.left)
        found = await self._vault.run(partial(self._taken, events=events, changed=changed))
        if found.failed:
            count, failed = len(found.failed), found.failed[:_RENEWALS]
            self._log.warning("{} messages of devices cannot be read", count)
            await self._passing(self._sharing.renew(dict.fromkeys(failed)))
        for event in found.requests[:_RENEWALS]:
            await self._passing(self._sharing.repeat(event.sender, event.content))
        self._is_news = self._is_news or found.is_news
        await self._publishing.replenish(sync)
        await self._tell()

    def _taken(
        self, keys: Keys, events: Iterable[wire.ToDevice], changed: Iterable[object] | None
    ) -> _Taken:
        is_news = self._roster.note_changes(keys, changed) > 0
        failed: list[tuple[str, str]] = []
        requests = []
        for event in events:
            if event.type == "m.room_key_request" and event.content.get("action") == "request":
                requests.append(event)
            elif event.type == "m.room.encrypted":
                try:
                    is_news = self._heard(keys, event) or is_news
                except ValueError:
                    failed.append((event.sender, as_id(event.content.get("sender_key"))))
        return _Taken(is_news, failed, requests)

    def _heard(self, keys: Keys, event: wire.ToDevice) -> bool:
        whisper = self._own.decrypt(keys, event, int(self._now_s))
        if whisper is None or whisper.type not in _ROOM_KEYS:
            return False
        place = (str(whisper.content.get("room_id")), str(whisper.content.get("session_id")))
        if whisper.type == "m.forwarded_room_key" and self._asked.get(place) is None:
            return False
        try:
            return self._received.add(keys, whisper)
        except ValueError as error:
            self._log.warning("a key that {} sent is not accepted: {}", whisper.sender, error)
            return False

    async def _passing(self, work: Awaitable[None]) -> bool:
        """Wait for work that may fail; return whether it has succeeded."""
        try:
            async with asyncio.timeout(_REPAIR_LIMIT_S):
                await work
                return True
        except TimeoutError:
            self._log.warning("encryption: the homeserver takes too long")
        except CallFailed as error:
            if error.cause is Cause.CREDENTIALS:
                raise
            self._log.warning("encryption: {}", error)
        return False

    # --- rooms

    async def note(self, room: str, events: Iterable[wire.Event]) -> None:
        """Remember that a room is encrypted, and who is in it; ask for the devices of senders."""
        senders = set()
        for event in events:
            if event.type == "m.room.encrypted":
                senders.add(event.sender)
            if event.type == "m.room.encryption" and event.state_key == "":
                await self._store_rule(room, Rule.read(event.content))
            elif event.type == "m.room.member":
                self._member_changes += 1
                self._members.drop(room)
        if senders:
            await self._passing(self._sharing.refresh(senders))

    async def _store_rule(self, room: str, rule: Rule) -> Rule:
        def stored(keys: Keys) -> Rule:
            store_rule(keys, room, rule)
            return rule_of(keys, room) or rule

        found = await self._vault.run(stored)
        self._rules.put(room, found)
        return found

    async def _rule(self, room: str) -> Rule | None:
        """Return how a room is encrypted, or ``None``. What was encrypted remains so."""
        rule = self._rules.get(room) or await self._vault.run(partial(rule_of, room=room))
        if rule is not None:
            self._rules.put(room, rule)
            return rule
        if self._plain.get(room) is not None:
            return None
        content = await self._server.encryption(room)
        if content is not None:
            return await self._store_rule(room, Rule.read(content))
        self._plain.put(room, value=True)
        return None

    async def encrypts(self, room: str) -> bool:
        """Whether a room is encrypted; a failure if it is not and must be."""
        if await self._rule(room) is not None:
            return True
        if self._encrypted_only:
            reason = f"room {room} is not encrypted, and channels.matrix.encrypted_only is set"
            raise CallFailed(Cause.FORBIDDEN, reason)
        return False

    async def read(self, room: str, event: wire.Event) -> wire.Event | None:
        """Return a message of a trusted device of its sender, once."""
        if event.type != "m.room.encrypted":
            if await self._rule(room) is not None:
                await self._refuse(room, event, Why.PLAIN)
                return None
            return None if self._encrypted_only else event
        found = await self._open(room, event)
        if isinstance(found, Why):
            await self._refuse(room, event, found)
            return None
        if await self._rule(room) is None:
            # The homeserver may have hidden that the room is encrypted.
            await self._store_rule(room, Rule())
        if found.is_settled:
            await self.settle([(room, event.event_id)])
            return None
        return found.event

    async def quote(self, room: str, event: wire.Event) -> wire.Event | None:
        """Return an event of a trusted device, with the edit of it that the homeserver adds."""
        if event.type != "m.room.encrypted":
            return None if await self._rule(room) is not None else event
        found = await self._open(room, event)
        if isinstance(found, Why):
            return None
        edit = as_object(as_object(event.unsigned.get("m.relations")).get("m.replace"))
        try:
            newer = await self._open(room, wire.Event.model_validate(edit))
        except ValidationError:
            return found.event
        if isinstance(newer, Why) or newer.event.sender != event.sender:
            return found.event
        shown: JsonObject = {"m.relations": {"m.replace": {"content": newer.event.content}}}
        return found.event.model_copy(update={"unsigned": shown})

    async def _open(self, room: str, event: wire.Event) -> Opened | Why:
        opening = partial(self._received.open, room=room, event=event)
        if event.sender != self._own.user_id:
            await self._passing(self._sharing.refresh([event.sender]))
        found = await self._vault.run(opening)
        if found is not Why.UNKNOWN_DEVICE:
            return found
        last_s, now_s = self._queried.get(event.sender), self._clock.monotonic_s()
        if last_s is not None and now_s - last_s < _QUERY_PAUSE_S:
            return found
        self._queried.put(event.sender, now_s)
        await self._vault.run(partial(self._roster.note_changes, users=[event.sender]))
        await self._passing(self._sharing.refresh([event.sender]))
        return await self._vault.run(opening)

    async def _refuse(self, room: str, event: wire.Event, why: Why) -> None:
        """Count a message that cannot be read; keep it if that can change."""
        may_wait = why not in {Why.FORGED, Why.PLAIN}

        def counted(keys: Keys) -> int:
            if may_wait and not unread.keep(keys, room, event, why.value, self._now_s):
                return 0
            return unread.count(keys, room)

        count = await self._vault.run(counted)
        if count & (count - 1) == 0 < count:  # powers of two, because anyone can send such events
            self._log.warning(
                "message {} of {} in room {} is not read ({}); {} in this room so far",
                *(event.event_id, event.sender, room, why.value, count),
            )
        if why is Why.NO_KEY:
            await self._passing(self._request(room, event))
        if why is Why.PLAIN:
            await self._explain(room, why)

    async def _request(self, room: str, event: wire.Event) -> None:
        """Ask the devices of the sender for a key, once."""
        session_id = as_id(event.content.get("session_id"))
        if self._requests_left == 0 or self._asked.get((room, session_id)) is not None:
            return
        self._requests_left -= 1
        self._asked.put((room, session_id), value=True)
        request: JsonObject = {
            "action": "request",
            "requesting_device_id": self._own.device_id,
            "request_id": hashlib.sha256(f"{room} {session_id}".encode()).hexdigest()[:32],
            "body": {"algorithm": MEGOLM, "room_id": room, "session_id": session_id},
        }
        await self._sharing.send_plain("m.room_key_request", {event.sender: {"*": request}})

    async def late(self) -> Sequence[tuple[str, wire.Event]]:
        """Return messages whose keys have arrived; those of earlier starts are looked at first."""
        if not self._is_news:
            return ()
        self._is_news = False
        found = []
        for each in await self._vault.run(partial(unread.waiting, now_s=self._now_s)):
            event = await self.read(each.room, each.event)
            if event is not None:
                found.append((each.room, event))
        return found

    async def settle(self, events: Iterable[tuple[str, str]]) -> None:
        """Note which messages are stored, so that they are never taken again."""

        def noted(keys: Keys) -> None:
            for room, event_id in events:
                settle(keys, event_id)
                unread.drop(keys, room, event_id)

        await self._vault.run(noted)

    # --- notices

    async def _tell(self) -> None:
        """Tell rooms of messages that have waited for a while."""
        now_s = self._now_s
        for room, why in await self._vault.run(
            partial(unread.unexplained, before_s=now_s - _PATIENCE_S)
        ):
            if await self._explain(room, Why(why)):
                await self._vault.run(partial(unread.note_notice, room=room))

    async def _explain(self, room: str, why: Why) -> bool:
        return await self._passing(
            self._known.tell_once(f"{room} {why.value}", room, NOTICES[why], self._notice)
        )

    # --- writing

    async def write(self, room: str, content: JsonObject) -> tuple[str, JsonObject]:
        """Return a message as an encrypted event, whose key the devices in the room then have."""
        rule = await self._rule(room)
        if rule is None:
            await self.encrypts(room)
            return "m.room.message", content
        people = await self._people(room)
        sealed = await self._sharing.encrypt(room, rule, people, "m.room.message", content)
        return "m.room.encrypted", sealed

    async def _people(self, room: str) -> frozenset[str]:
        known, changes = self._members.get(room), self._member_changes
        if known is not None:
            return known
        found = await self._server.call("GET", "rooms", room, "joined_members")
        people = frozenset(as_object(found.get("joined")))
        if changes == self._member_changes:
            self._members.put(room, people)
        return people
