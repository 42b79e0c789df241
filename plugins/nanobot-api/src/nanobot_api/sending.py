"""How an answer is sent: whole, as a stream of server-sent events, or as an error."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from starlette.responses import JSONResponse

from nanobot_api.error import INTERNAL, failed

if TYPE_CHECKING:
    from starlette.types import Message, Receive, Send

    from nanobot_api.answer import Answer, Delta
    from nanobot_api.ask import Ask
    from nanobot_api.error import Failure
    from nanobot_api.run import Run
    from nanobot_core import JsonObject

ResultT = TypeVar("ResultT")
HEARTBEAT_S: Final = 10.0
"""Seconds of silence after which a stream sends a comment; proxies cut silent streams at 60."""
_HEARTBEAT: Final = ": working\n\n"
_STREAM_HEADERS: Final = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store, no-transform"),
    (b"x-accel-buffering", b"no"),
]


class Form(Protocol):
    """Renders one answer as an endpoint sends it."""

    def whole(self, answer: Answer) -> JsonObject:
        """Return a complete answer."""

    def begin(self) -> Iterator[str]:
        """Yield the beginning of a stream."""

    def piece(self, delta: Delta) -> Iterator[str]:
        """Yield a piece of the answer."""

    def end(self, answer: Answer) -> Iterator[str]:
        """Yield the end of a stream."""

    def broken(self, failure: Failure) -> Iterator[str]:
        """Yield the end of a stream that fails."""


MakeForm = Callable[[str, int, "Ask"], Form]


async def wait_for_start(run: Run) -> Failure | None:
    """Wait for the first piece of a stream, or for some seconds.

    Returns:
        Why it failed before that, so that the response can have the status of the error.
    """
    try:
        async with asyncio.timeout(HEARTBEAT_S):
            await run.more(0)
    except TimeoutError:
        return None
    return run.result.failure if run.result and not run.deltas else None


async def wait_for_end(run: Run) -> Answer | Failure:
    """Wait for the result."""
    while run.result is None:
        await run.more(len(run.deltas))
    return run.result.answer or run.result.failure or failed(INTERNAL)


async def send_stream(run: Run, form: Form, send: Send) -> None:
    """Send the pieces of an answer as they come."""
    await send({"type": "http.response.start", "status": 200, "headers": _STREAM_HEADERS})
    async for frame in _frames(run, form):
        body = frame.encode()
        await send({"type": "http.response.body", "body": body, "more_body": True})
    await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _frames(run: Run, form: Form) -> AsyncIterator[str]:
    yield "".join(form.begin())
    seen = 0
    while run.result is None or seen < len(run.deltas):
        pieces, seen = run.deltas[seen:], len(run.deltas)
        if text := "".join(frame for delta in pieces for frame in form.piece(delta)):
            yield text
        try:
            async with asyncio.timeout(HEARTBEAT_S):
                await run.more(seen)
        except TimeoutError:
            yield _HEARTBEAT
    answer = run.result.answer
    if answer is None:
        yield "".join(form.broken(run.result.failure or failed(INTERNAL)))
        return
    # The answer to a repeated request is there from the beginning.
    for delta in [] if run.deltas else answer.pieces():
        yield "".join(form.piece(delta))
    yield "".join(form.end(answer))


def refusal(failure: Failure) -> JSONResponse:
    """Return the response for a request that is not answered."""
    headers = {"cache-control": "no-store"}
    if failure.retry_after_s is not None:
        headers["retry-after"] = str(math.ceil(failure.retry_after_s))
    if failure.status == 401:
        headers["www-authenticate"] = "Bearer"
    if failure.status == 413:
        # The rest of the body is not read.
        headers["connection"] = "close"
    if not failure.may_retry:
        headers["x-should-retry"] = "false"
    return JSONResponse(failure.to_json(), failure.status, headers)


def with_request_id(send: Send, request_id: str) -> Send:
    """Return a `send` that adds the id to the headers of the response."""

    async def named(message: Message) -> None:
        if message["type"] == "http.response.start":
            header = (b"x-request-id", request_id.encode())
            message = {**message, "headers": [*message.get("headers", ()), header]}
        await send(message)

    return named


async def unless_gone(receive: Receive, work: Coroutine[Any, Any, ResultT]) -> ResultT | None:
    """Return the result of `work`; ``None`` if the client disconnects first, which cancels it."""
    async with asyncio.TaskGroup() as group:
        working = group.create_task(work)
        gone = group.create_task(_disconnected(receive))
        await asyncio.wait({working, gone}, return_when=asyncio.FIRST_COMPLETED)
        is_done = working.done()
        working.cancel()
        gone.cancel()
    return working.result() if is_done else None


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
