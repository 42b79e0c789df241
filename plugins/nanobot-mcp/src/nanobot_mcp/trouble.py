"""Why a connection failed: the transport notes the cause, and the connection reports it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

_MAX_DEPTH = 10


class Trouble:
    """The cause of a failed connection.

    Attributes:
        reason: the first cause that was noted, or an empty text.
        status: HTTP status of the last answer if it is 401, 403 or 5xx, otherwise ``None``.
        is_forgotten: the server no longer knows the session.
    """

    def __init__(self) -> None:
        self.reason: str = ""
        self.status: int | None = None
        self.is_forgotten: bool = False

    def sentence(self, error: BaseException | None) -> str:
        """Describe the cause; `error` is the exception that ended the connection, if any."""
        if self.status == 401:  # RFC 9110, section 15.5.2
            return "it requires a login (HTTP 401); run nanobot mcp login"
        if self.reason:
            return self.reason
        if self.status is not None:
            return f"it responded with HTTP {self.status}"
        return describe_failure(error) if error is not None else "the connection ended"

    def note(self, reason: str) -> None:
        """Store `reason` unless there is one: the first is closest to the cause."""
        self.reason = self.reason or reason


def describe_failure(error: BaseException) -> str:
    """Describe `error`; for exception groups, describe their members."""
    found = dict.fromkeys(_sentence(leaf) for leaf in _leaves(error, 0))
    return "; ".join(list(found)[:3])


def _leaves(error: BaseException, depth: int) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup) and depth < _MAX_DEPTH:
        for inner in error.exceptions:
            yield from _leaves(inner, depth + 1)
    else:
        yield error


def _sentence(error: BaseException) -> str:
    # If a folder on the search path cannot be read, the system reports missing permission even
    # if the program does not exist.
    if isinstance(error, FileNotFoundError) or (
        isinstance(error, PermissionError) and shutil.which(str(error.filename)) is None
    ):
        return f"'{error.filename}' does not exist"
    words = " ".join(str(error).split())[:300]
    return words or type(error).__name__
