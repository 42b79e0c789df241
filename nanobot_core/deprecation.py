"""Public names and hooks that are about to go: since when, until when, and what to use instead.

An entry stays in the table when its name is gone, so that the error names the replacement. See
docs/plugins/compatibility.md for the periods.
"""

from __future__ import annotations

import sys

from nanobot_core.record import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Deprecation:
    """A name that plugins should no longer use.

    Attributes:
        name: ``nanobot_core.Name``, ``on.hook`` or ``Class.field``.
        since: release that deprecated it.
        removed_in: first release without it.
        removed_on: day before which no such release appears, as YYYY-MM-DD.
        replacement: what to use instead, in words that follow "use".
    """

    name: str
    since: str
    removed_in: str
    removed_on: str
    replacement: str

    @property
    def warning(self) -> str:
        """What to say to those who use it."""
        return (
            f"{self.name}, which is deprecated since {self.since} and which {self.removed_in} "
            f"removes, not before {self.removed_on}; use {self.replacement}"
        )

    @property
    def farewell(self) -> str:
        """What to say when it is gone."""
        return f"{self.name} was removed in {self.removed_in}; use {self.replacement}"


DEPRECATED: tuple[Deprecation, ...] = ()
"""The names, also those that are gone already."""

_warned: set[tuple[str, str]] = set()


def find_deprecation(name: str) -> Deprecation | None:
    """Return the entry of a name; ``None`` if it is not deprecated."""
    return next((each for each in DEPRECATED if each.name == name), None)


def warn_once(plugin: str, found: Deprecation) -> None:
    """Log that a plugin uses a deprecated name; once for each plugin and name in a process."""
    if (plugin, found.name) not in _warned:
        _warned.add((plugin, found.name))
        from loguru import logger

        logger.warning("'{}' uses {}", plugin, found.warning)


def importing_package() -> str:
    """Return the top-level package of the code that imports a name from this one.

    To be called from a module's ``__getattr__``.
    """
    frame = sys._getframe(2)  # noqa: SLF001 - `inspect` would be imported by every command
    while frame.f_back is not None and _module(frame.f_globals).startswith("importlib."):
        frame = frame.f_back
    return _module(frame.f_globals).partition(".")[0]


def _module(names: dict[str, object]) -> str:
    return str(names.get("__name__", ""))
