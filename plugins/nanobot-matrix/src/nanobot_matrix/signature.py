"""Signed JSON, and the devices of people that are proven by it, with pure functions.

Sources: client-server API, "Signing JSON", "Device keys" and "Cross-signing". It needs vodozemac.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from vodozemac import Curve25519PublicKey, Ed25519PublicKey, Ed25519Signature

from nanobot_matrix.wire import as_id, as_object

if TYPE_CHECKING:
    from nanobot_core import JsonObject
    from nanobot_matrix import wire

OLM = "m.olm.v1.curve25519-aes-sha2"
MEGOLM = "m.megolm.v1.aes-sha2"


@dataclass(frozen=True, slots=True)
class Device:
    """A device of a person, whose keys it has signed itself.

    Attributes:
        curve25519: its identity key, in Base64 without padding.
        ed25519: its fingerprint key, in the same form.
        master: the person's master key, if that has signed the device by way of the self-signing
            key; otherwise empty.
    """

    user_id: str
    device_id: str
    curve25519: str
    ed25519: str
    master: str = ""


def canonical(value: JsonObject) -> bytes:
    """Return the form of an object that is signed, without its signatures.

    Raises:
        ValueError: it contains what UTF-8 cannot.
    """
    signed = {name: value[name] for name in value if name not in {"signatures", "unsigned"}}
    text = json.dumps(signed, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    return text.encode()


def is_signed(value: JsonObject, user_id: str, key_id: str, key: str) -> bool:
    """Whether an object contains a valid signature of a user's Ed25519 key."""
    found = as_object(as_object(value.get("signatures")).get(user_id)).get(f"ed25519:{key_id}")
    if not isinstance(found, str):
        return False
    try:
        signature = Ed25519Signature.from_base64(found)
        Ed25519PublicKey.from_base64(key).verify_signature(canonical(value), signature)
    except (ValueError, RecursionError):
        return False
    return True


def master_key_of(user_id: str, answer: wire.DeviceKeys) -> str:
    """Return the master key of a person as the homeserver gives it, or an empty text."""
    return _public_key(answer.master_keys.get(user_id), user_id, "master")


def devices_of(user_id: str, answer: wire.DeviceKeys) -> list[Device]:
    """Return the devices of a person whose keys are valid and signed by themselves."""
    own = as_object(answer.self_signing_keys.get(user_id))
    master, signing = master_key_of(user_id, answer), _public_key(own, user_id, "self_signing")
    if not (master and signing and is_signed(own, user_id, master, master)):
        master = ""
    found = []
    for device_id, raw in as_object(answer.device_keys.get(user_id)).items():
        device = _device(user_id, device_id, as_object(raw))
        if device is not None:
            is_cross_signed = bool(master) and is_signed(raw, user_id, signing, signing)
            found.append(_cross_signed(device, master) if is_cross_signed else device)
    return found


def fingerprint(key: str) -> str:
    """Return a key in groups of four characters, as clients show it."""
    return " ".join(key[at : at + 4] for at in range(0, len(key), 4))


def is_trusted(
    device: Device,
    master: str,
    listed: Mapping[str, Collection[str]],
    *,
    listed_only: bool,
) -> bool:
    """Whether a device may read what the agent writes, and speaks for its person.

    Args:
        master: the master key that was seen first for the person; empty if they have none.
        listed: `MatrixSettings.trusted_keys`.
        listed_only: `MatrixSettings.e2e_verified_only`.
    """
    keys = {"".join(key.split()) for key in listed.get(device.user_id, ())}
    if keys:
        return device.ed25519 in keys or device.master in keys
    if listed_only:
        return False
    return not master or device.master == master


def _cross_signed(device: Device, master: str) -> Device:
    return Device(device.user_id, device.device_id, device.curve25519, device.ed25519, master)


def _device(user_id: str, device_id: str, keys: dict[str, Any]) -> Device | None:
    if (keys.get("user_id"), keys.get("device_id")) != (user_id, as_id(device_id) or None):
        return None
    listed = as_object(keys.get("keys"))
    curve25519 = listed.get(f"curve25519:{device_id}")
    ed25519 = listed.get(f"ed25519:{device_id}")
    if not (isinstance(curve25519, str) and isinstance(ed25519, str)):
        return None
    try:
        # The same key in another spelling would be another device.
        is_normal = curve25519 == Curve25519PublicKey.from_base64(curve25519).to_base64()
        is_normal = is_normal and ed25519 == Ed25519PublicKey.from_base64(ed25519).to_base64()
    except ValueError:
        return None
    if not is_normal or not is_signed(keys, user_id, device_id, ed25519):
        return None
    return Device(user_id, device_id, curve25519, ed25519)


def _public_key(raw: object, user_id: str, usage: str) -> str:
    """Return the only key of a cross-signing key object, or an empty text."""
    found = as_object(raw)
    keys, usages = as_object(found.get("keys")), found.get("usage")
    if found.get("user_id") != user_id or not isinstance(usages, list) or usage not in usages:
        return ""
    key = next(iter(keys.values()), None) if len(keys) == 1 else None
    if not isinstance(key, str) or f"ed25519:{key}" not in keys:
        return ""
    try:
        return key if key == Ed25519PublicKey.from_base64(key).to_base64() else ""
    except ValueError:
        return ""
