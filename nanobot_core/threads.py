"""Blocking work in threads, never left half done."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

_T = TypeVar("_T")
Outcome = tuple[object, Exception | None]
"""What a piece of work returned, or the exception that it ended with."""


async def finish_in_thread(work: Callable[[], _T]) -> _T:
    """Run `work` in a thread and return its result.

    Cancellation:
        Passed on after `work` has ended, because a thread cannot be stopped and what the caller
        holds must not be given up while it still writes.
    """
    return await _to_its_end(asyncio.get_running_loop().run_in_executor(None, work))


class GatheredWork:
    """Blocking work, one piece after another in a thread: what comes meanwhile goes there together.

    Going to a thread and back costs the event loop more than most pieces do, and threads at work
    side by side take the interpreter from it and from one another.
    """

    def __init__(self) -> None:
        self._waiting: list[tuple[Callable[[], object], asyncio.Future[object]]] = []
        self._is_under_way = False

    async def finish(self, work: Callable[[], _T]) -> _T:
        """Run `work` and return its result; cancellation as in `finish_in_thread`."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[_T] = loop.create_future()
        self._waiting.append((work, future))  # type: ignore[arg-type] # results and futures go in pairs
        if not self._is_under_way:
            self._is_under_way = True
            loop.call_soon(self._begin)  # with what else is asked for in this round of the loop
        return await _to_its_end(future)

    def _begin(self) -> None:
        batch, self._waiting = self._waiting, []
        works = [work for work, _ in batch]
        done = asyncio.get_running_loop().run_in_executor(None, _do_all, works)
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


def _do_all(works: list[Callable[[], object]]) -> list[Outcome]:
    outcomes: list[Outcome] = []
    for work in works:
        try:
            outcomes.append((work(), None))
        except Exception as error:  # noqa: BLE001 - isolation point: goes to whoever asked for it
            outcomes.append((None, error))
    return outcomes


async def _to_its_end(future: asyncio.Future[_T]) -> _T:
    try:
        return await asyncio.shield(future)
    except asyncio.CancelledError:
        while not future.done():
            with suppress(asyncio.CancelledError):  # a second one; the first is raised below
                await asyncio.wait([future])
        if not future.cancelled():
            future.exception()  # marks it as seen; the cancellation is what the caller hears
        raise
