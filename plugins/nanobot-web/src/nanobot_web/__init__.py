"""nanobot-web: tools to search the web and read pages.

For packages that add a search backend: `web_search_backends` marks the function that adds it, and
`SearchBackend`, `SearchAccess` and `SearchHit` are its parts. Names are imported when
first used, so that importing the package costs next to nothing.
"""

from __future__ import annotations

import importlib

# Type checkers know this name; importing it from typing would cost every command milliseconds.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from nanobot_web.backend import (
        SearchAccess as SearchAccess,
        SearchBackend as SearchBackend,
        SearchHit as SearchHit,
    )
    from nanobot_web.plugin import web_search_backends as web_search_backends

_HOMES = {
    "SearchAccess": "nanobot_web.backend",
    "SearchBackend": "nanobot_web.backend",
    "SearchHit": "nanobot_web.backend",
    "web_search_backends": "nanobot_web.plugin",
}
"""Public name to the module that defines it."""

__all__ = ["SearchAccess", "SearchBackend", "SearchHit", "web_search_backends"]


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        msg = f"module 'nanobot_web' has no attribute '{name}'"
        raise AttributeError(msg)
    value: object = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value
