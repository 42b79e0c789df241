"""Secrets that are planted for one run of the tests, and the finder that looks for them."""

from __future__ import annotations

import base64
import json
import secrets
from collections.abc import Collection, Iterator
from typing import Final
from urllib.parse import quote, unquote

_RANDOM_BYTES: Final = 12


def _plant(prefix: str = "") -> str:
    return f"{prefix}{secrets.token_hex(_RANDOM_BYTES)}"


PLANTED: Final[dict[str, str]] = {
    "key in the file": _plant("sk-"),
    "key from a variable": _plant(),
    "key from a secret file": _plant(),
    "key from NANOBOT_ variable": _plant(),
    "key in a profile": _plant(),
    "header that sounds secret": _plant(),
    "header that does not": _plant(),
    "password of a proxy": f"{_plant()}%40{_plant()}",
    "password in an address": _plant(),
    "user name that is a token": _plant("ghp_"),
    "token of telegram": f"123456789:AA{_plant()}",
    "secret of the webhook": f"whsec_{base64.b64encode(secrets.token_bytes(32)).decode()}",
    "token in the callback": _plant(),
    "secret of the gateway": _plant(),
    "variable of an MCP server": _plant(),
    "plain variable of an MCP server": _plant(),
    "header of an MCP server": _plant(),
    "query of an MCP server": _plant(),
    "argument of an MCP server": _plant(),
    "key of the transcription": _plant(),
    "key of the search": _plant(),
    "variable that sounds secret": _plant(),
    "variable that does not": _plant(),
    "key in .env": _plant(),
}
"""What it is, and its value; every run has others, so that none can be hidden by chance."""


def search(text: str | bytes, allowed: Collection[str] = ()) -> list[str]:
    """Return the names of the canaries in `text`, in any form in which one could read them.

    Args:
        text: where to look.
        allowed: names of those that may be in it.
    """
    haystack = text.encode(errors="surrogateescape") if isinstance(text, str) else text
    return [
        name
        for name, value in PLANTED.items()
        if name not in allowed and any(form.encode() in haystack for form in forms(value))
    ]


def forms(value: str) -> Iterator[str]:
    """Yield `value` as it is, and as URLs, JSON, headers and dumps of bytes have it."""
    yield from {value, unquote(value), quote(value, safe=""), json.dumps(value)[1:-1]}
    yield value.encode().hex()
    plain = value.encode()
    for start in range(3):
        # A text in base64 looks otherwise at each of three offsets; the edges depend on neighbours.
        coded = base64.b64encode(b"\0" * start + plain).decode()
        yield coded[4 if start else 0 : len(coded) // 4 * 4 - 4]
