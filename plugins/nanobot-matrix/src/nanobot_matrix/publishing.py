"""Publishing: the keys of the agent's device on the homeserver."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from nanobot_core.chat import CallFailed, Cause
from nanobot_matrix import wire
from nanobot_matrix.homeserver import read
from nanobot_matrix.identity import Identity
from nanobot_matrix.signature import is_signed, master_key_of
from nanobot_matrix.wire import as_object

if TYPE_CHECKING:
    from nanobot_core import JsonObject, JsonValue, PluginContext
    from nanobot_matrix.homeserver import Homeserver
    from nanobot_matrix.olm import OwnDevice
    from nanobot_matrix.vault import Vault

_PAUSE_S = 300.0


class Publishing:
    """Publishes the keys of the agent's device `own`.

    Args:
        vault: where the keys are kept.
    """

    def __init__(
        self, ctx: PluginContext, server: Homeserver, own: OwnDevice, vault: Vault
    ) -> None:
        self._clock = ctx.clock
        self._log = ctx.logger
        self._server = server
        self._own = own
        self._vault = vault
        self._failed_s = float("-inf")

    async def publish(self) -> None:
        """Publish the keys of the device, unless they are known.

        Raises:
            CallFailed: the device has keys of another program, or the homeserver cannot be reached.
        """
        own = self._own
        none: list[JsonValue] = []
        asked = await self._server.call(
            "POST", "keys", "query", body={"device_keys": {own.user_id: none}}
        )
        found_keys = read(wire.DeviceKeys, asked)
        device = as_object(as_object(found_keys.device_keys.get(own.user_id)).get(own.device_id))
        published = as_object(device.get("keys"))
        signed = await self._vault.run(own.device_keys)
        if not published:
            found = await self._server.call("POST", "keys", "upload", body={"device_keys": signed})
            counted = as_object(found.get("one_time_key_counts"))
            await self._upload(counted, has_fallback=False)
        elif published != signed["keys"]:
            reason = (
                f"device {own.device_id} of {own.user_id} has the keys of another program, or its "
                "keys here were lost; set channels.matrix.user_id and channels.matrix.password, "
                "and another channels.matrix.device_id, so that the agent gets a device of its own "
                "(or set channels.matrix.e2ee_enabled: false)"
            )
            raise CallFailed(Cause.CREDENTIALS, reason)
        try:
            await self._sign(signed, device, master_key_of(own.user_id, found_keys))
        except CallFailed as error:
            # Also if the homeserver wants the password once more. The next start tries it again.
            self._log.warning("the account cannot sign the agent's device: {}", error)

    async def _sign(self, signed: JsonObject, device: JsonObject, master: str) -> None:
        """Sign the device with the keys of the account, which are created if it has none."""
        own, identity = (
            self._own,
            await self._vault.run(partial(Identity.open, user_id=self._own.user_id)),
        )
        if not master:
            keys = identity.public_keys()
            await self._server.call("POST", "keys", "device_signing", "upload", body=keys)
        elif master != identity.master:
            self._log.info(
                "another program has made the master key of {}; verify device {} with it, so that "
                "clients trust the agent",
                *(own.user_id, own.device_id),
            )
            return
        if not is_signed(device, own.user_id, identity.signer, identity.signer):
            body: JsonObject = {own.user_id: {own.device_id: identity.signed_device(signed)}}
            await self._server.call("POST", "keys", "signatures", "upload", body=body)

    async def replenish(self, sync: wire.Sync) -> None:
        """Upload keys with which devices begin sessions, if few are left.

        Raises:
            CallFailed: the homeserver does not accept the session.
        """
        counted, fallbacks = sync.device_one_time_keys_count, sync.device_unused_fallback_key_types
        now_s = self._clock.monotonic_s()
        if counted is None or now_s - self._failed_s < _PAUSE_S:
            return
        has_fallback = fallbacks is None or "signed_curve25519" in fallbacks
        try:
            await self._upload(counted, has_fallback=has_fallback)
        except CallFailed as error:
            # Each attempt makes other keys, and only some thousands are kept.
            self._failed_s = now_s
            if error.cause is Cause.CREDENTIALS:
                raise
            self._log.warning("keys for new sessions cannot be uploaded: {}", error)

    async def _upload(self, counted: JsonObject, *, has_fallback: bool) -> None:
        number = counted.get("signed_curve25519")
        body = await self._vault.run(
            partial(
                self._own.new_keys,
                counted=number if isinstance(number, int) else 0,
                now_s=int(self._clock.now().timestamp()),
                has_fallback=has_fallback,
            )
        )
        if body:
            await self._server.call("POST", "keys", "upload", body=body)
