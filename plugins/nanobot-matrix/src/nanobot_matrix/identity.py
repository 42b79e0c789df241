"""Identity: the cross-signing keys of the agent's account. Source: "Cross-signing".

Clients show devices that their own account has signed as such, and many send keys to no others. The
private keys are in the vault. It needs the extra ``e2e``.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from nanobot_matrix.olm import unpadded
from nanobot_matrix.signature import canonical

if TYPE_CHECKING:
    from nanobot_core import JsonObject
    from nanobot_matrix.vault import Keys

_USAGES = ("master", "self_signing", "user_signing")


@dataclass(frozen=True, slots=True)
class Identity:
    """The cross-signing keys of an account.

    Attributes:
        seeds: private keys, in the order master, self-signing, user-signing.
    """

    user_id: str
    seeds: tuple[str, ...]

    @classmethod
    def open(cls, keys: Keys, user_id: str) -> Identity:
        """Return the identity of the vault, which gets its keys with the first call."""
        for usage in _USAGES:
            if keys.value(usage) is None:
                made = Ed25519PrivateKey.generate().private_bytes_raw()
                keys.set_value(usage, base64.b64encode(made).decode())
        return cls(user_id, tuple(keys.value(usage) or "" for usage in _USAGES))

    @property
    def master(self) -> str:
        """The public master key."""
        return _public(self.seeds[0])

    @property
    def signer(self) -> str:
        """The public self-signing key."""
        return _public(self.seeds[1])

    def public_keys(self) -> JsonObject:
        """Return the public keys as they are uploaded; the master key has signed the others."""
        found: JsonObject = {}
        for usage, seed in zip(_USAGES, self.seeds, strict=True):
            public = _public(seed)
            key: JsonObject = {
                "user_id": self.user_id,
                "usage": [usage],
                "keys": {f"ed25519:{public}": public},
            }
            found[f"{usage}_key"] = key if usage == "master" else self._signed(key, self.seeds[0])
        return found

    def signed_device(self, device_keys: JsonObject) -> JsonObject:
        """Return the keys of a device with only the signature of the account."""
        plain = {name: device_keys[name] for name in device_keys if name != "signatures"}
        return self._signed(plain, self.seeds[1])

    def _signed(self, value: JsonObject, seed: str) -> JsonObject:
        signature = unpadded(_private(seed).sign(canonical(value)))
        return {**value, "signatures": {self.user_id: {f"ed25519:{_public(seed)}": signature}}}


def _private(seed: str) -> Ed25519PrivateKey:
    return Ed25519PrivateKey.from_private_bytes(base64.b64decode(seed))


def _public(seed: str) -> str:
    return unpadded(_private(seed).public_key().public_bytes_raw())
