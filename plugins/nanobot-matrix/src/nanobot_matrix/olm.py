"""OwnDevice: the keys of the agent's device, and its Olm sessions with the devices of people.

Source: client-server API, "m.olm.v1.curve25519-aes-sha2". Methods that take `Keys` run in a
transaction, in the thread of the vault. It needs vodozemac.
"""

from __future__ import annotations

import base64
import hashlib
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from vodozemac import Account, AnyOlmMessage, Curve25519PublicKey, PreKeyMessage, Session

from nanobot_matrix.signature import MEGOLM, OLM, canonical, is_signed
from nanobot_matrix.wire import as_id, as_object

if TYPE_CHECKING:
    from nanobot_core import JsonObject
    from nanobot_matrix import wire
    from nanobot_matrix.signature import Device
    from nanobot_matrix.vault import Keys

_MOST_CHARS = 200_000
_SESSIONS_OF_DEVICE = 5
_SESSIONS = 10_000
_HEARD = 10_000
_FALLBACK_S = 3_600


@dataclass(frozen=True, slots=True)
class Whisper:
    """What a device sent to this device.

    Attributes:
        sender: who sent it, as the homeserver and the device itself say.
        sender_key: Curve25519 key of the device, proven.
        ed25519: fingerprint key that the device claims.
    """

    sender: str
    sender_key: str
    ed25519: str
    type: str
    content: dict[str, Any]


@dataclass(frozen=True, slots=True)
class OwnDevice:
    """The agent's device.

    Attributes:
        curve25519: its identity key.
        ed25519: its fingerprint key.
    """

    user_id: str
    device_id: str
    curve25519: str
    ed25519: str

    @classmethod
    def open(cls, keys: Keys, user_id: str, device_id: str) -> OwnDevice:
        """Return the device of the vault, which gets its keys with the first call."""
        if keys.value("account") is None:
            _save(keys, Account())
        account = _account(keys)
        curve25519, ed25519 = account.curve25519_key.to_base64(), account.ed25519_key.to_base64()
        return cls(user_id, device_id, curve25519, ed25519)

    def device_keys(self, keys: Keys) -> JsonObject:
        """Return what the homeserver publishes of the device."""
        public: JsonObject = {
            "algorithms": [OLM, MEGOLM],
            "device_id": self.device_id,
            "user_id": self.user_id,
            "keys": {
                f"curve25519:{self.device_id}": self.curve25519,
                f"ed25519:{self.device_id}": self.ed25519,
            },
        }
        return self._signed(_account(keys), public)

    def new_keys(self, keys: Keys, counted: int, now_s: int, *, has_fallback: bool) -> JsonObject:
        """Return one-time keys to upload, or nothing if there are enough.

        They count as published from now on: a key that is uploaded again after someone has used it
        would be used twice. If the upload fails, the next call makes others.

        Args:
            counted: one-time keys on the homeserver.
            has_fallback: the homeserver has a fallback key that no one has used.
        """
        account, found = _account(keys), {}
        wanted = account.max_number_of_one_time_keys
        if counted <= wanted // 2:
            account.generate_one_time_keys(wanted - counted)
            made = account.one_time_keys
            found["one_time_keys"] = self._published(
                account, {k: made[k].to_base64() for k in made}
            )
        # The one before is kept, for messages that are on their way.
        if not has_fallback and now_s - float(keys.value("fallback") or 0) >= _FALLBACK_S:
            account.generate_fallback_key()  # type: ignore[attr-defined] # not in its stubs
            spare = account.fallback_key  # type: ignore[attr-defined] # not in its stubs
            public = {name: spare[name].to_base64() for name in spare}
            found["fallback_keys"] = self._published(account, public, is_fallback=True)
            keys.set_value("fallback", f"{now_s}")
        if found:
            account.mark_keys_as_published()
            _save(keys, account)
        return dict(found)

    def _published(
        self, account: Account, public: dict[str, str], *, is_fallback: bool = False
    ) -> JsonObject:
        extra: JsonObject = {"fallback": True} if is_fallback else {}
        return {
            f"signed_curve25519:{name}": self._signed(account, {"key": public[name], **extra})
            for name in public
        }

    def _signed(self, account: Account, value: JsonObject) -> JsonObject:
        signature = account.sign(canonical(value)).to_base64()
        return {**value, "signatures": {self.user_id: {f"ed25519:{self.device_id}": signature}}}

    # --- sessions

    def has_session(self, keys: Keys, device: Device) -> bool:
        """Whether `encrypt` can be called for a device."""
        found = keys.all("SELECT 1 FROM olm WHERE sender_key = ? LIMIT 1", device.curve25519)
        return bool(found)

    def begin(self, keys: Keys, device: Device, claimed: object, now_s: int) -> bool:
        """Begin a session with a one-time key that the device has signed; return False if not."""
        key = as_object(next(iter(as_object(claimed).values()), None))
        one_time_key = key.get("key")
        if not isinstance(one_time_key, str):
            return False
        if not is_signed(key, device.user_id, device.device_id, device.ed25519):
            return False
        try:
            session = _account(keys).create_outbound_session(
                Curve25519PublicKey.from_base64(device.curve25519),
                Curve25519PublicKey.from_base64(one_time_key),
            )
        except ValueError:
            return False
        _store(keys, device.curve25519, session, now_s)
        return True

    def encrypt(
        self, keys: Keys, device: Device, kind: str, content: JsonObject
    ) -> JsonObject | None:
        """Return the content of a to-device event, or ``None`` without a session."""
        newest = keys.all(
            "SELECT pickle, used FROM olm WHERE sender_key = ? ORDER BY used DESC, rowid DESC",
            device.curve25519,
        )
        if not newest:
            return None
        session = Session.from_pickle(newest[0][0], keys.pickle_key)
        payload: JsonObject = {
            "type": kind,
            "content": content,
            "sender": self.user_id,
            "sender_device": self.device_id,
            "keys": {"ed25519": self.ed25519},
            "recipient": device.user_id,
            "recipient_keys": {"ed25519": device.ed25519},
        }
        number, ciphertext = session.encrypt(_json(payload)).to_parts()
        _store(keys, device.curve25519, session, int(newest[0][1]))
        body: JsonObject = {"type": number, "body": unpadded(ciphertext)}
        return {
            "algorithm": OLM,
            "sender_key": self.curve25519,
            "ciphertext": {device.curve25519: body},
        }

    def decrypt(self, keys: Keys, event: wire.ToDevice, now_s: int) -> Whisper | None:
        """Return what an event contains; ``None`` if it was read before.

        Raises:
            ValueError: it cannot be read.
        """
        sender_key = as_id(event.content.get("sender_key"))
        sealed = as_object(as_object(event.content.get("ciphertext")).get(self.curve25519))
        body = sealed.get("body")
        if event.content.get("algorithm") != OLM or not sender_key:
            raise ValueError("it is not encrypted with Olm")
        if not isinstance(body, str) or len(body) > _MOST_CHARS:
            raise ValueError("it is not encrypted for this device")
        digest = hashlib.sha256(body.encode()).digest()
        if keys.all("SELECT 1 FROM heard WHERE digest = ?", digest):
            return None
        plaintext = self._opened(keys, sender_key, sealed.get("type"), body, now_s)
        keys.change("INSERT INTO heard VALUES (?, ?)", digest, now_s)
        keys.change("DELETE FROM heard WHERE rowid <= (SELECT max(rowid) FROM heard) - ?", _HEARD)
        return self._read(event.sender, sender_key, plaintext)

    def _opened(self, keys: Keys, sender_key: str, kind: object, body: str, now_s: int) -> bytes:
        begun = PreKeyMessage.from_base64(body) if kind == 0 else None
        if begun is None:
            if kind != 1:
                raise ValueError("its kind is unknown")
            message = AnyOlmMessage.normal(padded_bytes(body))
        else:
            message = begun.to_any()
        rows = keys.all(
            "SELECT pickle FROM olm WHERE sender_key = ? ORDER BY used DESC, rowid DESC", sender_key
        )
        for (pickle,) in rows:
            session = Session.from_pickle(pickle, keys.pickle_key)
            if begun is not None and not session.session_matches(begun):
                continue
            try:
                plaintext = session.decrypt(message)
            except ValueError:
                if begun is not None:
                    raise
                continue
            _store(keys, sender_key, session, now_s)
            return plaintext
        if begun is None:
            raise ValueError("no session with the device can read it")
        account = _account(keys)
        session, plaintext = account.create_inbound_session(
            Curve25519PublicKey.from_base64(sender_key), begun
        )
        # In the same transaction: the one-time key is used up, and the session exists.
        _save(keys, account)
        _store(keys, sender_key, session, now_s)
        return plaintext

    def _read(self, sender: str, sender_key: str, plaintext: bytes) -> Whisper | None:
        """Return a payload that is for this device, and from the sender of its event."""
        try:
            payload = as_object(json.loads(plaintext))
        except (ValueError, RecursionError):
            payload = {}
        kind = payload.get("type")
        ed25519 = as_id(as_object(payload.get("keys")).get("ed25519"))
        is_ours = (
            payload.get("sender") == sender
            and payload.get("recipient") == self.user_id
            and as_object(payload.get("recipient_keys")).get("ed25519") == self.ed25519
        )
        if not (is_ours and isinstance(kind, str) and ed25519):
            # Not an error: what the ratchet has used up must be stored.
            return None
        return Whisper(sender, sender_key, ed25519, kind, as_object(payload.get("content")))


def unpadded(content: bytes) -> str:
    """Return Base64 without padding."""
    return base64.b64encode(content).decode().rstrip("=")


def padded_bytes(text: str) -> bytes:
    """Return the bytes of Base64 with or without padding.

    Raises:
        ValueError: it is not Base64.
    """
    text = text.rstrip("=")
    return base64.b64decode(text + "=" * (-len(text) % 4), validate=True)


def _json(value: JsonObject) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")


def _account(keys: Keys) -> Account:
    return Account.from_pickle(keys.value("account") or "", keys.pickle_key)


def _save(keys: Keys, account: Account) -> None:
    keys.set_value("account", account.pickle(keys.pickle_key))


def _store(keys: Keys, sender_key: str, session: Session, now_s: int) -> None:
    pickle, number = session.pickle(keys.pickle_key), session.session_id
    if keys.change(
        "UPDATE olm SET pickle = ?, used = ? WHERE sender_key = ? AND session_id = ?",
        *(pickle, now_s, sender_key, number),
    ):
        return
    keys.change("INSERT INTO olm VALUES (?, ?, ?, ?)", sender_key, number, pickle, now_s)
    keys.change(
        "DELETE FROM olm WHERE sender_key = ?1 AND rowid NOT IN (SELECT rowid FROM olm"
        " WHERE sender_key = ?1 ORDER BY used DESC, rowid DESC LIMIT ?2)",
        *(sender_key, _SESSIONS_OF_DEVICE),
    )
    keys.change(
        "DELETE FROM olm WHERE rowid IN (SELECT rowid FROM olm ORDER BY used DESC, rowid DESC"
        " LIMIT -1 OFFSET ?)",
        _SESSIONS,
    )
