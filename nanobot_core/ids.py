"""Ids of messages and turns."""

from __future__ import annotations

import random


def new_id() -> str:
    """Return 32 hexadecimal digits that no other call, in whatever process, has given.

    It is no secret: who may see some ids could tell the others. A UUID would ask the system for
    each, and in a busy process the interpreter's lock is lost to another thread meanwhile.
    """
    return f"{_RANDOM.getrandbits(128):032x}"


_RANDOM = random.Random()  # noqa: S311 - see above; seeded by the system
