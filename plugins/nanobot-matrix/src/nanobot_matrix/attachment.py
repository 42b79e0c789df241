"""Encrypted files. Source: client-server API, "Sending encrypted attachments"."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import re
import secrets
from collections.abc import AsyncIterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from nanobot_core.chat import CallFailed, Cause
from nanobot_matrix.wire import as_object

if TYPE_CHECKING:
    from nanobot_core import JsonObject

_KEY_BYTES, _COUNTER_BYTES, _HASH_BYTES = 32, 16, 32
_MXC = re.compile(r"mxc://[A-Za-z0-9.:\[\]-]+/[A-Za-z0-9_-]+")


@dataclass(frozen=True, slots=True)
class SealedFile:
    """An encrypted file on a homeserver.

    Attributes:
        url: address of the encrypted bytes.
        key: for AES-256 in counter mode, in Base64 as JSON Web Keys have it, without padding.
        iv: first counter block, in Base64.
        sha256: hash of the encrypted bytes, in Base64.
    """

    url: str
    key: str
    iv: str
    sha256: str

    @classmethod
    def read(cls, found: object) -> SealedFile | None:
        """Return the file that ``file`` of a message names, or ``None`` if that is invalid."""
        file = as_object(found)
        key, url, iv = as_object(file.get("key")), file.get("url"), file.get("iv")
        parts = (key.get("k"), iv, as_object(file.get("hashes")).get("sha256"))
        if file.get("v") != "v2" or key.get("alg") != "A256CTR" or not isinstance(url, str):
            return None
        lengths = (_KEY_BYTES, _COUNTER_BYTES, _HASH_BYTES)
        for part, length in zip(parts, lengths, strict=True):
            if not isinstance(part, str) or len(_bytes(part)) != length:
                return None
        return cls(url, *map(str, parts)) if _MXC.fullmatch(url) else None

    @classmethod
    def parse(cls, ref: str) -> SealedFile | None:
        """Return the file that `ref` names; ``None`` if that is the address of a plain file."""
        return cls(**json.loads(ref)) if ref.startswith("{") else None

    @property
    def ref(self) -> str:
        """The whole as a text, for `parse`."""
        return json.dumps(asdict(self))

    def as_json(self) -> JsonObject:
        """Return ``file`` of a message."""
        return {
            "url": self.url,
            "key": {
                "kty": "oct",
                "key_ops": ["encrypt", "decrypt"],
                "alg": "A256CTR",
                "k": self.key,
                "ext": True,
            },
            "iv": self.iv,
            "hashes": {"sha256": self.sha256},
            "v": "v2",
        }


def seal_file(content: bytes) -> tuple[bytes, SealedFile]:
    """Encrypt a file with a new key, and return it with what reads it, without its address.

    Call it in a thread. It needs cryptography.
    """
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

    # The second half counts; were it random, it could run over, which some clients get wrong.
    key, iv = secrets.token_bytes(_KEY_BYTES), secrets.token_bytes(8) + bytes(8)
    encryptor = Cipher(algorithms.AES(key), modes.CTR(iv)).encryptor()
    sealed = encryptor.update(content) + encryptor.finalize()
    jwk = base64.urlsafe_b64encode(key).decode().rstrip("=")
    return sealed, SealedFile("", jwk, _text(iv), _text(hashlib.sha256(sealed).digest()))


async def open_file(file: SealedFile, content: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Yield a file as its sender encrypted it. It needs cryptography.

    Raises:
        CallFailed: the bytes are others than the sender's; what was yielded must not be used.
    """
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

    decryptor = Cipher(algorithms.AES(_bytes(file.key)), modes.CTR(_bytes(file.iv))).decryptor()
    digest = hashlib.sha256()
    async for part in content:
        digest.update(part)
        yield decryptor.update(part)
    if not hmac.compare_digest(digest.digest(), _bytes(file.sha256)):
        raise CallFailed(Cause.REFUSED, "it is not the file that its sender encrypted")


def _text(content: bytes) -> str:
    return base64.b64encode(content).decode().rstrip("=")


def _bytes(text: str) -> bytes:
    """Return the bytes of Base64 in either alphabet; nothing if it is not valid."""
    text = text.rstrip("=").replace("-", "+").replace("_", "/")
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except ValueError:
        return b""
