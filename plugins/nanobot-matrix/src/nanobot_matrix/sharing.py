"""Sharing: asks for the devices of people, and sends room keys to them."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Collection, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from nanobot_core.chat import CallFailed, Cause, Recent
from nanobot_matrix import wire
from nanobot_matrix.homeserver import read
from nanobot_matrix.megolm import WITHHELD, Plan, Rule, SentKeys
from nanobot_matrix.signature import MEGOLM
from nanobot_matrix.wire import as_id, as_object

if TYPE_CHECKING:
    from nanobot_core import JsonObject, PluginContext
    from nanobot_matrix.homeserver import Homeserver
    from nanobot_matrix.olm import OwnDevice
    from nanobot_matrix.roster import Roster
    from nanobot_matrix.signature import Device
    from nanobot_matrix.vault import Keys, Vault

_PEOPLE, _DEVICES = 200, 100
"""Most people of one query, and most devices of one call that sends to devices."""
_FEDERATION_MS = 10_000
_QUERY_PAUSE_S = 60.0
_CLAIM_PAUSE_S = 600.0
_RENEW_PAUSE_S = 3_600.0
_ATTEMPTS = 5
_REASONS = {"m.unverified": "the agent does not trust this device", "m.no_olm": "no one-time key"}


class Sharing:
    """The devices of people, and the room keys that they get from the agent.

    Args:
        own: the agent's device.
        roster: which devices are known and trusted.
        vault: where keys are kept.
    """

    def __init__(
        self,
        ctx: PluginContext,
        server: Homeserver,
        own: OwnDevice,
        roster: Roster,
        vault: Vault,
    ) -> None:
        self._clock = ctx.clock
        self._log = ctx.logger
        self._server = server
        self._own = own
        self._roster = roster
        self._vault = vault
        self._sent_keys = SentKeys(own, roster)
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._queried: Recent[str, tuple[int, float]] = Recent(5_000)
        self._claimed: Recent[str, float] = Recent(5_000)
        self._renewed: Recent[str, float] = Recent(5_000)
        self._repeated: Recent[tuple[str, str], float] = Recent(5_000)

    @property
    def _now_s(self) -> float:
        return self._clock.now().timestamp()

    async def refresh(self, people: Collection[str]) -> None:
        """Ask for the devices of people whose devices have changed, or are not known.

        Raises:
            CallFailed: the homeserver cannot be reached.
        """
        asked = await self._vault.run(partial(self._roster.outdated, users=people))
        outdated, now_s = [], self._clock.monotonic_s()
        for user, changes in asked.items():
            # The homeserver of a person can be away, and each query waits for it.
            last = self._queried.get(user)
            if last is None or last[0] != changes or now_s - last[1] >= _QUERY_PAUSE_S:
                outdated.append(user)
        for start in range(0, len(outdated), _PEOPLE):
            page = outdated[start : start + _PEOPLE]
            body: JsonObject = {"device_keys": {user: [] for user in page}}
            found = await self._server.call(
                "POST", "keys", "query", body=body | {"timeout": _FEDERATION_MS}
            )
            answer, some = read(wire.DeviceKeys, found), {user: asked[user] for user in page}
            for user, changes in some.items():
                self._queried.put(user, (changes, now_s))
            for problem in await self._vault.run(
                partial(self._roster.store, asked=some, answer=answer)
            ):
                self._log.warning("encryption: {}", problem)

    async def encrypt(
        self, room: str, rule: Rule, people: Collection[str], kind: str, content: JsonObject
    ) -> JsonObject:
        """Return the content of an encrypted event, after the devices of `people` have its key.

        Raises:
            CallFailed: the key cannot be sent, or the room is encrypted in a way that is unknown.
        """
        if rule.algorithm != MEGOLM:
            reason = f"room {room} is encrypted with '{rule.algorithm}', which is unknown"
            raise CallFailed(Cause.FORBIDDEN, reason)
        async with self._turns.setdefault(room, asyncio.Lock()):
            for _ in range(_ATTEMPTS):
                await self.refresh(people)
                plan = await self._vault.run(
                    partial(
                        self._sent_keys.plan, room=room, rule=rule, people=people, now_s=self._now_s
                    )
                )
                await self._share(room, plan)
                sealed = await self._vault.run(
                    partial(
                        self._sent_keys.encrypt,
                        room=room,
                        session_id=plan.session_id,
                        kind=kind,
                        content=content,
                    )
                )
                if sealed is not None:
                    return sealed
        reason = f"the key of room {room} changes all the time"
        raise CallFailed(Cause.UNREACHABLE, reason)

    async def _share(self, room: str, plan: Plan) -> None:
        await self._begin_sessions(plan.missing, self._claimed, _CLAIM_PAUSE_S)
        reached = await self.whisper(plan.missing, "m.room_key", plan.key)
        await self._note(plan, reached, plan.number)
        await self._withhold(room, plan, plan.refused, "m.unverified")
        if plan.number == 0:
            # They are tried again with the next message.
            unreached = [device for device in plan.missing if device not in reached]
            await self._withhold(room, plan, unreached, "m.no_olm", is_final=False)

    async def _note(self, plan: Plan, devices: Collection[Device], number: int) -> None:
        if devices:
            await self._vault.run(
                partial(
                    self._sent_keys.note_shared,
                    session_id=plan.session_id,
                    devices=devices,
                    number=number,
                )
            )

    async def _withhold(
        self, room: str, plan: Plan, devices: Sequence[Device], code: str, *, is_final: bool = True
    ) -> None:
        """Tell devices that they do not get a key."""
        content: JsonObject = {
            "algorithm": MEGOLM,
            "room_id": room,
            "session_id": plan.session_id,
            "sender_key": self._own.curve25519,
            "code": code,
            "reason": _REASONS[code],
        }
        for start in range(0, len(devices), _DEVICES):
            page = devices[start : start + _DEVICES]
            await self._send("m.room_key.withheld", [(each, content) for each in page])
            if is_final:
                await self._note(plan, page, WITHHELD)

    async def _begin_sessions(
        self,
        devices: Iterable[Device],
        tried: Recent[str, float],
        pause_s: float,
        *,
        renews: bool = False,
    ) -> list[Device]:
        """Begin a session with each device that has none; return those that have a new one."""
        wanted = []
        for device in devices:
            last_s, now_s = tried.get(device.curve25519), self._clock.monotonic_s()
            if not renews and await self._vault.run(partial(self._own.has_session, device=device)):
                continue
            if last_s is None or now_s - last_s >= pause_s:
                wanted.append(device)
        if not wanted:
            return []
        asked: dict[str, JsonObject] = {}
        for device in wanted:
            asked.setdefault(device.user_id, {})[device.device_id] = "signed_curve25519"
        body: JsonObject = {"one_time_keys": dict(asked), "timeout": _FEDERATION_MS}
        found = await self._server.call("POST", "keys", "claim", body=body)
        # Not before: after a failed call, the next one must ask again.
        for device in wanted:
            tried.put(device.curve25519, self._clock.monotonic_s())
        claimed = as_object(found.get("one_time_keys"))
        return await self._vault.run(partial(self._begun, devices=wanted, claimed=claimed))

    def _begun(
        self, keys: Keys, devices: Collection[Device], claimed: dict[str, object]
    ) -> list[Device]:
        now_s, begun = int(self._now_s), []
        for device in devices:
            key = as_object(claimed.get(device.user_id)).get(device.device_id)
            if self._own.begin(keys, device, key, now_s):
                begun.append(device)
        return begun

    async def whisper(
        self,
        devices: Sequence[Device],
        kind: str,
        content: JsonObject,
    ) -> list[Device]:
        """Send something to devices, encrypted with Olm; return those with a session."""
        reached = []
        for start in range(0, len(devices), _DEVICES):
            page = devices[start : start + _DEVICES]
            sealed = await self._vault.run(
                partial(self._sealed, devices=page, kind=kind, content=content)
            )
            await self._send("m.room.encrypted", sealed)
            reached += [device for device, _ in sealed]
        return reached

    def _sealed(
        self,
        keys: Keys,
        devices: Sequence[Device],
        kind: str,
        content: JsonObject,
    ) -> list[tuple[Device, JsonObject]]:
        found = [(each, self._own.encrypt(keys, each, kind, content)) for each in devices]
        return [(device, sealed) for device, sealed in found if sealed is not None]

    async def _send(self, kind: str, contents: Sequence[tuple[Device, JsonObject]]) -> None:
        messages: dict[str, JsonObject] = {}
        for device, content in contents:
            messages.setdefault(device.user_id, {})[device.device_id] = content
        if messages:
            await self.send_plain(kind, dict(messages))

    async def send_plain(self, kind: str, messages: JsonObject) -> None:
        """Send something to devices as it is."""
        key = secrets.token_hex(16)
        await self._server.call("PUT", "sendToDevice", kind, key, body={"messages": messages})

    # --- repairs

    async def renew(self, senders: Iterable[tuple[str, str]]) -> None:
        """Begin new sessions with devices whose messages cannot be read, at most once an hour."""
        for user, curve25519 in senders:
            await self.refresh([user])
            devices = await self._vault.run(
                partial(self._roster.with_key, user=user, curve25519=curve25519)
            )
            begun = await self._begin_sessions(devices, self._renewed, _RENEW_PAUSE_S, renews=True)
            empty: JsonObject = {}
            await self.whisper(begun, "m.dummy", empty)

    async def repeat(self, user: str, request: JsonObject) -> None:
        """Send a room key again to a device that asks for it, at most once an hour."""
        body, device_id = as_object(request.get("body")), request.get("requesting_device_id")
        room, session_id = as_id(body.get("room_id")), as_id(body.get("session_id"))

        def found(keys: Keys) -> list[tuple[Device, JsonObject]]:
            devices = [
                each
                for each in self._roster.devices(keys, [user])
                if each.device_id == device_id and self._own.has_session(keys, each)
            ]
            repeated = [
                (each, self._sent_keys.repeat(keys, each, room, session_id)) for each in devices
            ]
            return [(each, content) for each, content in repeated if content is not None]

        for device, content in await self._vault.run(found):
            place, now_s = (device.curve25519, session_id), self._clock.monotonic_s()
            last_s = self._repeated.get(place)
            if last_s is None or now_s - last_s >= _RENEW_PAUSE_S:
                self._repeated.put(place, now_s)
                await self.whisper([device], "m.forwarded_room_key", content)
