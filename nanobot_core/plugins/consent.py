"""What the owner has agreed that plugins do; one that comes to do more waits for their word."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from nanobot_core.disk import replace_file
from nanobot_core.errors import PluginError
from nanobot_core.plugins.index import Condition, InstalledPlugin

_FILE = Path("plugins", "consent.json")


@dataclass(frozen=True, slots=True)
class Consents:
    """The record of one home.

    Attributes:
        agreed: by plugin id, the keys of `Manifest.reaches` that the owner has agreed to.
        problem: why the record cannot be used, or an empty string. Without it every plugin that
            is not bundled waits.
    """

    agreed: Mapping[str, frozenset[str]] = field(default_factory=dict)
    problem: str = ""

    @classmethod
    def load(cls, home: Path) -> Consents:
        """Return the record in nanobot's folder; it is empty before the first start."""
        file = home / _FILE
        try:
            data = json.loads(file.read_bytes())
            return cls({str(key): frozenset(map(str, keys)) for key, keys in data.items()})
        except FileNotFoundError:
            return cls()
        except (OSError, ValueError, TypeError, AttributeError, RecursionError) as error:
            return cls(problem=f"{file} cannot be read: {error}")

    def news_of(self, plugin: InstalledPlugin) -> tuple[str, ...]:
        """Return in words what a plugin does and the owner has not agreed to.

        Nothing for one that was never started: installing it was the consent. Nothing for a
        bundled one: it comes with the core, which runs it.
        """
        is_known = plugin.id in self.agreed or self.problem
        if plugin.manifest is None or plugin.bundled or not is_known:
            return ()
        known = self.agreed.get(plugin.id, frozenset())
        news = [words for key, words in plugin.manifest.reaches.items() if key not in known]
        return tuple(dict.fromkeys(news))

    def obstacle_of(self, plugin: InstalledPlugin) -> Condition | None:
        """Return what keeps a plugin out that does what the owner has not agreed to."""
        news = self.news_of(plugin)
        if news and self.problem:
            return Condition("unconfirmed", self.problem, "restore that file, or remove it")
        if news:
            reason = f"it does more than its owner has agreed to: {', '.join(news)}"
            return Condition(
                "unconfirmed", reason, f"to agree, run nanobot plugins enable {plugin.id}"
            )
        return None


def agree(home: Path, plugins: Iterable[InstalledPlugin]) -> Consents:
    """Keep that the owner agrees to all that these plugins do now; return the record. Blocks.

    Raises:
        PluginError: the record is damaged, or cannot be written.
    """
    consents = Consents.load(home)
    found = {
        plugin.id: frozenset(plugin.manifest.reaches)
        for plugin in plugins
        if plugin.manifest is not None
    }
    if not found:
        return consents
    file = home / _FILE
    if consents.problem:
        raise PluginError(min(found), consents.problem, f"restore {file}, or remove it")
    agreed = {**consents.agreed, **found}
    text = json.dumps({key: sorted(keys) for key, keys in sorted(agreed.items())}, indent=1)
    try:
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        replace_file(file, f"{text}\n")
    except OSError as error:
        reason = f"what it does cannot be recorded in {file}: {error}"
        raise PluginError(min(found), reason, "see the message") from error
    return Consents(agreed)
