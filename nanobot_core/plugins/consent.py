"""What the owner has agreed that plugins do, and what is refused while a plugin does not run.

A plugin that does more than before waits for its owner's consent. Skipping a policy because its
plugin is broken would allow what the owner forbids. Until the plugin runs, or its owner disables or
removes it, its gates and its critical hooks refuse; all gates refuse if its hooks are unknown.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from nanobot_core.disk import replace_file
from nanobot_core.errors import PluginError
from nanobot_core.hooks.account import Circuit
from nanobot_core.hooks.caller import GATES, declared_hooks
from nanobot_core.hooks.compilation import of_hook
from nanobot_core.hooks.implementation import Implementation
from nanobot_core.hooks.kinds import Kind
from nanobot_core.hooks.markers import ImplementationOptions
from nanobot_core.plugins.health import Condition
from nanobot_core.plugins.index import InstalledPlugin
from nanobot_core.plugins.manifest import CRITICAL, holds
from nanobot_core.record import dataclass

if TYPE_CHECKING:
    from nanobot_core.config.models import Settings
    from nanobot_core.plugins.catalogue import Catalogue, Selection

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
        if plugin.bundled or not is_known:
            return ()
        known = self.agreed.get(plugin.id, frozenset())
        news = [words for key, words in plugin.gives.reaches.items() if key not in known]
        return tuple(dict.fromkeys(news))

    def obstacle_of(self, plugin: InstalledPlugin) -> Condition | None:
        """Return what keeps a plugin out that does what the owner has not agreed to."""
        news = self.news_of(plugin)
        if news and self.problem:
            return Condition("unconfirmed", self.problem, "restore that file, or remove it")
        if news:
            reason = f"it does more than its owner has agreed to: {', '.join(news)}"
            remedy = f"to agree, run nanobot plugins enable {plugin.id}; a chat cannot agree to it"
            return Condition("unconfirmed", reason, remedy)
        return None


def agree(home: Path, plugins: Iterable[InstalledPlugin]) -> Consents:
    """Keep that the owner agrees to all that these plugins do now; return the record. Blocks.

    Raises:
        PluginError: the record is damaged, or cannot be written.
    """
    found = {
        plugin.id: frozenset(plugin.manifest.reaches)
        for plugin in plugins
        if plugin.manifest is not None
    }
    return _record(home, found, ())


def forget(home: Path, plugin_ids: Collection[str]) -> Consents:
    """Drop what the owner has agreed to for plugins that are removed. Blocks.

    Raises:
        PluginError: as `agree`.
    """
    return _record(home, {}, plugin_ids)


def consent_file(home: Path) -> Path:
    """Return the path of the record in nanobot's folder."""
    return home / _FILE


def _record(home: Path, found: Mapping[str, frozenset[str]], dropped: Collection[str]) -> Consents:
    consents = Consents.load(home)
    concerned = [*found, *(each for each in dropped if each in consents.agreed)]
    if not concerned:
        return consents
    file = home / _FILE
    if consents.problem:
        raise PluginError(min(concerned), consents.problem, f"restore {file}, or remove it")
    kept = {key: keys for key, keys in consents.agreed.items() if key not in dropped}
    agreed = {**kept, **found}
    text = json.dumps({key: sorted(keys) for key, keys in sorted(agreed.items())}, indent=1)
    try:
        replace_file(file, f"{text}\n")
    except OSError as error:
        reason = f"what it does cannot be recorded in {file}: {error}"
        raise PluginError(min(concerned), reason, "see the message") from error
    return Consents(agreed)


_FAILED = frozenset({"failed", "settings-error", "quarantined"})
"""States in which a plugin that was started does not run; in the others it continues."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClosedPlugin:
    """A plugin that does not run, and whose work must not be left out.

    Attributes:
        id: its id.
        hooks: names of the hooks that refuse, sorted.
        is_known: it has these hooks; else it may have them.
        why: why it does not run, and what makes it run.
    """

    id: str
    hooks: tuple[str, ...]
    is_known: bool
    why: Condition

    @property
    def effect(self) -> str:
        """What is refused, in one clause."""
        refused = dict.fromkeys(f"every {declared_hooks()[hook].judges}" for hook in self.hooks)
        return f"{' and '.join(refused)} is refused until it runs"

    @property
    def sentence(self) -> str:
        """What is refused, why, and how to end that: for the log, the model and the user."""
        say = "it judges them" if self.is_known else "it may judge them"
        ways = [self.why.remedy, f"to do without it, run nanobot plugins disable {self.id}"]
        return (
            f"plugin '{self.id}' does not run: {self.why.reason}; {self.effect}, because {say}; "
            f"{'; '.join(filter(None, ways))}"
        )

    def implementations(self) -> Iterator[tuple[str, Implementation]]:
        """Yield by hook the implementation that refuses until the plugin runs."""
        # A platform would offer a message again and again that cannot be rewritten.
        for hook in {"admit_message" if each == "rewrite_inbound" else each for each in self.hooks}:
            yield (
                hook,
                Implementation(
                    plugin=self.id,
                    hook=hook,
                    function=partial(self._refuse, hook),
                    options=ImplementationOptions(critical=True),
                    # Its circuit is never open, so that each refusal gives the reason.
                    circuit=Circuit(lambda: math.inf),
                ),
            )

    def _refuse(self, hook: str, _event: object) -> object:
        refuse = declared_hooks()[hook].refuse
        if refuse is None:
            raise RuntimeError(self.sentence)
        return refuse(self.id, self.sentence)


def closed_plugins(
    catalogue: Catalogue,
    conditions: Mapping[str, Condition],
    active: Collection[str],
    settings: Settings,
) -> dict[str, ClosedPlugin]:
    """Return by id the plugins that refuse what they would judge, because they do not run.

    Args:
        catalogue: what is installed and what of it the owner wants.
        conditions: what is wrong with plugins, as far as they were started.
        active: ids of the plugins that judge themselves.
        settings: those in force.
    """
    agreed = catalogue.consents.agreed
    failed = {key: each for key, each in conditions.items() if each.state in _FAILED}
    found: list[ClosedPlugin] = []

    def close(
        plugin_id: str, hooks: Iterable[str], why: Condition, *, is_known: bool = True
    ) -> None:
        failures = settings.plugins.failures
        left = {hook for hook in hooks if of_hook(failures, plugin_id, hook) != "open"}
        if refusing := tuple(sorted(left)):
            found.append(ClosedPlugin(id=plugin_id, hooks=refusing, is_known=is_known, why=why))

    for plugin_id, selection in catalogue.selections.items():
        condition = failed.get(plugin_id)
        is_out = selection.wanted and (condition is not None or not selection.enabled)
        if is_out and plugin_id not in active:
            hooks = _judges(selection, condition, agreed.get(plugin_id), settings)
            why = condition if selection.enabled and condition else selection.condition
            close(plugin_id, hooks, why, is_known=selection.plugin.manifest is not None)
    for missing in catalogue.lost():
        known = agreed.get(missing.plugin.id)
        hooks = GATES if known is None else _agreed_judges(known)
        close(missing.plugin.id, hooks, missing.condition, is_known=known is not None)
    for plugin_id, condition in failed.items():
        if plugin_id not in {*catalogue.selections, *active}:  # a program has registered it
            close(plugin_id, condition.judges, condition)
    return {closed.id: closed for closed in found}


def _judges(
    selection: Selection,
    condition: Condition | None,
    agreed: Collection[str] | None,
    settings: Settings,
) -> Collection[str]:
    manifest = selection.plugin.manifest
    if selection.condition.state == "unconfirmed" and agreed is not None:
        # What it judges since then is not in force before its owner agrees.
        return _agreed_judges(agreed)
    if manifest is None:
        return GATES
    points, failures = declared_hooks(), settings.plugins.failures
    judging = manifest.judges | {
        hook
        for hook in manifest.hooks
        if hook in points
        and points[hook].kind is Kind.CHAIN
        and of_hook(failures, manifest.id, hook) == "closed"
    }
    found = {hook for hook in judging if holds(manifest.when.get(hook, ""), settings)}
    return found | (condition.judges if condition else frozenset())


def _agreed_judges(keys: Collection[str]) -> frozenset[str]:
    """Return the hooks as in `Manifest.judges` among the keys of `Manifest.reaches`."""
    critical = (key.removeprefix(CRITICAL) for key in keys if key.startswith(CRITICAL))
    return GATES.intersection(keys).union(critical)
