"""The names that follow from a plugin's id."""

from __future__ import annotations

import keyword
import re
from dataclasses import dataclass
from importlib.metadata import entry_points

MAX_ID_CHARS = 40
RESERVED = frozenset(
    {
        "agent", "agents", "all", "application", "channels", "config", "core", "gateway",
        "logging", "nanobot", "plugin", "plugins", "profiles", "providers", "run", "testing",
        "tests", "tools",
    }
)  # fmt: skip
"""Ids that would be mistaken for a part of the core, of its configuration or command line."""

_ID = re.compile(r"[a-z][a-z0-9]*(?:-[a-z0-9]+)*")


class NameRefusedError(ValueError):
    """A name cannot become a plugin's id; the message says why."""


@dataclass(frozen=True, slots=True)
class PluginNames:
    """What a plugin with an id is called everywhere.

    Attributes:
        id: name of its entry point, such as ``air-quality``.
    """

    id: str

    @property
    def distribution(self) -> str:
        """Name of the package that people install."""
        return f"nanobot-{self.id}"

    @property
    def package(self) -> str:
        """Name of the package that Python imports."""
        return f"nanobot_{self.snake}"

    @property
    def snake(self) -> str:
        """The id as an identifier, ``air_quality``."""
        return self.id.replace("-", "_")

    @property
    def pascal(self) -> str:
        """The id as the beginning of class names, ``AirQuality``."""
        return "".join(part.capitalize() for part in self.id.split("-"))

    @property
    def title(self) -> str:
        """The id as words, ``Air quality``."""
        return self.id.replace("-", " ").capitalize()


def parse_name(text: str) -> PluginNames:
    """Return the names of a plugin to be written.

    Args:
        text: the id, with or without ``nanobot-`` before it.

    Raises:
        NameRefusedError: it is malformed, reserved, or taken by an installed plugin.
    """
    plugin_id = text.removeprefix("nanobot-")
    if not _ID.fullmatch(plugin_id) or len(plugin_id) > MAX_ID_CHARS:
        msg = (
            f"'{text}' cannot be the name of a plugin: use lower-case letters, digits and single "
            f"hyphens, beginning with a letter, at most {MAX_ID_CHARS} characters"
        )
        raise NameRefusedError(msg)
    if plugin_id in RESERVED or keyword.iskeyword(plugin_id):
        msg = f"'{plugin_id}' is a word of Python or of nanobot itself; choose another name"
        raise NameRefusedError(msg)
    owner = next(iter(entry_points(group="nanobot", name=plugin_id)), None)
    if owner is not None:
        package = owner.dist.name if owner.dist else owner.value
        msg = f"a plugin '{plugin_id}' is installed already ({package}); choose another name"
        raise NameRefusedError(msg)
    return PluginNames(plugin_id)
