"""Tasks, threads and how long each has to end: the one place for waiting that must be bounded."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from nanobot_core.errors import BusError, PluginLoadFailed, SessionError

if TYPE_CHECKING:
    from nanobot_core.clock import Clock

T = TypeVar("T")
Outcome = tuple[object, Exception | None]
"""What a piece of work returned, or the exception that it ended with."""

RETRY_S = 5.0
"""Seconds until a step that could not be stored is tried again."""
_DOUBLINGS = 30

# Seconds that each thing has to end after it is stopped. What waits for another has more time than
# it: a tool call ends within its turn, a connection within the attempt of its channel, and all of
# them within the time after which the system kills the process. `tests/unit/test_tasks.py` adds
# them up.
LOG_END_S = 2.0
"""Lines of the log that are not written yet."""
SENDING_END_S = 2.0
"""Replies on their way to a platform, before they are cancelled."""
WORK_END_S = 3.0
"""Cancelled work of a plugin: a tool call, a reply that is being sent."""
CONNECTION_END_S = 4.0
"""A channel that closes its connection; what a chat is shown of a turn."""
TURN_END_S = 4.5
"""A turn, a request over the control socket, one attempt of a channel or service. A person who
stops a turn gets the answer within five seconds."""
TASKS_END_S = 5.0
"""All tasks of an owner; the delivery of one channel; the tasks and each closer of a plugin."""
PLUGIN_END_S = 10.0
"""A plugin's ``stop`` hook."""
CLOSE_RESERVE_S = 10.0
"""What a gateway keeps of its grace time, at most half of it, to cancel turns and to close."""
PART_END_S = 30.0
"""All plugins, the memory backend, the session store: each of them."""
KILL_RESERVE_S = 30.0
"""Seconds beyond the grace time until ``gateway stop`` and the system take a gateway as hung."""
EXIT_END_S = 5.0
"""The event loop and the interpreter, after everything is stored."""


class Spawn(Protocol):
    """Starts a task that the application owns and awaits."""

    def __call__(self, work: Coroutine[Any, Any, T], *, name: str) -> asyncio.Task[T]:
        """Return the running task."""


class TaskOwner:
    """Starts tasks and ends them, so that none outlives the application.

    Unlike in a task group, the others continue when one fails: the exception goes to the code that
    awaits the task, and to the log if there is none.
    """

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()

    def spawn(self, work: Coroutine[Any, Any, T], *, name: str) -> asyncio.Task[T]:
        """Start `work` and return its task."""
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def close(self) -> list[str]:
        """Cancel the tasks and wait for them; return the names of those that ignore it.

        Their coroutines are closed, since `asyncio.run` waits for every task without a limit.
        """
        tasks = set(self._tasks)
        for task in tasks:
            task.cancel()
        if not tasks:
            return []
        _, stuck = await asyncio.wait(tasks, timeout=TASKS_END_S)
        for task in stuck:
            _close_coroutine(task)
        return sorted(task.get_name() for task in stuck)


def _close_coroutine(task: asyncio.Task[Any]) -> None:
    coroutine = task.get_coro()
    if isinstance(coroutine, Coroutine):
        with suppress(Exception):  # it awaits while it is closed, and so cannot be
            coroutine.close()
    task.add_done_callback(lambda ended: ended.cancelled() or ended.exception())  # seen
    task.cancel()  # wakes the task, which finds its coroutine closed and ends


class StillRunning(TimeoutError):
    """The work overran its limit and ignores its cancellation."""


async def run_bounded(
    spawn: Spawn, work: Coroutine[Any, Any, T], *, limit_s: float, name: str
) -> T:
    """Return what `work` of a plugin returns.

    It runs in a task of its own: a task that awaits a coroutine directly cannot continue when the
    coroutine swallows the cancellation. The owner of tasks takes over one that does not end.

    Args:
        spawn: starts tasks that the application owns.
        work: must let no ``SystemExit`` or ``KeyboardInterrupt`` out, which end the event loop.
        limit_s: seconds it may take.
        name: name of the task.

    Raises:
        TimeoutError: it took longer; it has ended, unless this is `StillRunning`.
        Exception: what `work` raised.

    Cancellation:
        Passed to `work`, which has `WORK_END_S` to end, and then on.
    """
    task = spawn(work, name=name)
    done: set[asyncio.Task[T]] = set()
    try:
        done, _ = await asyncio.wait({task}, timeout=limit_s)
    finally:
        if not done:
            task.cancel()
            await asyncio.wait({task}, timeout=WORK_END_S)
    if not done:
        raise TimeoutError if task.done() else StillRunning
    return task.result()


async def cancel_and_wait(task: asyncio.Task[Any]) -> None:
    """Cancel one of our own tasks and wait until it has ended, however it ends."""
    task.cancel()
    await asyncio.wait({task})


async def finish_in_thread(work: Callable[[], T]) -> T:
    """Run `work` in a thread and return its result.

    Cancellation:
        Passed on after `work` has ended, because a thread cannot be stopped and what the caller
        holds must not be given up while it still writes.
    """
    return await _to_its_end(asyncio.get_running_loop().run_in_executor(None, work))


async def finish_within(work: Coroutine[Any, Any, T], grace_s: float) -> T:
    """Run `work` and return its result.

    For work whose result would be lost, such as an answer that cannot be requested again.

    Cancellation:
        `work` has `grace_s` seconds to end, then it is cancelled too.
    """
    task = asyncio.create_task(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait({task}, timeout=grace_s)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        raise


class GatheredWork:
    """Blocking work in a thread, in batches: requests that arrive during a batch form the next one.

    Switching to a thread and back costs the event loop more than most requests do, and concurrent
    threads compete with it for the interpreter.

    Args:
        within: returns a block in which a batch runs, such as one transaction for all of it. If the
            block fails, so does each piece of the batch that has not failed by itself.
    """

    def __init__(self, within: Callable[[], AbstractContextManager[object]] = nullcontext) -> None:
        self._within = within
        self._waiting: list[tuple[Callable[[], object], asyncio.Future[object]]] = []
        self._is_under_way = False

    async def finish(self, work: Callable[[], T]) -> T:
        """Run `work` and return its result; cancellation as in `finish_in_thread`."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        self._waiting.append((work, future))  # type: ignore[arg-type] # results and futures go in pairs
        if not self._is_under_way:
            self._is_under_way = True
            loop.call_soon(self._begin)  # with what else is asked for in this round of the loop
        return await _to_its_end(future)

    def _begin(self) -> None:
        batch, self._waiting = self._waiting, []
        works = [work for work, _ in batch]
        done = asyncio.get_running_loop().run_in_executor(None, _do_all, works, self._within)
        done.add_done_callback(partial(self._end, [future for _, future in batch]))

    def _end(
        self, futures: list[asyncio.Future[object]], done: asyncio.Future[list[Outcome]]
    ) -> None:
        for future, (result, error) in zip(futures, done.result(), strict=True):
            if error is None:
                future.set_result(result)
            else:
                future.set_exception(error)
        if self._waiting:
            self._begin()
        else:
            self._is_under_way = False


def _do_all(
    works: list[Callable[[], object]], within: Callable[[], AbstractContextManager[object]]
) -> list[Outcome]:
    outcomes: list[Outcome] = []
    try:
        with within():
            for work in works:
                try:
                    outcomes.append((work(), None))
                except Exception as error:  # noqa: BLE001 - isolation point: raised where it is awaited
                    outcomes.append((None, error))
    except Exception as failure:  # noqa: BLE001 - likewise, by all that had to be done
        own = [error for _, error in outcomes] + [None] * (len(works) - len(outcomes))
        return [(None, error or failure) for error in own]
    return outcomes


async def _to_its_end(future: asyncio.Future[T]) -> T:
    try:
        return await asyncio.shield(future)
    except asyncio.CancelledError:
        while not future.done():
            with suppress(asyncio.CancelledError):  # a second one; the first is raised below
                await asyncio.wait([future])
        if not future.cancelled():
            future.exception()  # marks it as seen; the caller gets the cancellation
        raise


def growing_delay_s(attempt: int, longest_s: float) -> float:
    """Return the seconds to wait after `attempt`, counted from 1: 1, 2, 4 and so on."""
    # A day of attempts is more doublings than a float can hold.
    return min(2.0 ** min(attempt - 1, _DOUBLINGS), longest_s)


async def retry_until_stored(step: Callable[[], Awaitable[T]], clock: Clock, what: str) -> T:
    """Do `step` until it is stored, and return its result.

    A lease that is neither acknowledged nor released blocks its session or chat, and an accepted
    message must not be lost. On a full disk, both must be possible again when the disk has room.

    Args:
        step: one change of the message queue or of a session, all or nothing.
        clock: source of time.
        what: what is stored, for the log.

    Raises:
        SessionError: another attempt would fail as well.

    Cancellation:
        Passed on; the next process gets the message again.
    """
    from loguru import logger

    is_logged = False
    while True:
        try:
            return await step()
        except (BusError, SessionError) as error:
            if isinstance(error, SessionError) and not error.is_temporary:
                raise
            log = logger.debug if is_logged else logger.error
            log("cannot store {}, trying again: {}", what, error)
            is_logged = True
            await clock.sleep(RETRY_S)


def call_within(limit_s: float, plugin_id: str, doing: str, function: Callable[[], T]) -> T:
    """Return what `function` of a plugin returns. Blocks; call it in a thread from a loop.

    Python cannot end a thread. One that overruns is left behind and does not delay the end of the
    process, unlike those of the loop's executor.

    Args:
        limit_s: seconds it may take.
        plugin_id: id of the plugin.
        doing: for the message: ``importing 'nanobot_x.plugin'``.
        function: the plugin's code.

    Raises:
        PluginLoadFailed: it did not end in time, or tried to end the process or the task.
        Exception: what `function` raised.
    """
    call = _Call(function)
    context = contextvars.copy_context()
    thread = threading.Thread(
        target=context.run, args=(call.run,), name=f"plugin:{plugin_id}", daemon=True
    )
    thread.start()
    thread.join(limit_s)
    if thread.is_alive():
        raise PluginLoadFailed(
            plugin_id, f"{doing} did not end within {limit_s:g} s", "disable it, then restart"
        )
    if isinstance(call.error, Exception):
        raise call.error
    if call.error is not None:
        error = call.error
        raise PluginLoadFailed(
            plugin_id, f"{doing} raised {type(error).__name__}: {error}", "remove that call"
        ) from error
    return call.results[0]


class _Call(Generic[T]):
    """A call and its result."""

    def __init__(self, function: Callable[[], T]) -> None:
        self._function = function
        self.results: list[T] = []
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            self.results.append(self._function())
        except BaseException as error:  # noqa: BLE001 - isolation point, raised by the caller
            self.error = error
