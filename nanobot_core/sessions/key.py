"""Session key to file name."""

from __future__ import annotations

import base64
import hashlib
import re

_UNSAFE = re.compile(r"[^A-Za-z0-9.-]+")
_READABLE_CHARS = 80
_DIGEST_BYTES = 10


def file_name(key: str) -> str:
    """Return the name of the file that holds the session `key`."""
    return f"{safe_name(key)}.jsonl"


def safe_name(key: str) -> str:
    """Return a file name for `key` that cannot leave its folder and is unique.

    The readable part serves people who look into the folder; the digest of the exact key tells
    apart what looks alike there or to a file system that ignores case. Eighty bits: to hit the
    file of somebody else's chat one would have to try 2^80 chat ids.
    """
    readable = _UNSAFE.sub("_", key).strip("._-")[:_READABLE_CHARS] or "session"
    digest = hashlib.sha256(key.encode("utf-8", "surrogatepass")).digest()[:_DIGEST_BYTES]
    return f"{readable}-{base64.b32encode(digest).decode('ascii').lower()}"


def original_file_name(key: str) -> str:
    """Return the name that nanobot-ai gives the file of `key`; different keys may share one."""
    return re.sub(r'[<>:"/\\|?*\x00]', "_", key).strip() + ".jsonl"


def original_key(stem: str) -> str:
    """Return the key that nanobot-ai reads out of a file name without suffix."""
    return stem.replace("_", ":", 1)
