"""The condition of plugins: reports, failures, and code that blocks the event loop."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, field, replace
from types import FrameType, ModuleType
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

from nanobot_core.errors import HookError, PluginError
from nanobot_core.hooks.account import FAILURES_TO_OPEN, PluginCosts
from nanobot_core.hooks.compilation import Registrant
from nanobot_core.hooks.implementation import called_in
from nanobot_core.record import dataclass

if TYPE_CHECKING:
    from nanobot_core.hooks.compilation import HookStats
    from nanobot_core.plugins.catalogue import Selection


State: TypeAlias = Literal[
    "enabled",
    "isolated",
    "disabled",
    "incompatible",
    "settings-error",
    "failed",
    "active",
    "degraded",
    "quarantined",
    "draining",
    "restart-required",
    "unconfirmed",
    "not-installed",
]


class Condition(NamedTuple):
    """The state of a plugin: as the catalogue selects it, or in a running host.

    Attributes:
        state: one word.
        reason: why, in one sentence.
        remedy: what to do, or an empty string.
        judges: hooks as in `Manifest.judges` that it was found to have, whatever its manifest says.
        is_stale: it continues as it was, because its last change failed.
    """

    state: State
    reason: str
    remedy: str = ""
    judges: frozenset[str] = frozenset()
    is_stale: bool = False


QUIET_STATES = frozenset({"active", "enabled", "isolated", "disabled"})
"""States of a plugin that is as its owner wants it."""
RELOAD = "run nanobot plugins reload {}, or nanobot gateway restart"
"""How new code of a plugin takes effect."""
OPENINGS_TO_QUARANTINE = 3
QUARANTINE_WINDOW_S = 3_600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class HookReport:
    """One hook of one plugin: its account and the state of its circuit."""

    hook: str
    circuit: str
    calls: int
    errors: int
    timeouts: int
    skipped: int
    dropped: int
    total_s: float
    worst_s: float
    blocked_s: float
    last_error: str


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
        costs: what it costs besides.
        tool_tokens: estimated tokens of its tools in each request that offers all of them.
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
    costs: PluginCosts = field(default_factory=PluginCosts)
    tool_tokens: int = 0

    @property
    def line(self) -> str:
        """Its state and what it costs, in one line for people."""
        calls = sum(hook.calls for hook in self.hooks)
        errors = sum(hook.errors + hook.timeouts for hook in self.hooks)
        total_ms = sum(hook.total_s for hook in self.hooks) * 1_000
        tokens = self.tool_tokens + self.costs.passage_tokens
        figures = [
            f"{_count(calls, 'call')} in {total_ms:,.0f} ms" if calls else "",
            _count(errors, "error") if errors else "",
            f"blocked everything for {self.costs.blocked_s:.1f} s" if self.costs.blocked_s else "",
            f"{tokens:,} tokens in each request" if tokens else "",
            f"prompt cache missed {_count(self.costs.cache_misses, 'time')}"
            if self.costs.cache_misses
            else "",
        ]
        head = f"{self.id} {self.version}".rstrip()
        return "; ".join(filter(None, (f"{head}: {self.state}", *figures)))


def _count(number: int, word: str) -> str:
    return f"{number:,} {word}{'' if number == 1 else 's'}"


def report_on(
    selection: Selection,
    condition: Condition | None,
    stats: HookStats | None,
    effect: str,
    tool_tokens: int = 0,
) -> PluginReport:
    """Return the report on a plugin.

    Args:
        selection: whether it may run.
        condition: its condition in a running host, or ``None`` if nothing is known there.
        stats: what it cost; ``None`` if it was not active.
        effect: what its failure means for others, in one clause, or an empty string.
        tool_tokens: see `PluginReport`.
    """
    plugin, manifest = selection.plugin, selection.plugin.gives
    gives: dict[str, list[str]] = {}
    for item in manifest.declarations:
        gives.setdefault(item.kind, []).append(item.name)
    found = condition or selection.condition
    return PluginReport(
        id=plugin.id,
        state=found.state,
        reason="; ".join(filter(None, (found.reason, effect))),
        version=plugin.version,
        distribution=plugin.distribution,
        remedy=found.remedy,
        summary=manifest.facts.summary or plugin.summary,
        gives=gives,
        capabilities=manifest.capabilities,
        hooks=figures_of(stats, plugin.id) if stats else (),
        costs=replace(stats.costs) if stats else PluginCosts(),
        tool_tokens=tool_tokens,
    )


def condition_of(plugin_id: str, hooks: Sequence[HookReport], reason: str) -> Condition:
    """Return the condition of an active plugin of which nothing else is known.

    Args:
        plugin_id: its id.
        hooks: figures of its hooks.
        reason: why it is active.
    """
    out = [hook for hook in hooks if hook.circuit != "closed"]
    if not out:
        return Condition("active", reason)
    reasons = ", ".join(f"{hook.hook}: {hook.last_error}" for hook in out)
    remedy = f"fix it, then {RELOAD.format(plugin_id)}"
    return Condition("degraded", f"left out after repeated failures ({reasons})", remedy)


def figures_of(stats: HookStats, plugin_id: str) -> tuple[HookReport, ...]:
    """Return the figures of those hooks of a plugin that were called."""
    return tuple(
        HookReport(hook=hook, circuit=circuit.state, **asdict(account))
        for (owner, hook), (account, circuit) in stats.accounts.items()
        if owner == plugin_id and account.calls
    )


class Conditions:
    """What is wrong with plugins, and how often each has failed.

    Logs each distinct failure once, then counts it. The third opening of a circuit within an hour
    is reported as a reason for quarantine.

    Args:
        now_s: monotonic seconds.
        quarantine: called with a plugin's id when it has failed too often.

    Attributes:
        by_id: the condition of each plugin that is not as its owner wants it.
    """

    def __init__(self, now_s: Callable[[], float], quarantine: Callable[[str], None]) -> None:
        self.by_id: dict[str, Condition] = {}
        self._now_s = now_s
        self._quarantine = quarantine
        self._seen: Counter[tuple[str, str, str]] = Counter()
        self._openings: dict[str, deque[float]] = {}
        self._blocks: Counter[tuple[str, str]] = Counter()

    def note(self, plugin_id: str, condition: Condition) -> None:
        """Record what is wrong with a plugin."""
        self.by_id[plugin_id] = condition

    def note_degraded(self, plugin_id: str, error: PluginError) -> None:
        """Record that a part of a plugin cannot be used."""
        self.note(plugin_id, Condition("degraded", error.reason, error.remedy))

    def is_current(self, plugin_id: str) -> None:
        """Forget that the last change of a plugin failed."""
        if (known := self.by_id.get(plugin_id)) is not None and known.is_stale:
            del self.by_id[plugin_id]

    def forget(self, plugin_id: str) -> None:
        """Start with a clean record: a plugin has new code, or its owner wants it back."""
        self.by_id.pop(plugin_id, None)
        self._openings.pop(plugin_id, None)
        for key in [key for key in self._seen if key[0] == plugin_id]:
            del self._seen[key]
        for block in [block for block in self._blocks if block[0] == plugin_id]:
            del self._blocks[block]

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
        if block.is_long or block.is_over:
            return  # It was reported when it began.
        from loguru import logger

        bound = logger.bind(plugin=block.plugin)
        if block.plugin:
            bound.warning("plugin '{}': {}; {}", block.plugin, block.reason, _UNBLOCK)
        else:
            bound.debug("the event loop is blocked at {}", block.place)

    def note_block(self, block: LoopBlock, stats: HookStats) -> None:
        """Count a block of the event loop; each third long one opens the hook's circuit."""
        account, circuit = stats.accounts.get((block.plugin, block.hook), (None, None))
        if block.is_over:
            stats.costs.blocked_s += block.blocked_s
            if account is not None:
                account.blocked_s += block.blocked_s
            return
        self.note(block.plugin, Condition("degraded", block.reason, _UNBLOCK))
        if not block.is_long:
            return
        self._blocks[block.plugin, block.hook] += 1
        if self._blocks[block.plugin, block.hook] % FAILURES_TO_OPEN:
            return
        if account is None or circuit is None:
            # A tool or a task of its own has no circuit, and counts against the plugin itself.
            self.circuit_opened(block.plugin)
            return
        account.last_error = block.reason
        circuit.failures = max(circuit.failures, FAILURES_TO_OPEN)
        circuit.failed()

    def circuit_opened(self, plugin_id: str) -> None:
        """Count an opening; the third within an hour puts the plugin into quarantine."""
        times = self._openings.setdefault(plugin_id, deque(maxlen=OPENINGS_TO_QUARANTINE))
        times.append(self._now_s())
        if len(times) == OPENINGS_TO_QUARANTINE and times[-1] - times[0] <= QUARANTINE_WINDOW_S:
            times.clear()
            self._quarantine(plugin_id)


_UNBLOCK = "await it, run it in a thread, or mark the hook blocking=True"
LOOK_S = 1.5
"""Seconds between two looks at the loop: an idle agent should not keep its processor awake."""
BLOCKED_AFTER_S = 0.25
LONG_AFTER_S = 1.0
"""Seconds from which a block counts as a failure of the plugin."""
_RUN_ONCE = asyncio.BaseEventLoop._run_once.__code__  # type: ignore[attr-defined]  # noqa: SLF001
"""One pass of asyncio's own loop; another loop is asked for an answer at each look."""


@dataclass(frozen=True, slots=True)
class LoopBlock:
    """A time in which the loop did not run.

    Attributes:
        plugin: id of the plugin whose code was running, or an empty string.
        place: ``file:line`` of the innermost frame of that plugin, else of the loop's thread.
        blocked_s: seconds so far.
        hook: the hook that was being called, or an empty string: a tool, a task, a handler.
        is_over: the loop runs again.
    """

    plugin: str
    place: str
    blocked_s: float
    hook: str = ""
    is_over: bool = False

    @property
    def is_long(self) -> bool:
        """Whether it counts as a failure."""
        return not self.is_over and self.blocked_s >= LONG_AFTER_S

    @property
    def reason(self) -> str:
        """What happened, in one sentence."""
        return f"it blocks the event loop for {self.blocked_s:.1f} s or more at {self.place}"


def code_place(registrant: Registrant) -> str | None:
    """Return the folder of a plugin's package, else its file, else ``None``.

    For objects of the core it is the file: the rest of the core is not theirs.
    """
    namespace = registrant.namespace
    name = namespace.__name__ if isinstance(namespace, ModuleType) else type(namespace).__module__
    package = name.partition(".")[0]
    is_core = package == __name__.partition(".")[0]
    folders = [] if is_core else list(getattr(sys.modules.get(package), "__path__", ()))
    return folders[0] if folders else getattr(sys.modules.get(name), "__file__", None)


class LoopWatch:
    """A thread that looks at the loop, and asks it for an answer while it is busy.

    A loop that waits for events is not asked.

    Args:
        places: by plugin id, the folder or the file of its code, absolute.
        on_block: called from the thread, once for each stretch, again when it gets long, and when
            it is over.
    """

    def __init__(
        self, places: Callable[[], Mapping[str, str]], on_block: Callable[[LoopBlock], None]
    ) -> None:
        self._places = places
        self._on_block = on_block
        self._stop = threading.Event()
        self._answered = threading.Event()
        self._loop_thread = 0

    async def run(self) -> None:
        """Watch until cancelled; the thread ends with it."""
        self._loop_thread = threading.get_ident()
        loop = asyncio.get_running_loop()
        thread = threading.Thread(
            target=self._watch, args=(loop,), name="nanobot-watch", daemon=True
        )
        thread.start()
        try:
            await loop.create_future()  # never done: until cancelled
        finally:
            self._stop.set()

    def _watch(self, loop: asyncio.AbstractEventLoop) -> None:
        while not self._stop.wait(LOOK_S):
            if self._is_waiting():
                continue
            self._answered.clear()
            with suppress(RuntimeError):  # the loop is closed, and this about to be stopped
                loop.call_soon_threadsafe(self._answered.set)
                self._await_answer(time.monotonic())

    def _await_answer(self, asked_s: float) -> None:
        """Wait for the loop's answer, and report if it does not come."""
        found = None
        for limit_s in (BLOCKED_AFTER_S, LONG_AFTER_S):
            if self._answered.wait(asked_s + limit_s - time.monotonic()):
                break
            found = self._locate(self._frame(), time.monotonic() - asked_s)
            self._on_block(found)
        while not self._answered.wait(LOOK_S) and not self._stop.is_set():
            pass
        if found is not None and not self._stop.is_set():
            blocked_s = time.monotonic() - asked_s
            self._on_block(replace(found, blocked_s=blocked_s, is_over=True))

    def _is_waiting(self) -> bool:
        """Return whether the loop waits for events itself, and not some code that it called."""
        frame = self._frame()
        if frame is None or frame.f_back is None or frame.f_code.co_name != "select":
            return False
        return frame.f_back.f_code is _RUN_ONCE

    def _frame(self) -> FrameType | None:
        return sys._current_frames().get(self._loop_thread)  # noqa: SLF001 - the only way

    def _locate(self, frame: FrameType | None, blocked_s: float) -> LoopBlock:
        places = self._places()
        innermost = f"{frame.f_code.co_filename}:{frame.f_lineno}" if frame else "unknown"
        while frame is not None:
            file = frame.f_code.co_filename
            for plugin, place in places.items():
                if file == place or file.startswith(place + os.sep):
                    at = f"{file}:{frame.f_lineno}"
                    return LoopBlock(plugin, at, blocked_s, _hook_above(frame, plugin))
            frame = frame.f_back
        return LoopBlock("", innermost, blocked_s)


def _hook_above(frame: FrameType | None, plugin: str) -> str:
    """Return the hook of `plugin` whose call `frame` is part of, or an empty string."""
    while frame is not None:
        called = called_in(frame)
        if called is not None and called.plugin == plugin:
            return called.hook
        frame = frame.f_back
    return ""
