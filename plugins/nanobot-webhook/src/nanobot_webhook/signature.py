"""Signatures of Standard Webhooks 1.0 (standardwebhooks.com), symmetric scheme ``v1``.

The specification's own library takes the time from the system and reports a malformed header as
one of five exceptions; here both are the caller's.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
from collections.abc import Mapping
from dataclasses import dataclass

MIN_KEY_BYTES, MAX_KEY_BYTES = 24, 64
_PREFIX = "whsec_"
_VERSION = "v1,"
_MAX_SIGNATURES = 8
"""Senders send two while they change their secret."""
_ID = re.compile(r"[A-Za-z0-9_-]{1,256}")
"""Excludes full stops, with which parts of a signed text could be exchanged."""
_TIMESTAMP = re.compile(r"[0-9]{1,12}")


class SignatureRefused(Exception):
    """The sender of a message is not proven; the text tells the sender why."""


@dataclass(frozen=True, slots=True)
class SignedHead:
    """The headers of a signed message.

    Attributes:
        id: the same for each attempt to send a message.
        timestamp: when this attempt was made, in seconds since 1970.
        signatures: as sent; one of them must be right.
    """

    id: str
    timestamp: int
    signatures: tuple[str, ...]


def decode_key(secret: str) -> bytes:
    """Return the key that a secret encodes.

    Raises:
        ValueError: it is not ``whsec_`` and 24 to 64 bytes in base64.
    """
    try:
        key = base64.b64decode(secret.strip().removeprefix(_PREFIX), validate=True)
    except binascii.Error:
        key = b""
    if not MIN_KEY_BYTES <= len(key) <= MAX_KEY_BYTES:
        msg = f"'{_PREFIX}' and {MIN_KEY_BYTES} to {MAX_KEY_BYTES} random bytes in base64"
        raise ValueError(msg)
    return key


def read_head(headers: Mapping[str, str], *, now_s: float, tolerance_s: float) -> SignedHead:
    """Return what the headers say, before anything is read or computed.

    Args:
        headers: of the request, names in lower case.
        now_s: the current time, in seconds since 1970.
        tolerance_s: seconds that the timestamp may be off.

    Raises:
        SignatureRefused: a header is missing or malformed, or the timestamp is too far off.
    """
    for name in ("webhook-id", "webhook-timestamp", "webhook-signature"):
        if not headers.get(name):
            msg = f"the header {name} is missing"
            raise SignatureRefused(msg)
    message_id, timestamp = headers["webhook-id"], headers["webhook-timestamp"]
    if _ID.fullmatch(message_id) is None:
        msg = "webhook-id must be 1 to 256 letters, digits, '_' or '-'"
        raise SignatureRefused(msg)
    if _TIMESTAMP.fullmatch(timestamp) is None:
        msg = "webhook-timestamp must be the seconds since 1970"
        raise SignatureRefused(msg)
    if abs(now_s - int(timestamp)) > tolerance_s:
        msg = f"webhook-timestamp is more than {tolerance_s:g} seconds off"
        raise SignatureRefused(msg)
    signatures = headers["webhook-signature"].split(" ")[:_MAX_SIGNATURES]
    return SignedHead(message_id, int(timestamp), tuple(signatures))


def verify_body(key: bytes, head: SignedHead, body: bytes) -> None:
    """Check that the holder of `key` has signed `head` and `body`, in constant time.

    Raises:
        SignatureRefused: no signature is right.
    """
    expected = sign(key, head.id, head.timestamp, body).encode()
    if not any(hmac.compare_digest(given.encode(), expected) for given in head.signatures):
        msg = "no signature matches"
        raise SignatureRefused(msg)


def sign(key: bytes, message_id: str, timestamp: int, body: bytes) -> str:
    """Return the value of ``webhook-signature``."""
    digest = hmac.digest(key, f"{message_id}.{timestamp}.".encode() + body, hashlib.sha256)
    return _VERSION + base64.b64encode(digest).decode()
