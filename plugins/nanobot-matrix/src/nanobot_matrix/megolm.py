"""Room keys: those that devices sent, and those of the agent. Source: "m.megolm.v1.aes-sha2".

Methods take `Keys`, and run in a transaction, in the thread of the vault. It needs vodozemac.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from vodozemac import (
    ExportedSessionKey,
    GroupSession,
    InboundGroupSession,
    MegolmMessage,
    SessionKey,
)

from nanobot_matrix import wire
from nanobot_matrix.signature import MEGOLM, Device
from nanobot_matrix.wire import as_id, as_object

if TYPE_CHECKING:
    from nanobot_core import JsonObject
    from nanobot_matrix.olm import OwnDevice, Whisper
    from nanobot_matrix.roster import Roster
    from nanobot_matrix.vault import Keys

_MOST_CHARS = 100_000
_KEYS_OF_PERSON = 1_000
"""Room keys that are kept for each person; the oldest are removed."""
_MESSAGES, _MOST_MESSAGES = 100, 10_000
_PERIOD_S, _LEAST_PERIOD_S, _MOST_PERIOD_S = 604_800, 3_600, 4 * 604_800
WITHHELD = -1
"""Index of a key that a device does not get, and knows that."""


class Why(Enum):
    """Why a message cannot be read."""

    NO_KEY = "no key"
    """Its room key has not arrived."""
    UNKNOWN_DEVICE = "unknown device"
    """The homeserver does not list the device that sent it."""
    UNVERIFIED = "unverified"
    """Its device is not trusted."""
    FORGED = "forged"
    """It is damaged, or not what its sender wrote in this place."""
    PLAIN = "plain"
    """It is not encrypted, in an encrypted room."""


@dataclass(frozen=True, slots=True)
class Opened:
    """A message that was encrypted.

    Attributes:
        event: as its sender wrote it.
        is_settled: it was stored before.
    """

    event: wire.Event
    is_settled: bool


@dataclass(frozen=True, slots=True)
class Rule:
    """How a room is encrypted; see ``m.room.encryption``.

    Attributes:
        messages: most messages with one key.
        period_s: most seconds with one key.
    """

    algorithm: str = MEGOLM
    messages: int = _MESSAGES
    period_s: int = _PERIOD_S

    @classmethod
    def read(cls, content: JsonObject) -> Rule:
        """Return the rule of a room; values out of bounds are limited."""
        messages, period_ms = content.get("rotation_period_msgs"), content.get("rotation_period_ms")
        messages = messages if isinstance(messages, int) else _MESSAGES
        period_s = period_ms // 1_000 if isinstance(period_ms, int) else _PERIOD_S
        return cls(
            str(content.get("algorithm")),
            min(max(messages, 1), _MOST_MESSAGES),
            min(max(period_s, _LEAST_PERIOD_S), _MOST_PERIOD_S),
        )


def rule_of(keys: Keys, room: str) -> Rule | None:
    """Return the rule of a room that is known to be encrypted."""
    found = keys.all("SELECT algorithm FROM rooms WHERE room = ?", room)
    if not found:
        return None
    (numbers,) = keys.numbers("SELECT messages, period_s FROM rooms WHERE room = ?", room)
    return Rule(found[0][0], *numbers)


def store_rule(keys: Keys, room: str, rule: Rule) -> None:
    """Remember for ever that a room is encrypted; only the bounds of its keys can change.

    An algorithm that is unknown here can still be corrected.
    """
    keys.change(
        "INSERT INTO rooms VALUES (?1, ?2, ?3, ?4) ON CONFLICT DO UPDATE"
        " SET messages = ?3, period_s = ?4, algorithm = iif(algorithm = ?5, algorithm, ?2)",
        *(room, rule.algorithm, rule.messages, rule.period_s, MEGOLM),
    )


@dataclass(frozen=True, slots=True)
class ReceivedKeys:
    """Room keys that devices sent to the agent's device `own`."""

    own: OwnDevice
    roster: Roster

    def add(self, keys: Keys, whisper: Whisper) -> bool:
        """Store the room key of a message of a device; return whether it is new.

        A forwarded key counts only from the device that made it.

        Raises:
            ValueError: it is not a room key.
        """
        content, is_export = whisper.content, whisper.type == "m.forwarded_room_key"
        room, session_id = as_id(content.get("room_id")), as_id(content.get("session_id"))
        key = content.get("session_key")
        if not (room and session_id and isinstance(key, str)):
            raise ValueError("a room key has another form")
        if content.get("algorithm") != MEGOLM or len(key) > _MOST_CHARS:
            raise ValueError("the algorithm of a room key is unknown")
        if is_export:
            made_by = (content.get("sender_key"), content.get("sender_claimed_ed25519_key"))
            if made_by != (whisper.sender_key, whisper.ed25519):
                raise ValueError("a room key is from another device than the one that made it")
            session = InboundGroupSession.import_session(ExportedSessionKey(key))
        else:
            session = InboundGroupSession(SessionKey(key))
        if session.session_id != session_id:
            raise ValueError("a room key has the id of another one")
        return self._store(keys, room, session, whisper)

    def _store(self, keys: Keys, room: str, session: InboundGroupSession, whisper: Whisper) -> bool:
        place = (room, session.session_id, whisper.sender, whisper.sender_key)
        known = keys.all(
            "SELECT pickle, ed25519 FROM inbound WHERE room = ? AND session_id = ? AND user_id = ?"
            " AND sender_key = ?",
            *place,
        )
        pickle = session.pickle(keys.pickle_key)
        if known:
            before = InboundGroupSession.from_pickle(known[0][0], keys.pickle_key)
            is_better = session.first_known_index < before.first_known_index
            if not is_better or known[0][1] != whisper.ed25519:
                return False
            keys.change(
                "UPDATE inbound SET pickle = ? WHERE room = ? AND session_id = ? AND user_id = ?"
                " AND sender_key = ?",
                *(pickle, *place),
            )
            return True
        keys.change(
            "INSERT INTO inbound (room, session_id, user_id, sender_key, ed25519, pickle)"
            " VALUES (?, ?, ?, ?, ?, ?)",
            *(*place, whisper.ed25519, pickle),
        )
        keys.change(
            "DELETE FROM inbound WHERE id IN (SELECT id FROM inbound WHERE user_id = ?"
            " ORDER BY id DESC LIMIT -1 OFFSET ?)",
            *(whisper.sender, _KEYS_OF_PERSON),
        )
        return True

    def open(self, keys: Keys, room: str, event: wire.Event) -> Opened | Why:
        """Return what an encrypted event contains.

        It is from the person that `event` names: one of their trusted devices made the room key,
        this key was made for this room, and it has encrypted no other event with this index.
        """
        session_id, ciphertext = (
            as_id(event.content.get("session_id")),
            event.content.get("ciphertext"),
        )
        if event.content.get("algorithm") != MEGOLM or not session_id:
            return Why.FORGED
        if not isinstance(ciphertext, str) or len(ciphertext) > _MOST_CHARS:
            return Why.FORGED
        rows = keys.all(
            "SELECT id, sender_key, ed25519, pickle FROM inbound"
            " WHERE room = ? AND session_id = ? AND user_id = ?",
            *(room, session_id, event.sender),
        )
        found: Opened | Why = Why.NO_KEY
        for key_id, sender_key, ed25519, pickle in rows:
            distrust = self._distrust(keys, event.sender, sender_key, ed25519)
            session = InboundGroupSession.from_pickle(pickle, keys.pickle_key)
            found = distrust or _open(keys, int(key_id), session, room, event)
            if isinstance(found, Opened):
                break
        return found

    def _distrust(self, keys: Keys, user: str, sender_key: str, ed25519: str) -> Why | None:
        """Return why a device does not speak for a person, if it does not."""
        own = self.own
        if (user, sender_key, ed25519) == (own.user_id, own.curve25519, own.ed25519):
            return None
        listed = self.roster.with_key(keys, user, sender_key)
        if not listed:
            return Why.UNKNOWN_DEVICE
        for device in listed:
            if device.ed25519 == ed25519:
                return None if self.roster.is_trusted(keys, device) else Why.UNVERIFIED
        return Why.FORGED


def settle(keys: Keys, event_id: str) -> None:
    """Note that a message is stored, so that it is never taken again."""
    keys.change("UPDATE seen SET is_settled = 1 WHERE event_id = ?", event_id)


def _open(
    keys: Keys, key_id: int, session: InboundGroupSession, room: str, event: wire.Event
) -> Opened | Why:
    try:
        message = MegolmMessage.from_base64(event.content["ciphertext"])
        if message.message_index() < session.first_known_index:
            return Why.NO_KEY
        decrypted = session.decrypt(message)
        payload = as_object(json.loads(decrypted.plaintext))
    except (ValueError, RecursionError):
        return Why.FORGED
    number, kind = decrypted.message_index, payload.get("type")
    if payload.get("room_id") != room or not isinstance(kind, str):
        return Why.FORGED
    keys.change("INSERT OR IGNORE INTO seen VALUES (?, ?, ?, 0)", *(key_id, number, event.event_id))
    place = (key_id, number)
    ((event_id,),) = keys.all("SELECT event_id FROM seen WHERE inbound = ? AND number = ?", *place)
    if event_id != event.event_id:
        return Why.FORGED
    ((is_settled,),) = keys.numbers(
        "SELECT is_settled FROM seen WHERE inbound = ? AND number = ?", *place
    )
    content = as_object(payload.get("content"))
    # Relations are outside, so that homeservers can count them; some clients repeat them inside.
    relation = content.get("m.relates_to", event.content.get("m.relates_to"))
    content |= {"m.relates_to": relation} if isinstance(relation, dict) else {}
    opened = event.model_copy(
        update={"type": kind, "content": content, "unsigned": {}, "state_key": None}
    )
    return Opened(opened, bool(is_settled))


# --- the agent's own keys


@dataclass(frozen=True, slots=True)
class Plan:
    """What must happen before a message can be sent.

    Attributes:
        session_id: of the room key.
        number: index of the next message.
        key: content of the event that carries the key.
        missing: devices that do not have the key.
        refused: devices that do not get the key, and do not know that.
    """

    session_id: str
    number: int
    key: JsonObject
    missing: tuple[Device, ...]
    refused: tuple[Device, ...]


@dataclass(frozen=True, slots=True)
class SentKeys:
    """Room keys of the agent's device `own`."""

    own: OwnDevice
    roster: Roster

    def plan(
        self, keys: Keys, room: str, rule: Rule, people: Collection[str], now_s: float
    ) -> Plan:
        """Return the key for the next message to `people`; it is a new one if it must be.

        That is so after as many messages or seconds as the room allows, and when a device that has
        the key must not read on.
        """
        listed = self.roster.devices(keys, people)
        devices = [
            device
            for device in listed
            if device.device_id != self.own.device_id or device.user_id != self.own.user_id
        ]
        trusted = [device for device in devices if self.roster.is_trusted(keys, device)]
        session = self._current(keys, room, rule, trusted, now_s) or self._new(keys, room, now_s)
        session_id, number = session.session_id, session.message_index
        has_key = self._holders(keys, session_id)
        content: JsonObject = {
            "algorithm": MEGOLM,
            "room_id": room,
            "session_id": session_id,
            "session_key": session.session_key.to_base64(),
        }
        missing = tuple(each for each in trusted if has_key.get(_place(each), WITHHELD) < 0)
        refused = {_place(each): each for each in devices}
        for known in (*map(_place, trusted), *has_key):
            refused.pop(known, None)
        return Plan(session_id, number, content, missing, tuple(refused.values()))

    def _current(
        self, keys: Keys, room: str, rule: Rule, trusted: list[Device], now_s: float
    ) -> GroupSession | None:
        rows = keys.all("SELECT pickle, began_s FROM outbound WHERE room = ?", room)
        if not rows:
            return None
        session = GroupSession.from_pickle(rows[0][0], keys.pickle_key)
        is_used_up = session.message_index >= rule.messages
        is_old = not 0 <= now_s - float(rows[0][1]) < rule.period_s
        holders = self._holders(keys, session.session_id)
        readers = {place for place, number in holders.items() if number >= 0}
        has_left = bool(readers - set(map(_place, trusted)))
        return None if is_used_up or is_old or has_left else session

    def _new(self, keys: Keys, room: str, now_s: float) -> GroupSession:
        session = GroupSession()
        own, pickle = self.own, session.pickle(keys.pickle_key)
        keys.change(
            "INSERT OR REPLACE INTO outbound VALUES (?, ?, ?, ?)",
            *(room, session.session_id, pickle, now_s),
        )
        # With it, the agent reads its own messages when people reply to them.
        reading = InboundGroupSession(session.session_key)
        keys.change(
            "INSERT INTO inbound (room, session_id, user_id, sender_key, ed25519, pickle)"
            " VALUES (?, ?, ?, ?, ?, ?)",
            *(room, session.session_id, own.user_id, own.curve25519, own.ed25519),
            reading.pickle(keys.pickle_key),
        )
        keys.change(
            "DELETE FROM inbound WHERE id IN (SELECT id FROM inbound WHERE user_id = ?"
            " ORDER BY id DESC LIMIT -1 OFFSET ?)",
            *(own.user_id, _KEYS_OF_PERSON),
        )
        keys.change("DELETE FROM shared WHERE session_id NOT IN (SELECT session_id FROM inbound)")
        return session

    def _holders(self, keys: Keys, session_id: str) -> dict[tuple[str, str, str], int]:
        where = "FROM shared WHERE session_id = ? ORDER BY rowid"
        places = keys.all(f"SELECT user_id, device_id, curve25519 {where}", session_id)
        numbers = keys.numbers(f"SELECT number {where}", session_id)
        found = zip(places, numbers, strict=True)
        return {(user, device, key): number for (user, device, key), (number,) in found}

    def note_shared(
        self, keys: Keys, session_id: str, devices: Collection[Device], number: int
    ) -> None:
        """Note which devices have a key, from the message `number` on, or `WITHHELD`."""
        for device in devices:
            keys.change(
                "INSERT OR REPLACE INTO shared VALUES (?, ?, ?, ?, ?)",
                *(session_id, *_place(device), number),
            )

    def encrypt(
        self, keys: Keys, room: str, session_id: str, kind: str, content: JsonObject
    ) -> JsonObject | None:
        """Return the content of an encrypted event; ``None`` if the room has another key now."""
        rows = keys.all(
            "SELECT pickle FROM outbound WHERE room = ? AND session_id = ?", room, session_id
        )
        if not rows:
            return None
        session = GroupSession.from_pickle(rows[0][0], keys.pickle_key)
        payload: JsonObject = {"type": kind, "content": content, "room_id": room}
        text = json.dumps(payload, ensure_ascii=False, separators=(",", ":"))
        sealed = session.encrypt(text.encode("utf-8", "replace")).to_base64()
        keys.change(
            "UPDATE outbound SET pickle = ? WHERE room = ?", session.pickle(keys.pickle_key), room
        )
        found: JsonObject = {
            "algorithm": MEGOLM,
            "ciphertext": sealed,
            "session_id": session_id,
            # Older clients need these two.
            "sender_key": self.own.curve25519,
            "device_id": self.own.device_id,
        }
        relation = content.get("m.relates_to")
        return found | ({"m.relates_to": relation} if relation else {})

    def repeat(self, keys: Keys, device: Device, room: str, session_id: str) -> JsonObject | None:
        """Return the content of an event with a key again, for a device that has got it before."""
        shared = keys.numbers(
            "SELECT number FROM shared WHERE session_id = ? AND user_id = ? AND device_id = ?"
            " AND curve25519 = ? AND number >= 0",
            *(session_id, *_place(device)),
        )
        pickles = keys.all(
            "SELECT pickle FROM inbound WHERE room = ? AND session_id = ? AND user_id = ?"
            " AND sender_key = ?",
            *(room, session_id, self.own.user_id, self.own.curve25519),
        )
        if not (shared and pickles and self.roster.is_trusted(keys, device)):
            return None
        session = InboundGroupSession.from_pickle(pickles[0][0], keys.pickle_key)
        exported = session.export_at(shared[0][0])
        if exported is None:
            return None
        return {
            "algorithm": MEGOLM,
            "room_id": room,
            "session_id": session_id,
            "session_key": exported.to_base64(),
            "sender_key": self.own.curve25519,
            "sender_claimed_ed25519_key": self.own.ed25519,
            "forwarding_curve25519_key_chain": [],
        }


def _place(device: Device) -> tuple[str, str, str]:
    return device.user_id, device.device_id, device.curve25519
