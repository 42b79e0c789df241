"""What the host knows of each plugin's condition, and what it tells of failures."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

from nanobot_core.errors import HookError

if TYPE_CHECKING:
    from nanobot_core.hooks.account import Account
    from nanobot_core.hooks.generation import Ledger
    from nanobot_core.plugins.selection import Missing, Selection, State
    from nanobot_core.plugins.watch import LoopBlock


class Condition(NamedTuple):
    """How a plugin is in a running host, where that differs from its selection.

    Attributes:
        state: one word.
        reason: why, in one sentence.
        remedy: what to do, or an empty string.
        gates: gates that it was found to have, whatever its manifest says.
    """

    state: State
    reason: str
    remedy: str = ""
    gates: frozenset[str] = frozenset()


QUIET_STATES = frozenset({"active", "found", "isolated", "disabled"})
"""States of a plugin that is as its owner wants it."""
RELOAD = "send /plugins reload {} to the gateway, or restart nanobot"
"""How new code of a plugin takes effect."""
OPENINGS_TO_QUARANTINE = 3
QUARANTINE_WINDOW_S = 3_600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class HookReport:
    """One hook of one plugin: its account and the state of its circuit."""

    hook: str
    calls: int
    errors: int
    timeouts: int
    skipped: int
    total_s: float
    worst_s: float
    circuit: str
    last_error: str

    @classmethod
    def of(cls, hook: str, account: Account, circuit: str) -> HookReport:
        """Return the present figures of `account`."""
        return cls(
            hook=hook,
            calls=account.calls,
            errors=account.errors,
            timeouts=account.timeouts,
            skipped=account.skipped,
            total_s=account.total_s,
            worst_s=account.worst_s,
            circuit=circuit,
            last_error=account.last_error,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginReport:
    """A plugin's condition, as ``plugins list``, ``status`` and ``doctor`` show it.

    Attributes:
        id: the plugin's id.
        version: version of its distribution; empty when it is not installed.
        distribution: name of the distribution.
        state: one word.
        reason: why, in one sentence.
        remedy: what to do, or an empty string.
        summary: what it is.
        gives: contributions as ``kind: names``.
        capabilities: what it reaches.
        hooks: figures of its hooks, empty while it is not active.
    """

    id: str
    state: State
    reason: str
    version: str = ""
    distribution: str = ""
    remedy: str = ""
    summary: str = ""
    gives: dict[str, list[str]] = field(default_factory=dict)
    capabilities: tuple[str, ...] = ()
    hooks: tuple[HookReport, ...] = ()


@dataclass(frozen=True, slots=True)
class Reporter:
    """Makes the reports of one moment.

    Attributes:
        conditions: by plugin id, those from a running host.
        figures: those of their hooks.
        effects: what a plugin's failure means for others, in one clause.
    """

    conditions: Mapping[str, Condition]
    figures: Mapping[str, Sequence[HookReport]]
    effects: Mapping[str, str]

    def of_installed(self, selection: Selection) -> PluginReport:
        """Return the report on an installed plugin."""
        plugin = selection.plugin
        chosen = Condition(selection.state, selection.reason, selection.remedy)
        if selection.enabled and plugin.manifest is None:
            chosen = chosen._replace(state="undescribed")
        gives: dict[str, list[str]] = {}
        for item in plugin.manifest.declarations if plugin.manifest else ():
            gives.setdefault(item.kind, []).append(item.name)
        return replace(
            self._report(plugin.id, self.conditions.get(plugin.id, chosen)),
            version=plugin.version,
            distribution=plugin.distribution,
            summary=plugin.summary,
            gives=gives,
            capabilities=plugin.manifest.capabilities if plugin.manifest else (),
        )

    def of_registered(self, plugin_id: str) -> PluginReport:
        """Return the report on a plugin that the program registered."""
        condition = self.conditions.get(plugin_id, Condition("disabled", "withdrawn"))
        if condition.state == "active":
            condition = condition._replace(reason="registered by the program")
        return self._report(plugin_id, condition)

    def of_missing(self, missing: Missing) -> PluginReport:
        """Return the report on a plugin that is named and not installed."""
        condition = Condition("not-installed", "named in the configuration", missing.remedy)
        return self._report(missing.id, condition)

    def _report(self, plugin_id: str, condition: Condition) -> PluginReport:
        reasons = filter(None, (condition.reason, self.effects.get(plugin_id)))
        return PluginReport(
            id=plugin_id,
            state=condition.state,
            reason="; ".join(reasons),
            remedy=condition.remedy,
            hooks=tuple(self.figures.get(plugin_id, ())),
        )


def condition_of(plugin_id: str, hooks: Sequence[HookReport]) -> Condition:
    """Return the condition of an active plugin of which nothing else is known."""
    out = [hook for hook in hooks if hook.circuit != "closed"]
    if not out:
        return Condition("active", "started")
    reasons = ", ".join(f"{hook.hook}: {hook.last_error}" for hook in out)
    remedy = f"fix it, then {RELOAD.format(plugin_id)}"
    return Condition("degraded", f"left out after repeated failures ({reasons})", remedy)


def figures_of(ledger: Ledger, plugin_id: str) -> tuple[HookReport, ...]:
    """Return the figures of those hooks of a plugin that were called."""
    return tuple(
        HookReport.of(hook, account, circuit.state)
        for (owner, hook), (account, circuit) in ledger.accounts.items()
        if owner == plugin_id and account.calls
    )


class FailureLog:
    """Tells each distinct failure once, then counts; watches how often circuits open.

    Args:
        now_s: monotonic seconds.
        quarantine: called with a plugin's id when it has failed too often.
    """

    def __init__(self, now_s: Callable[[], float], quarantine: Callable[[str], None]) -> None:
        self._now_s = now_s
        self._quarantine = quarantine
        self._seen: Counter[tuple[str, str, str]] = Counter()
        self._openings: dict[str, deque[float]] = {}
        self._blocks: Counter[tuple[str, str]] = Counter()

    def report(self, error: HookError) -> None:
        """Log `error` with its plugin's name, in full only the first time."""
        from loguru import logger

        key = (error.plugin, error.hook, type(error.__cause__).__name__)
        self._seen[key] += 1
        bound = logger.bind(plugin=error.plugin)
        if self._seen[key] == 1:
            bound.warning("{}", error)
            bound.opt(exception=error.__cause__).debug("traceback of the failure above")
        else:
            bound.debug("{} (time {})", error, self._seen[key])

    def report_block(self, block: LoopBlock) -> None:
        """Log that a plugin blocks the event loop; callable from any thread."""
        if block.is_long:
            return  # It was told when it began.
        from loguru import logger

        bound = logger.bind(plugin=block.plugin)
        if block.plugin:
            bound.warning("plugin '{}': {}; {}", block.plugin, block.reason, block.remedy)
        else:
            bound.debug("the event loop is blocked at {}", block.place)

    def count_block(self, block: LoopBlock) -> int:
        """Return how many long blocks of the event loop this is, of that plugin and hook."""
        self._blocks[block.plugin, block.hook] += 1
        return self._blocks[block.plugin, block.hook]

    def forget(self, plugin: str) -> None:
        """Begin a plugin's record anew: it comes with other code, or its owner wants it back."""
        self._openings.pop(plugin, None)
        for key in [key for key in self._seen if key[0] == plugin]:
            del self._seen[key]
        for block in [block for block in self._blocks if block[0] == plugin]:
            del self._blocks[block]

    def circuit_opened(self, plugin: str) -> None:
        """Count an opening; the third within an hour puts the plugin into quarantine."""
        times = self._openings.setdefault(plugin, deque(maxlen=OPENINGS_TO_QUARANTINE))
        times.append(self._now_s())
        if len(times) == OPENINGS_TO_QUARANTINE and times[-1] - times[0] <= QUARANTINE_WINDOW_S:
            times.clear()
            self._quarantine(plugin)
