"""Requests under way: each is worked on once, for one client or for several that repeat it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final
from uuid import uuid4

from nanobot_api.answer import Answer, Delta, Result
from nanobot_api.database import Database
from nanobot_api.error import INTERNAL, ApiError, Failure, failed, too_many
from nanobot_api.keys import KeyStore
from nanobot_api.records import KnownRequest, Records
from nanobot_api.settings import ApiSettings
from nanobot_core import NanobotError

if TYPE_CHECKING:
    from nanobot_core import PluginContext

Work = Callable[["Run"], Awaitable[Answer]]
_REVOKED_POLL_S: Final = 0.5
_BUSY_WAIT_S: Final = 1.0
DISCONNECTED: Final = failed(
    "the client that sent this request has disconnected, which stopped it; what it did until then "
    "is not undone. To send it again, use another Idempotency-Key",
    status=409,
    code="request_cancelled",
)
_INTERRUPTED: Final = failed(
    "nanobot ended while it worked on this request, and its result is unknown; to send it again, "
    "use another Idempotency-Key",
    status=409,
    code="request_interrupted",
)
_STOPPING: Final = failed("nanobot is stopping and has ended this request", status=503)
_REVOKED: Final = Failure(
    status=401, message="the key was revoked", code="invalid_api_key", may_retry=False
)


class Run:
    """One request from its beginning to its result.

    Attributes:
        id: names the answer.
        created_s: when it began, in seconds since 1970.
        digest: hash of what is asked.
        caller: hash of the key that asks.
        deltas: the pieces of the answer so far.
        result: how it ended, or ``None``.
    """

    def __init__(self, run_id: str, created_s: int, *, digest: str, caller: str) -> None:
        self.id: str = run_id
        self.created_s: int = created_s
        self.digest: str = digest
        self.caller: str = caller
        self.deltas: list[Delta] = []
        self.result: Result | None = None
        self._clients = 0
        self._reason: Failure | None = None
        self._task: asyncio.Task[None] | None = None
        self._waiting: set[asyncio.Event] = set()

    @staticmethod
    def new_id() -> str:
        """Return an id for a request."""
        return uuid4().hex

    def emit(self, delta: Delta) -> None:
        """Add a piece of the answer."""
        self.deltas.append(delta)
        self._wake()

    async def more(self, seen: int) -> None:
        """Wait until there are more than `seen` pieces, or the result."""
        event = asyncio.Event()
        self._waiting.add(event)
        try:
            while len(self.deltas) <= seen and self.result is None:
                event.clear()
                await event.wait()
        finally:
            self._waiting.discard(event)

    def join(self) -> None:
        """Count a client that wants the result."""
        self._clients += 1

    def leave(self) -> None:
        """Stop counting a client; without any, the work is stopped."""
        self._clients -= 1
        if self._clients == 0:
            self.stop(DISCONNECTED)

    def stop(self, reason: Failure) -> None:
        """End the work, unless it has ended."""
        if self.result is None and self._reason is None:
            self._reason = reason
            if self._task is not None:
                self._task.cancel()

    async def work(self, work: Callable[[Run], Awaitable[Result]]) -> None:
        """Do the work and keep its result.

        Args:
            work: returns the result; failures other than those of nanobot are reported by the host.
        """
        self._task = asyncio.current_task()
        result = Result(failure=failed(INTERNAL))
        try:
            if self._reason is None:
                result = await work(self)
        except asyncio.CancelledError:
            result = Result(failure=self._reason or _STOPPING)
            raise
        finally:
            self.end(result if self._reason is None else Result(failure=self._reason))

    def end(self, result: Result) -> None:
        """Set the result, unless there is one."""
        if self.result is None:
            self.result = result
            self._wake()

    def recall(self, known: KnownRequest) -> Result:
        """Return the result of the earlier request with the same idempotency key."""
        if known.digest != self.digest:
            return Result(failure=other_request())
        self.id, self.created_s = known.id, known.created_s
        return known.result or Result(failure=_INTERRUPTED)

    def _wake(self) -> None:
        for event in self._waiting:
            event.set()


def other_request() -> Failure:
    """Return the failure for an idempotency key that was used for something else."""
    message = "this Idempotency-Key was used for another request within the last 24 hours"
    code = "idempotency_key_conflict"
    return Failure(status=409, message=message, code=code, may_retry=False)


class Runs:
    """All requests under way. Revoking a key ends its own within a second."""

    def __init__(self, ctx: PluginContext) -> None:
        self._ctx = ctx
        self._log = ctx.logger
        self._database = ctx.shared(Database)
        self._limit = ctx.settings(ApiSettings).max_running
        self._runs: set[Run] = set()
        self._named: dict[tuple[str, str], Run] = {}
        self._watches = False

    def begin(self, run: Run, work: Work) -> Run:
        """Start to work on a request without an idempotency key; the caller has to join it.

        Raises:
            ApiError: too many requests are under way.
        """

        async def result(run: Run) -> Result:
            return await self._result(run, work)

        self._start(run, result)
        return run

    def begin_once(self, run: Run, name: tuple[str, str], work: Work) -> Run:
        """Start to work on a request, or return the one that does; the caller has to join it.

        Args:
            run: of a new request.
            name: name of the API key, and the idempotency key.
            work: does it.

        Raises:
            ApiError: the key is used for another request, or too many are under way.
        """
        if (known := self._named.get(name)) is not None:
            if known.digest != run.digest:
                raise ApiError(other_request())
            return known

        async def result(run: Run) -> Result:
            try:
                return await self._result_once(run, name, work)
            finally:
                del self._named[name]

        self._start(run, result)
        self._named[name] = run
        return run

    def works_on(self, run_id: str) -> bool:
        """Whether the request with that id is under way."""
        return any(run.id == run_id for run in self._runs)

    def stop_all(self) -> None:
        """End all work."""
        for run in tuple(self._runs):
            run.stop(_STOPPING)

    def _start(self, run: Run, work: Callable[[Run], Awaitable[Result]]) -> None:
        if len(self._runs) >= self._limit:
            message = f"{self._limit} requests are under way; try again later"
            raise too_many(message, _BUSY_WAIT_S)
        self._runs.add(run)
        self._ctx.spawn(self._whole(run, work), name=f"request {run.id}")
        if not self._watches:
            self._watches = True
            self._ctx.spawn(self._watch(), name="revoked keys")

    async def _whole(self, run: Run, work: Callable[[Run], Awaitable[Result]]) -> None:
        try:
            await run.work(work)
        finally:
            self._runs.discard(run)

    async def _result(self, run: Run, work: Work) -> Result:
        try:
            return Result(answer=await work(run))
        except ApiError as error:
            return Result(failure=error.failure)

    async def _result_once(self, run: Run, name: tuple[str, str], work: Work) -> Result:
        records, at_s = self._ctx.shared(Records), self._ctx.clock.now().timestamp()
        known = await self._database.finish(
            lambda: records.claim(*name, run.digest, run.id, at_s=at_s)
        )
        if known is not None:
            return run.recall(known)
        try:
            result = await self._result(run, work)
        except asyncio.CancelledError:
            await self._settle(name, Result(failure=DISCONNECTED))
            raise
        await self._settle(name, result)
        return result

    async def _settle(self, name: tuple[str, str], result: Result) -> None:
        records = self._ctx.shared(Records)
        try:
            await self._database.finish(lambda: records.settle(*name, result))
        except NanobotError as error:
            # The client gets the result; a repetition gets 409, and never works twice.
            self._log.warning("the result of a request is not stored: {}", error)

    async def _watch(self) -> None:
        """End the requests of keys that are revoked, as long as there are requests."""
        keys = self._ctx.shared(KeyStore)
        try:
            while self._runs:
                await asyncio.sleep(_REVOKED_POLL_S)
                valid = await self._database.finish(keys.digests)
                for run in tuple(self._runs):
                    if run.caller not in valid:
                        run.stop(_REVOKED)
        finally:
            self._watches = False
