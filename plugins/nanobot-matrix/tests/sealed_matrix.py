"""A local homeserver whose rooms are encrypted, with people who use another implementation.

Anna and Bert have clients of matrix-nio, which knows nothing of the channel's code.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from types import TracebackType
from typing import Any

from nio.crypto import Olm
from nio.crypto.attachments import decrypt_attachment, encrypt_attachment
from nio.events.room_events import MegolmEvent
from nio.events.to_device import ToDeviceEvent
from nio.exceptions import EncryptionError
from nio.responses import KeysClaimResponse, KeysQueryResponse, KeysUploadResponse
from nio.store import SqliteMemoryStore

from nanobot_core.testing import LocalRequest, LocalResponse, load_stand_in

LocalMatrix: Any = load_stand_in(Path(__file__).with_name("local_matrix.py"))
AGENT = "@nano:example.org"
DEVICE = "NANO"
GROUP = "!group:example.org"


class KeyServer:
    """The keys of devices on a homeserver, and what devices send to each other.

    Attributes:
        devices: user id and device id to the published keys.
        masters: user id to the master key.
        signers: user id to the self-signing key.
        one_time_keys: user id and device id to keys that no one has claimed.
        claimed: every one-time key that was handed out, to find any that is used twice.
        inbox: events for the agent's device, in order; ``None`` after it has taken them.
        changed: people whose devices changed, in order.
        clients: user id and device id to the newest client.
    """

    def __init__(self) -> None:
        self.devices: dict[str, dict[str, Any]] = {}
        self.masters: dict[str, Any] = {}
        self.signers: dict[str, Any] = {}
        self.one_time_keys: dict[tuple[str, str], dict[str, Any]] = {}
        self.fallbacks: dict[tuple[str, str], dict[str, Any]] = {}
        self.claimed: list[str] = []
        self.inbox: list[dict[str, Any] | None] = []
        self.changed: list[str] = []
        self.clients: dict[tuple[str, str], NioClient] = {}
        self.all_clients: list[NioClient] = []
        self.sent: list[tuple[str, dict[str, Any]]] = []
        self.is_deaf: bool = False

    def upload(self, user: str, device: str, body: dict[str, Any]) -> dict[str, Any]:
        if "device_keys" in body:
            self.one_time_keys.pop((user, device), None)
            self.devices.setdefault(user, {})[device] = body["device_keys"]
            self.changed.append(user)
        keys = self.one_time_keys.setdefault((user, device), {})
        for name, key in body.get("one_time_keys", {}).items():
            assert name not in keys, "a one-time key is uploaded twice"
            keys[name] = key
        if body.get("fallback_keys"):
            self.fallbacks[user, device] = body["fallback_keys"]
        return {"one_time_key_counts": {"signed_curve25519": len(keys)}}

    def query(self, users: Iterable[str]) -> dict[str, Any]:
        asked = list(users)
        return {
            "device_keys": {user: self.devices.get(user, {}) for user in asked},
            "master_keys": {user: self.masters[user] for user in asked if user in self.masters},
            "self_signing_keys": {
                user: self.signers[user] for user in asked if user in self.signers
            },
            "failures": {},
        }

    def claim(self, asked: dict[str, dict[str, str]]) -> dict[str, Any]:
        found: dict[str, dict[str, Any]] = {}
        for user, devices in asked.items():
            for device in devices:
                keys = self.one_time_keys.get((user, device), {})
                spare = self.fallbacks.get((user, device), {})
                if not keys and not spare:
                    continue
                name = next(iter(keys or spare))
                key = keys.pop(name) if keys else spare[name]
                self.claimed.append(key["key"])
                found.setdefault(user, {})[device] = {name: key}
        return {"one_time_keys": found, "failures": {}}

    def send(self, sender: str, kind: str, messages: dict[str, dict[str, Any]]) -> None:
        for user, devices in messages.items():
            for device, content in devices.items():
                event = {"type": kind, "sender": sender, "content": content}
                self.sent.append((user, event))
                if user == AGENT:
                    if not self.is_deaf:
                        self.inbox.append(event)
                    continue
                for place, client in self.clients.items():
                    if place == (user, device) or (place[0] == user and device == "*"):
                        client.receive(event)

    def taken(self, begin: int) -> list[dict[str, Any]]:
        """Return the events for the agent after a position, and forget those before it."""
        self.inbox[:begin] = [None] * len(self.inbox[:begin])
        return [event for event in self.inbox[begin:] if event is not None]


class NioClient:
    """A device of a person."""

    def __init__(self, server: KeyServer, user: str, device: str) -> None:
        self.server: KeyServer = server
        self.user: str = user
        self.device: str = device
        self.olm: Any = Olm(user, device, SqliteMemoryStore(user, device, "pickle key"))
        server.upload(user, device, self.olm.share_keys())
        self.olm.handle_response(KeysUploadResponse(0, 50))
        server.clients[user, device] = self
        server.all_clients.append(self)

    def close(self) -> None:
        """Close the store."""
        self.olm.store.database.close()

    def encrypt(self, room: str, people: Iterable[str], content: dict[str, Any]) -> dict[str, Any]:
        """Return the content of an encrypted event, after its key is shared."""
        others = sorted(people)
        self.olm.handle_response(KeysQueryResponse.from_dict(self.server.query(others)))
        missing = self.olm.get_missing_sessions(others)
        if missing:
            asked = {
                user: dict.fromkeys(devices, "signed_curve25519")
                for user, devices in missing.items()
            }
            self.olm.handle_response(KeysClaimResponse.from_dict(self.server.claim(asked)))
        if self.olm.should_share_group_session(room):
            self.olm.outbound_group_sessions.pop(room, None)
            _, shared = self.olm.share_group_session(
                room, others, ignore_missing_sessions=True, ignore_unverified_devices=True
            )
            self.server.send(self.user, "m.room.encrypted", shared["messages"])
            self.olm.outbound_group_sessions[room].mark_as_shared()
        inner = {name: content[name] for name in content if name != "m.relates_to"}
        sealed: dict[str, Any] = self.olm.group_encrypt(
            room, {"type": "m.room.message", "content": inner}
        )
        relation = content.get("m.relates_to")
        return sealed | ({"m.relates_to": relation} if relation else {})

    def forget(self, room: str) -> None:
        """Use a new key for the next message."""
        self.olm.outbound_group_sessions.pop(room, None)

    def receive(self, event: dict[str, Any]) -> None:
        """Take what a device sent."""
        if event["type"] == "m.room.encrypted":
            # A client learns who sends by the devices that it has asked for.
            answer = self.server.query([event["sender"]])
            self.olm.handle_response(KeysQueryResponse.from_dict(answer))
            self.olm.handle_to_device_event(ToDeviceEvent.parse_event(event))

    def decrypt(self, room: str, event: dict[str, Any]) -> dict[str, Any]:
        """Return an event as the person reads it.

        Raises:
            EncryptionError: it cannot be read.
        """
        opened = self.olm.decrypt_megolm_event(MegolmEvent.from_dict(event), room)
        found: dict[str, Any] = opened.source
        return found


class SealedMatrix(LocalMatrix):  # type: ignore[misc] # its module is loaded by path
    """A homeserver on which all rooms of Anna and Bert are encrypted.

    Attributes:
        keys: of devices.
        failing: the next call whose path contains it fails.
        watch: called before and after each call of the agent, with its path and whether it has
            taken effect.
    """

    def __init__(self) -> None:
        super().__init__()
        self.keys: KeyServer = KeyServer()
        self.failing: str = ""
        self.watch: Callable[[str, bool], None] | None = None
        self.phone: NioClient = NioClient(self.keys, self.anna.id, "ANNAPHONE")
        self.bert_phone: NioClient = NioClient(self.keys, self.bert.id, "BERTPHONE")
        self._opened: dict[str, dict[str, Any]] = {}
        self._encrypted.update(self._members)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await super().__aexit__(kind, error, traceback)
        for client in self.keys.all_clients:
            client.close()

    def section(self) -> dict[str, Any]:
        return {**super().section(), "e2ee_enabled": True}

    def people(self, room: str) -> set[str]:
        """Return the members of a room."""
        found: set[str] = self._members[room]
        return found

    def client_of(self, user: str) -> NioClient:
        """Return the first device of a person."""
        return self.phone if user == self.anna.id else self.bert_phone

    def write(self, room: str, sender: str, content: dict[str, Any]) -> str:
        if room not in self._encrypted:
            return str(super().write(room, sender, content))
        sealed = self.client_of(sender).encrypt(room, self.people(room), content)
        return str(self.push(room, sender, sealed, type="m.room.encrypted"))

    def attach(self, content: bytes) -> dict[str, Any]:
        sealed, file = encrypt_attachment(content)
        return {"file": {**file, "url": self.keep(sealed)}}

    def file_of(self, content: dict[str, Any]) -> bytes:
        if "file" not in content:
            return bytes(super().file_of(content))
        file = content["file"]
        return bytes(
            decrypt_attachment(
                self.media[file["url"]], file["key"]["k"], file["hashes"]["sha256"], file["iv"]
            )
        )

    def sent(self, room: str) -> list[dict[str, Any]]:
        return [self._read(room, event) for event in self.events(room)]

    def _read(self, room: str, event: dict[str, Any]) -> dict[str, Any]:
        if event["type"] != "m.room.encrypted":
            return event
        key = event["event_id"]
        if key not in self._opened:
            reader = self.anna.id if self.anna.id in self.people(room) else self.bert.id
            try:
                self._opened[key] = self.client_of(reader).decrypt(room, event)
            except EncryptionError:
                if event["sender"] == AGENT:
                    raise
                return event | {"content": {"msgtype": "m.text", "body": ""}}
        return self._opened[key]

    def check(self, room: str, kind: str, content: dict[str, Any]) -> None:
        if room not in self._encrypted:
            super().check(room, kind, content)
            return
        assert kind == "m.room.encrypted"
        assert "body" not in content

    # --- the homeserver

    async def _answer(self, request: LocalRequest) -> LocalResponse | None:
        if self.watch is not None:
            self.watch(request.path, False)
        if self.failing and self.failing in request.path:
            self.failing = ""
            return LocalResponse({}, 502)
        answer = await self._served(request)
        if self.watch is not None:
            self.watch(request.path, True)
        return answer

    async def _served(self, request: LocalRequest) -> LocalResponse | None:
        token = request.headers.get("authorization", "").removeprefix("Bearer ")
        if self._refused or token not in self.sessions:
            return await super()._answer(request)  # type: ignore[no-any-return]
        path = request.path.split("/")[4:]
        if path[0] not in {"keys", "sendToDevice"}:
            return await super()._answer(request)  # type: ignore[no-any-return]
        self.calls.append((request.method, request.path))
        body = json.loads(request.body)
        match path:
            case ["keys", "upload"]:
                return LocalResponse(self.keys.upload(AGENT, DEVICE, body))
            case ["keys", "device_signing", "upload"]:
                self.keys.masters[AGENT] = body["master_key"]
                self.keys.signers[AGENT] = body["self_signing_key"]
                return LocalResponse({})
            case ["keys", "signatures", "upload"]:
                for device, signed in body[AGENT].items():
                    known = self.keys.devices[AGENT][device]["signatures"][AGENT]
                    known.update(signed["signatures"][AGENT])
                return LocalResponse({"failures": {}})
            case ["keys", "query"]:
                return LocalResponse(self.keys.query(body["device_keys"]))
            case ["keys", "claim"]:
                return LocalResponse(self.keys.claim(body["one_time_keys"]))
            case ["sendToDevice", kind, key]:
                if key not in self._sent:
                    self._sent[key] = ""
                    self.keys.send(AGENT, kind, body["messages"])
                return LocalResponse({})
        return None

    async def _sync(self, request: LocalRequest) -> LocalResponse | None:
        _, taken, changes = f"{request.query.get('since', 's0')}_0_0".split("_")[:3]
        found = await super()._sync(request)
        if found is None or found.status != 200:
            return found  # type: ignore[no-any-return]
        place = AGENT, DEVICE
        count = len(self.keys.one_time_keys.get(place, {}))
        fallbacks = ["signed_curve25519"] if place in self.keys.fallbacks else []
        ends = f"{len(self.keys.inbox)}_{len(self.keys.changed)}"
        extra: dict[str, Any] = {
            "next_batch": f"{found.body['next_batch']}_{ends}",
            "to_device": {"events": self.keys.taken(int(taken))},
            "device_lists": {"changed": self.keys.changed[int(changes) :], "left": []},
            "device_one_time_keys_count": {"signed_curve25519": count},
            "device_unused_fallback_key_types": fallbacks,
        }
        return LocalResponse({**found.body, **extra})
