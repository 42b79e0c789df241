"""Books: what was spent, what may be spent, and the messages about both."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from nanobot_core import BudgetExceeded, BudgetsSettings, LimitError, finish_in_thread
from nanobot_usage.settings import UsageSettings
from nanobot_usage.spent import NANO_PER_USD, Spent, nano_usd_of
from nanobot_usage.store import Call, UsageStore

if TYPE_CHECKING:
    from nanobot_core import Budget, PluginContext, TurnInfo, Usage, UsageRecorded

WARN_AT = 0.8
"""Part of a budget at which the owner is warned and the economy model steps in."""
GATHER_S = 0.2
"""Seconds from one write of calls to the next. One that comes after a rest is written at once."""
MAX_UNSTORED = 10_000
"""Calls that are kept in memory while the store cannot be written; the oldest are lost beyond."""

MAX_PARENTS = 1_000
"""Sessions of work whose parents are known."""


@dataclass(frozen=True, slots=True)
class BudgetState:
    """One budget and how much of it is used.

    Attributes:
        scope: ``turn``, ``session`` or ``day``.
        key: which turn, session or day.
        part: used part, from 0; 1 and more means used up.
        used: the used amount in words.
        limit: the budget in words.
    """

    scope: str
    key: str
    part: float
    used: str
    limit: str


@dataclass(slots=True)
class _TurnAccount:
    """A turn under way.

    Attributes:
        session: its session.
        parents: the sessions for which it works: that of the turn that gave the work, and so on.
        recorded: what its calls in the store have spent.
        ahead: calls that were answered and are not in the store yet, oldest first. The core
            reports a call after it has answered it; a budget must not be overrun meanwhile.
    """

    session: str
    parents: tuple[str, ...] = ()
    recorded: Spent = field(default_factory=Spent)
    ahead: list[Spent] = field(default_factory=list)
    is_warned: bool = False

    @property
    def waiting(self) -> Spent:
        return sum(self.ahead, Spent())


class Books:
    """The books of one application. Made by ``ctx.shared(Books)`` in a thread, since it blocks.

    Raises:
        sqlite3.Error: the store cannot be opened.
        StoreTooNewError: a later release wrote it.

    Attributes:
        settings: the plugin's settings.
        has_budget: whether the owner has set any budget.
        counts_turns: whether anything depends on what a turn under way has spent.
    """

    def __init__(self, ctx: PluginContext) -> None:
        self.settings = ctx.settings(UsageSettings)
        self._budgets = ctx.settings(BudgetsSettings)
        self.has_budget: bool = any(
            budget.tokens is not None or budget.usd is not None
            for budget in (self._budgets.turn, self._budgets.session, self._budgets.day)
        )
        self.counts_turns: bool = self.has_budget or self.settings.footer
        self._ctx = ctx
        self._store = UsageStore(ctx.data_dir)
        self._turns: dict[str, _TurnAccount] = {}
        self._parents: dict[str, tuple[str, ...]] = {}
        """By session of work; work that it has given may begin after its turn."""
        self._unstored: list[Call] = []
        self._storing = asyncio.Lock()
        self._is_to_store = False
        self._gathers_until_s = ctx.clock.monotonic_s()

    def record(self, event: UsageRecorded) -> None:
        """Count one call, and store it together with those that follow soon."""
        account = self._turns.get(event.turn_id or "")
        call = Call(
            day=self._today(),
            model=event.model,
            session=event.session_key,
            source=event.source,
            plugin=event.plugin,
            prompt_tokens=event.usage.prompt_tokens,
            completion_tokens=event.usage.completion_tokens,
            cached_tokens=event.usage.cached_tokens,
            reasoning_tokens=event.usage.reasoning_tokens,
            nano_usd=nano_usd_of(event.model, event.usage, self.settings.prices),
            parents=account.parents if account else (),
        )
        self._unstored.append(call)
        if account is not None:
            account.recorded += call.spent
            del account.ahead[:1]
        if not self._is_to_store:
            self._is_to_store = True
            self._ctx.spawn(self._store_soon(), name="record")

    async def _store_soon(self) -> None:
        if not self.has_budget:  # else other processes on the same books must see each call
            clock = self._ctx.clock
            await clock.sleep(self._gathers_until_s - clock.monotonic_s())
            self._gathers_until_s = clock.monotonic_s() + GATHER_S
        await self.store_all()

    async def store_all(self) -> None:
        """Store every counted call.

        Raises:
            sqlite3.Error: it cannot be written; where that may pass, the calls are kept.
        """
        async with self._storing:
            await self._write()

    async def aclose(self) -> None:
        """Store every counted call, and close the store.

        Raises:
            sqlite3.Error: it cannot be written.
        """
        try:
            await self.store_all()
        finally:
            await asyncio.to_thread(self._store.close)

    def counts(self, turn: TurnInfo) -> bool:
        """Whether calls of a turn must be counted before they are recorded."""
        return self.counts_turns or _parent_of(turn) is not None

    def open_turn(self, turn: TurnInfo) -> None:
        """Note for whom a turn works, so that `record` knows it."""
        self._account(turn)

    def count_ahead(self, turn: TurnInfo, model: str, usage: Usage) -> None:
        """Count an answered call until `record` receives it."""
        nano_usd = nano_usd_of(model, usage, self.settings.prices) or 0
        self._account(turn).ahead.append(Spent(usage.total_tokens, nano_usd))

    def close_turn(self, turn: TurnInfo) -> None:
        """Forget a turn that has ended."""
        self._turns.pop(turn.id, None)

    def spent_in_turn(self, turn: TurnInfo) -> Spent:
        """Return what a turn under way has spent."""
        account = self._account(turn)
        return account.recorded + account.waiting

    async def demand(self, turn: TurnInfo) -> None:
        """Check that another call is within every budget.

        Raises:
            BudgetExceeded: one is used up.
            LimitError: budgets are set and cannot be compared with what was spent.
        """
        if not self.has_budget:
            return
        try:
            states = await self.states(turn)
        except sqlite3.Error as error:
            msg = (
                f"budgets are set, and the record of usage cannot be read ({error}); fix it or "
                "remove the budgets to continue"
            )
            raise LimitError(msg) from error
        for state in states:
            if state.part >= 1:
                raise BudgetExceeded(state.scope, state.used, state.limit)

    async def economy_model(self, turn: TurnInfo) -> str | None:
        """Return the economy model if 80% of a budget are spent."""
        is_short = any(state.part >= WARN_AT for state in await self.states(turn))
        return self.settings.economy_model if is_short else None

    async def warnings(self, turn: TurnInfo) -> list[str]:
        """Return a sentence for each budget of which 80% are spent, each once; log it as well."""
        sentences = []
        for state in await self.states(turn):
            if WARN_AT <= state.part < 1 and await self._is_first(state, turn):
                sentence = (
                    f"{state.part:.0%} of the {state.scope} budget are used "
                    f"({state.used} of {state.limit})"
                )
                bound = self._ctx.logger.bind(turn=turn.id, session=turn.session_key)
                bound.warning("budget: {}", sentence)
                sentences.append(sentence)
        return sentences

    async def states(self, turn: TurnInfo) -> list[BudgetState]:
        """Return every budget that is set, for a turn."""
        if not self.has_budget:
            return []
        day, account = self._today(), self._account(turn)
        sessions = (account.session, *account.parents)
        keys = [*(("session", key) for key in sessions), ("day", day)]
        async with self._storing:
            await self._write()
            stored = await asyncio.to_thread(lambda: {key: self._store.total(*key) for key in keys})
        # What has come since is not in the store: nothing is stored while it is read.
        ahead = [((each.session, *each.parents), each.waiting) for each in self._turns.values()]
        ahead += [(call.payers, call.spent) for call in self._unstored]
        states = [*_states("turn", turn.id, self._budgets.turn, self.spent_in_turn(turn))]
        for scope, key in keys:
            found = (spent for payers, spent in ahead if scope == "day" or key in payers)
            budget = self._budgets.day if scope == "day" else self._budgets.session
            states += _states(scope, key, budget, sum(found, stored[scope, key]))
        return states

    async def _write(self) -> None:
        """Write the calls that are not stored yet; the caller holds the lock."""
        self._is_to_store = False
        calls, self._unstored = self._unstored, []
        if not calls:
            return
        await finish_in_thread(partial(self._add, calls))

    def _add(self, calls: list[Call]) -> None:
        try:
            self._store.add(calls)
        except sqlite3.OperationalError:  # the disk is full, or another process holds the file
            self._unstored[:0] = calls  # one step, because the event loop appends meanwhile
            del self._unstored[:-MAX_UNSTORED]
            raise

    async def _is_first(self, state: BudgetState, turn: TurnInfo) -> bool:
        if state.scope != "turn":
            return await asyncio.to_thread(self._store.mark_warned, state.scope, state.key)
        account = self._account(turn)
        was_warned, account.is_warned = account.is_warned, True
        return not was_warned

    def _account(self, turn: TurnInfo) -> _TurnAccount:
        if turn.id not in self._turns:
            self._turns[turn.id] = _TurnAccount(turn.session_key, self._parents_of(turn))
        return self._turns[turn.id]

    def _parents_of(self, turn: TurnInfo) -> tuple[str, ...]:
        """Return the sessions for which a turn works, and note them for the work that it gives."""
        if (parent := _parent_of(turn)) is None:
            return ()
        found = dict.fromkeys((parent, *self._parents.get(parent, ())))
        found.pop(turn.session_key, None)
        self._parents[turn.session_key] = tuple(found)
        while len(self._parents) > MAX_PARENTS:
            del self._parents[next(iter(self._parents))]
        return tuple(found)

    def _today(self) -> str:
        return self._ctx.clock.now().date().isoformat()


def _parent_of(turn: TurnInfo) -> str | None:
    """Return the session that has given the work of a turn and pays for it, if any."""
    return turn.assignment.parent if turn.assignment else None


def _states(scope: str, key: str, budget: Budget, spent: Spent) -> Iterator[BudgetState]:
    if budget.tokens is not None:
        part = spent.tokens / budget.tokens if budget.tokens else 1.0
        yield BudgetState(scope, key, part, f"{spent.tokens:,}", f"{budget.tokens:,} tokens")
    if budget.usd is not None:
        part = spent.nano_usd / (budget.usd * NANO_PER_USD) if budget.usd else 1.0
        yield BudgetState(scope, key, part, f"${spent.usd:.4f}", f"${budget.usd:g}")
