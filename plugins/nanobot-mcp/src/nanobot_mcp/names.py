"""Names that model services take: cleaned, at most 64 characters, unique."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TypeAlias

MAX_NAME_CHARS = 64
_OTHER = re.compile(r"[^a-zA-Z0-9_-]")
_INFIX = {
    "tool": "",
    "resource": "resource_",
    "template": "resource_",
    "prompt": "prompt_",
    "connect": "",
}

Claim: TypeAlias = tuple[str, str, str, str]
"""Server, kind, the server's own name, and the address where there is one.

The kind is that of an offer, or ``connect`` for what connects a server whose offers are unknown.
"""


def assign_names(claims: Iterable[Claim]) -> Mapping[Claim, str]:
    """Return the name that the model sees for each claim.

    A name depends only on which claims there are, not on their order: where several lead to one
    name, each gets a digest of its own.
    """
    names = {claim: wrapped_name(claim) for claim in claims}
    # A server may choose a name that looks like one with a digest, hence again until it holds.
    while contested := {name for name, uses in Counter(names.values()).items() if uses > 1}:
        for claim, name in names.items():
            if name in contested:
                names[claim] = _with_digest(name, claim)
    return names


def wrapped_name(claim: Claim) -> str:
    """Return ``mcp_<server>_<name>``, with ``resource_`` or ``prompt_`` before the name."""
    server, kind, name, _ = claim
    full = _OTHER.sub("_", f"mcp_{server}_{_INFIX[kind]}{name}")
    return full if len(full) <= MAX_NAME_CHARS else _with_digest(full, claim)


def _with_digest(name: str, claim: Claim) -> str:
    source = "\0".join((*claim, name)).encode("utf-8", "surrogatepass")
    digest = hashlib.sha256(source).hexdigest()[:8]
    return f"{name[: MAX_NAME_CHARS - 9]}_{digest}"
