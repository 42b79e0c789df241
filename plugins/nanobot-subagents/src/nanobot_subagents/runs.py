"""Runs: starts the runs of one application within their limits, and reports their results."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from nanobot_core import BusError, SessionError, ToolFailed, finish_in_thread
from nanobot_subagents.result import (
    STOPPED,
    TIME_USED_UP,
    Ending,
    bounded_result,
    ending_of,
    remove_result,
    render_report,
)
from nanobot_subagents.run import PLUGIN, Run, run_of
from nanobot_subagents.settings import SubagentsSettings
from nanobot_subagents.store import RunStore

if TYPE_CHECKING:
    from nanobot_core import Assignment, AssignmentFinished, PluginContext, TurnOutcome

RETRY_S = 30.0
"""Seconds until a result that the queue did not take is given again."""
SHOW_LIMIT_S = 1.0
"""Seconds to show a line. Hooks, which wait for it, have four."""
LOST_AFTER_S = 60.0
"""Seconds after the time limit of a run in which its end must be reported."""
LEFT = Ending("stopped", "the process ended while it was running")


@dataclass(slots=True)
class _Waiting:
    """A run that waits for a place; `woken` is set for a caller that waits too."""

    woken: asyncio.Event | None


class Runs:
    """The runs of one application: ``ctx.shared(Runs)``.

    Several processes may share the files, as each changes only those of its own runs.

    Attributes:
        settings: the plugin's settings.
    """

    def __init__(self, ctx: PluginContext) -> None:
        self.settings: SubagentsSettings = ctx.settings(SubagentsSettings)
        self._ctx = ctx
        self._log = ctx.logger
        self._store = RunStore(ctx)
        self._known: dict[str, Run] = {}
        self._is_loaded = False
        self._loading = asyncio.Lock()
        self._starting = asyncio.Lock()
        self._writing = asyncio.Lock()
        self._waiting: dict[str, _Waiting] = {}
        """In the order in which they get places."""
        self._since: dict[str, float] = {}
        """When each running one started, by the monotonic clock."""
        self._reporting = asyncio.Lock()
        self._work: dict[str, asyncio.Task[TurnOutcome]] = {}
        self.changed: asyncio.Event = asyncio.Event()

    async def load(self) -> None:
        """Read the stored runs, once.

        Raises:
            OSError: they cannot be read.
        """
        async with self._loading:
            if not self._is_loaded:
                stored = await asyncio.to_thread(self._store.load)
                self._known = {run.id: run for run in stored} | self._known
                self._is_loaded = True
                await self._end_left()

    async def _end_left(self) -> None:
        """End the calls of ``delegate`` that a killed process left behind."""
        limit = timedelta(seconds=self.settings.timeout_s + LOST_AFTER_S)
        oldest = self._ctx.clock.now() - limit
        for run in tuple(self._known.values()):
            if run.kind == "delegate" and not run.has_ended and run.created_at < oldest:
                await self._end(run, LEFT)

    async def all(self) -> list[Run]:
        """Return the known runs, newest first."""
        await self.load()
        return sorted(self._known.values(), key=lambda run: run.created_at, reverse=True)

    def get(self, run_id: str) -> Run | None:
        """Return a run, or ``None`` if its id is unknown."""
        return self._known.get(run_id)

    # --- start -----------------------------------------------------------------------------

    async def spawn(self, run: Run) -> Run:
        """Store a run and let it start when there is a place; return it as it is then.

        Raises:
            ToolFailed: too many runs wait, or it cannot be stored.
        """
        await self._admit(run, None)
        await self.start_waiting()
        self.changed.set()
        return self._known[run.id]

    async def delegate(
        self, run: Run, show_start: Callable[[], Awaitable[None]] | None = None
    ) -> tuple[Run, TurnOutcome]:
        """Do the work of a run and return the run at its end, with the outcome.

        Args:
            run: a new run.
            show_start: is called when it has a place.

        Raises:
            ToolFailed: too many runs wait, it cannot be stored, it was stopped, or its time is up.

        Cancellation:
            The run is ended.
        """
        woken = asyncio.Event()
        await self._admit(run, woken)
        ending = Ending("stopped", "the call that waited for it was stopped")
        try:
            async with asyncio.timeout(self.settings.timeout_s):
                await self.start_waiting()
                await woken.wait()
                if show_start is not None:
                    await show_start()
                outcome = await self._do(run)
            ending = ending_of(self._known[run.id], outcome)
        except TimeoutError as error:
            ending = Ending("failed", TIME_USED_UP)
            limit = f"{self.settings.timeout_s:g} seconds"
            raise ToolFailed(f"the subagent did not finish within {limit}") from error
        except ToolFailed:
            ending = STOPPED
            raise
        except Exception as error:
            ending = Ending("failed", f"{type(error).__name__}: {error}")
            raise
        finally:
            ended = await self._end(self._known[run.id], ending)
        return ended, outcome

    async def start_waiting(self) -> None:
        """Start waiting runs for which there is a place, in their order."""
        async with self._starting:
            for run_id in tuple(self._waiting):
                run = self._known[run_id]
                if run_id in self._waiting and self._has_place(run) and not await self._start(run):
                    return

    async def _admit(self, run: Run, woken: asyncio.Event | None) -> None:
        await self.load()
        waiting = sum(1 for each in self._waiting if _competes(self._known[each], run))
        if waiting >= self.settings.max_waiting and not self._has_place(run):
            raise ToolFailed(
                f"{len(self._since)} subagents are running and {len(self._waiting)} are waiting, "
                "which is the limit; wait for results, or do this part yourself"
            )
        self._waiting[run.id] = _Waiting(woken)
        try:
            await self._put(run)
        except OSError as error:
            del self._waiting[run.id], self._known[run.id]
            raise ToolFailed(f"the run cannot be stored: {error.strerror}") from error

    def _has_place(self, run: Run) -> bool:
        known = (self._known[each] for each in self._since)
        running = [each for each in known if _competes(each, run)]
        beside = sum(1 for each in running if each.parent == run.parent)
        # A run that waits for its own runs must not keep their places from them.
        total = sum(1 for each in running if each.depth == 1) if run.depth == 1 else 0
        settings = self.settings
        return beside < settings.max_running_per_session and total < settings.max_running

    async def _start(self, run: Run) -> bool:
        """Start a run that waits; False if the queue does not take it now."""
        waiting = self._waiting.pop(run.id)
        self._since[run.id] = self._ctx.clock.monotonic_s()
        try:
            # Recorded first: after a crash in between, it is given again under the same id.
            run = await self._change(run, state="running", started_at=self._ctx.clock.now())
            if waiting.woken is not None:
                waiting.woken.set()
            elif self._ctx.gateway is not None:
                await self._ctx.gateway.assign(run.assignment(), run.task)
        except BaseException as error:
            # Also if another call, for which this one started the run, is cancelled.
            if self._since.pop(run.id, None) is not None:
                self._waiting = {run.id: waiting, **self._waiting}
                self._known[run.id] = self._known[run.id].model_copy(update={"state": "queued"})
            if not isinstance(error, BusError | OSError):
                raise
            self._log.warning("run {} cannot be started now: {}", run.id, error)
            return False
        if waiting.woken is None:
            await self._show(run, f"Subagent started: {run.title}")
        return True

    async def _do(self, run: Run) -> TurnOutcome:
        """Do the work of a run here.

        Raises:
            ToolFailed: a person stopped it.
        """
        if self._known[run.id].ending:
            raise ToolFailed("a person stopped the subagent")
        try:
            async with asyncio.TaskGroup() as group:
                work = group.create_task(_worked(self._ctx, run.assignment(), run.task))
                self._work[run.id] = work
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from errors
        finally:
            del self._work[run.id]
        if work.cancelled():
            raise ToolFailed("a person stopped the subagent")
        return work.result()

    # --- end -------------------------------------------------------------------------------

    async def finish(self, event: AssignmentFinished) -> None:
        """Store the result of a run, and report it to the session that requested it."""
        run_id = run_of(event.assignment)
        if not run_id:
            return
        await self.load()
        run = self._known.get(run_id) or _recovered(event.assignment, self._ctx)
        if not run.has_ended:
            run = await self._end(run, ending_of(run, event.outcome))
        await self._report(run)

    async def stop(self, run_id: str) -> bool:
        """Stop a run; False if it has ended. Its session gets no result."""
        run = self._known.get(run_id)
        if run is None or run.has_ended:
            return False
        waiting = self._waiting.get(run_id)
        if waiting is not None and waiting.woken is None:
            await self._end(run, STOPPED)
            return True
        await self._change(run, ending="person")
        if waiting is not None and waiting.woken is not None:
            waiting.woken.set()
        elif run_id in self._work:
            self._work[run_id].cancel()
        else:
            await self._cancel_turn(run)
        return True

    async def stop_all(self, session_key: str) -> None:
        """Drop the waiting runs of a session. The core ends those that run."""
        for run in [each for each in self._known.values() if each.parent == session_key]:
            if run.has_ended or run.kind == "delegate":
                continue
            if run.id in self._waiting:
                await self._end(run, STOPPED)
            else:
                # Its turn may not have begun, and nothing else would end it then.
                await self._change(run, ending="person")

    async def _cancel_turn(self, run: Run) -> None:
        """End the turn of a run at once; what cannot be ended ends at its next model call."""
        if self._ctx.gateway is not None:
            await self._ctx.gateway.stop_work(PLUGIN, run.id)

    async def _end(self, run: Run, ending: Ending) -> Run:
        """Store the end of a run, and let others start."""
        self._waiting.pop(run.id, None)
        self._since.pop(run.id, None)
        self.changed.set()
        result, file = ending.text, ""
        if run.kind == "spawn":
            most = self.settings.max_result_chars
            result, file = await asyncio.to_thread(bounded_result, run, result, most)
        ended = {
            "state": ending.state,
            "result": result[: self.settings.max_result_chars * 2],
            "result_file": file,
            "cause": ending.cause,
            "ended_at": self._ctx.clock.now(),
            "is_reported": run.kind == "delegate" or ending.state == "stopped",
        }
        try:
            run = await self._change(run, **ended)
        except OSError as error:
            self._log.error("the end of run {} cannot be stored: {}", run.id, error)
            run = self._known[run.id]
        await self.start_waiting()
        self.changed.set()
        if run.is_reported:
            await self._prune()
        return run

    async def _report(self, run: Run) -> None:
        """Give the result to the session that asked for it, once."""
        if run.is_reported or self._ctx.gateway is None:
            return
        async with self._reporting:
            run = self._known.get(run.id, run)
            if run.is_reported:
                return
            try:
                await self._ctx.gateway.assign(run.report(), render_report(run))
                await self._change(run, is_reported=True)
            except (BusError, OSError) as error:
                self._log.warning("the result of run {} cannot be reported yet: {}", run.id, error)
                return
        await self._show(run, f"Subagent ended ({run.state}): {run.title}")
        await self._prune()

    async def _show(self, run: Run, text: str) -> None:
        """Show a line in the chat that asked, if its channel shows progress."""
        if self._ctx.gateway is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(SHOW_LIMIT_S):
                    await self._ctx.gateway.show(run.requester, text)

    async def _prune(self) -> None:
        """Delete the oldest ended runs, with their conversations."""
        ended = [run for run in self._known.values() if run.has_ended and run.is_reported]
        ended.sort(key=lambda run: run.ended_at or run.created_at, reverse=True)
        for run in ended[self.settings.keep :]:
            try:
                await self._ctx.agent.delete_session(run.session_key)
                await asyncio.to_thread(remove_result, run)
                await asyncio.to_thread(self._store.remove, run.id)
            except (SessionError, OSError, RuntimeError) as error:
                # The agent may not have started yet, or be about to stop.
                self._log.debug("run {} is not deleted yet: {}", run.id, error)
                return
            self._known.pop(run.id, None)

    # --- called by the service ---------------------------------------------------------------

    async def recover(self) -> None:
        """Continue the runs of the previous process."""
        await self.load()
        for run in sorted(self._known.values(), key=lambda run: run.created_at):
            if run.has_ended or run.id in self._since or run.id in self._waiting:
                continue
            if run.kind == "delegate":
                await self._end(run, LEFT)
            elif run.state == "queued":
                self._waiting[run.id] = _Waiting(None)
            else:
                await self._give_again(run)
        await self.start_waiting()

    async def _give_again(self, run: Run) -> None:
        # Without effect if the queue still has it, or has had it.
        self._since[run.id] = self._ctx.clock.monotonic_s()
        if self._ctx.gateway is not None:
            try:
                await self._ctx.gateway.assign(run.assignment(), run.task)
            except BusError as error:
                self._log.warning("run {} cannot be continued: {}", run.id, error)

    async def check(self) -> float | None:
        """End runs that take too long, and retry reports that failed.

        Returns:
            Seconds until the next check; ``None`` if there is nothing to check.
        """
        now_s, limit_s = self._ctx.clock.monotonic_s(), self.settings.timeout_s
        pauses: list[float] = []
        for run_id, since_s in tuple(self._since.items()):
            run, left_s = self._known[run_id], since_s + limit_s - now_s
            if run.kind == "delegate":
                continue
            if left_s <= -LOST_AFTER_S:
                await self._end(run, Ending("lost"))
                continue
            if left_s <= 0 and not run.ending:
                await self._change(run, ending="time")
                await self._cancel_turn(run)
            pauses.append(left_s if left_s > 0 else left_s + LOST_AFTER_S)
        for run in [each for each in self._known.values() if each.has_ended]:
            await self._report(run)
            pauses += [] if self._known.get(run.id, run).is_reported else [RETRY_S]
        await self.start_waiting()
        if any(self._has_place(self._known[each]) for each in self._waiting):
            pauses.append(RETRY_S)
        return min(pauses, default=None)

    # --- storing -----------------------------------------------------------------------------

    async def note(self, run: Run, **changes: Any) -> None:
        """Store changes of a run in progress; a failure is logged."""
        try:
            await self._change(run, **changes)
        except OSError as error:
            self._log.warning("cannot store the state of run {}: {}", run.id, error)

    def note_step(self, run_id: str, step: str) -> None:
        """Note a tool call of a run; it is stored with the next model call."""
        self._known[run_id] = self._known[run_id].with_step(step)

    async def _change(self, run: Run, **changes: Any) -> Run:
        run = self._known.get(run.id, run).model_copy(update=changes)
        await self._put(run)
        return run

    async def _put(self, run: Run) -> None:
        self._known[run.id] = run
        async with self._writing:  # the newest state is the last one that is written
            await finish_in_thread(lambda: self._store.put(self._known.get(run.id, run)))


def _competes(other: Run, run: Run) -> bool:
    """Whether a run counts for the limits of another: those of guests do not keep the owner out."""
    return run.requester.authority == "guest" or other.requester.authority != "guest"


async def _worked(ctx: PluginContext, assignment: Assignment, task: str) -> TurnOutcome:
    return await ctx.agent.work(assignment, task)


def _recovered(assignment: Assignment, ctx: PluginContext) -> Run:
    """Return a run whose file is damaged or gone, from its work."""
    now = ctx.clock.now()
    return Run(
        id=assignment.id,
        kind="spawn",
        task=assignment.title,
        label=assignment.title,
        requester=assignment.requester,
        parent=assignment.parent or assignment.requester.session_key,
        instructions="",
        created_at=now,
        started_at=now,
        workspace=str(ctx.workspace),
        state="running",
    )
