"""Problems of a connection, from where they are seen to where they are reported."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

_MAX_DEPTH = 10


class Trouble:
    """The first cause noted for one connection.

    Attributes:
        reason: the cause in words, or an empty text.
        status: HTTP status of the last answer, if it speaks of a server that cannot be used (401,
            403, 5xx), else ``None``.
        is_forgotten: the server does not know the session any more.
    """

    def __init__(self) -> None:
        self.reason: str = ""
        self.status: int | None = None
        self.is_forgotten: bool = False

    def sentence(self, error: BaseException | None) -> str:
        """Return the cause in words; `error` is what the connection ended with, if anything."""
        if self.status == 401:  # RFC 9110, section 15.5.2
            return "it asks for a login (HTTP 401); run nanobot mcp login"
        if self.reason:
            return self.reason
        if self.status is not None:
            return f"it answers with HTTP {self.status}"
        return describe_failure(error) if error is not None else "the connection ended"

    def note(self, reason: str) -> None:
        """Keep `reason` unless there is one; the first is nearest to the cause."""
        self.reason = self.reason or reason


def describe_failure(error: BaseException) -> str:
    """Return the innermost causes of `error` in words; groups are looked into."""
    found = dict.fromkeys(_sentence(leaf) for leaf in _leaves(error, 0))
    return "; ".join(list(found)[:3])


def _leaves(error: BaseException, depth: int) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup) and depth < _MAX_DEPTH:
        for inner in error.exceptions:
            yield from _leaves(inner, depth + 1)
    else:
        yield error


def _sentence(error: BaseException) -> str:
    # With a folder on the search path that may not be read, the system reports the lack of
    # permission and not that no folder has the program.
    if isinstance(error, FileNotFoundError) or (
        isinstance(error, PermissionError) and shutil.which(str(error.filename)) is None
    ):
        return f"'{error.filename}' does not exist"
    words = " ".join(str(error).split())[:300]
    return words or type(error).__name__
