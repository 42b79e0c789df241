"""A model service on the loopback with scripted answers; the form of its protocol is a subclass.

It answers at once, so that it can be the floor of a benchmark, and it can fail in every way that a
real service does.
"""

from __future__ import annotations

import asyncio
import json
import socket
import struct
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, Self, TypeAlias

from nanobot_core.messages import JsonObject, JsonValue

_RESET_ON_CLOSE = struct.pack("ii", 1, 0)
"""SO_LINGER of no seconds: closing the socket resets the connection."""
_USAGE: JsonObject = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptedCall:
    """A tool call in a scripted answer.

    Attributes:
        name: name of the tool.
        arguments: the argument text as the model wrote it; it need not be JSON.
        id: id of the call; empty leaves the field out.
    """

    name: str
    arguments: str = "{}"
    id: str = "call_1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """One scripted answer; streamed or whole as the request asks.

    Attributes:
        text: the answer.
        reasoning: thinking, sent as ``reasoning_content``.
        calls: tool calls.
        finish_reason: why the model stopped; ``None`` follows from `calls`.
        usage: the usage object, or ``None`` for a service that reports none.
        chunk_chars: characters of text, thinking or arguments in one streamed chunk.
        status: HTTP status.
        headers: further response headers.
        content_type: instead of the one that belongs to the form of the answer.
        body: sent as it is instead of everything above.
        body_repeat: how often `body` is sent, for bodies of any size.
        write_bytes: bytes of the body written at once; ``None`` writes it whole.
        pause_s: seconds between two writes of a body that is not written whole.
        gate: the answer waits until this is set.
        delay_s: seconds to wait before the answer, for benchmarks.
        stop_after_bytes: bytes of the body after which the service stops, or ``None``.
        stop: how it stops: ends the connection, resets it, or stays silent until the client goes.
    """

    text: str = ""
    reasoning: str = ""
    calls: tuple[ScriptedCall, ...] = ()
    finish_reason: str | None = None
    usage: JsonObject | None = field(default_factory=lambda: dict(_USAGE))
    chunk_chars: int = 16
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    content_type: str | None = None
    body: bytes | None = None
    body_repeat: int = 1
    write_bytes: int | None = None
    pause_s: float = 0.0
    gate: asyncio.Event | None = None
    delay_s: float = 0.0
    stop_after_bytes: int | None = None
    stop: Literal["close", "reset", "stall"] = "close"


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedRequest:
    """A request as it came in.

    Attributes:
        method: HTTP method.
        path: path with query.
        headers: names in lower case.
        body: the JSON body; empty if the request has no body.
        received_at_s: ``time.monotonic()`` when it was complete.
        disconnected: set when the client went away during a reply that stalls.
    """

    method: str
    path: str
    headers: Mapping[str, str]
    body: dict[str, Any]
    received_at_s: float
    disconnected: asyncio.Event = field(default_factory=asyncio.Event, compare=False, repr=False)


Responder: TypeAlias = Callable[[RecordedRequest], Reply]


class ModelServer(ABC):
    """Answers the requests of a model's protocol by a script and remembers them.

    ``GET /requests`` returns the remembered requests to another process, ``GET …/models`` lists
    `models`; anything else that is not a request of the protocol is 404.

    Attributes:
        base_path: path of the base URL.
        models: names that the service lists.
        requests: what came in, in order, except lists of models.

    Args:
        script: replies in the order of requests.
        default: reply, or function of the request, for requests after the script.
        port: port on 127.0.0.1; 0 takes a free one.
    """

    base_path: ClassVar[str] = "/v1"

    def __init__(
        self,
        script: Iterable[Reply] = (),
        *,
        default: Reply | Responder | None = None,
        port: int = 0,
        models: Iterable[str] = ("scripted",),
    ) -> None:
        self.requests: list[RecordedRequest] = []
        self.models: list[str] = list(models)
        self._script = list(script)
        self.default: Reply | Responder = self.echo if default is None else default
        self._port = port
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()
        self._connections_seen = 0
        self._changed = asyncio.Condition()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(
            self._serve, "127.0.0.1", self._port, backlog=1_024
        )
        self._port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._server is not None:
            self._server.close()
            for connection in self._connections:
                connection.cancel()
            await asyncio.gather(*self._connections, return_exceptions=True)
            await self._server.wait_closed()

    @property
    def url(self) -> str:
        """Base URL."""
        return f"{self.origin}{self.base_path}"

    @property
    def origin(self) -> str:
        """The server's address without a path."""
        return f"http://127.0.0.1:{self._port}"

    @property
    def connections_seen(self) -> int:
        """How many connections have been opened so far."""
        return self._connections_seen

    @property
    def connections_open(self) -> int:
        """How many connections are open now."""
        return len(self._connections)

    async def wait_for_connections(self, at_most: int) -> None:
        """Return when at most `at_most` connections are open."""
        async with self._changed:
            await self._changed.wait_for(lambda: len(self._connections) <= at_most)

    def extend(self, *replies: Reply) -> None:
        """Append `replies` to the script."""
        self._script.extend(replies)

    async def wait_for_requests(self, count: int) -> None:
        """Return when `count` requests have come in since the start."""
        async with self._changed:
            await self._changed.wait_for(lambda: len(self.requests) >= count)

    @abstractmethod
    def is_request(self, request: RecordedRequest) -> bool:
        """Whether `request`, a POST, asks for an answer of the model."""

    @abstractmethod
    def echo(self, request: RecordedRequest) -> Reply:
        """Answer with the text of the request's last message."""

    @abstractmethod
    def render(self, reply: Reply, request: RecordedRequest) -> JsonObject:
        """Return a whole answer."""

    @abstractmethod
    def render_events(self, reply: Reply, request: RecordedRequest) -> Iterator[str]:
        """Yield the server-sent events of a streamed answer, each without its empty line."""

    def is_streamed(self, request: RecordedRequest) -> bool:
        """Whether `request` asks for a stream."""
        return request.body.get("stream") is True

    def refusal(self, request: RecordedRequest) -> Reply | None:
        """Return the error of a service that is strict about `request`; ``None`` accepts it."""
        return None

    def render_models(self) -> JsonObject:
        """Return the list of `models`."""
        rows: list[JsonValue] = [{"id": name, "object": "model"} for name in self.models]
        return {"object": "list", "data": rows}

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = asyncio.current_task()
        assert connection is not None  # asyncio runs this callback in a task of its own
        self._connections.add(connection)
        self._connections_seen += 1
        try:
            while request := await _read_request(reader):
                if not await self._answer(request, reader, writer):
                    break
        except (ConnectionError, asyncio.IncompleteReadError):
            pass  # a client may disconnect at any time
        except asyncio.CancelledError:
            # Only the server's end cancels this task, which ends here; asyncio before 3.12 would
            # log the cancellation of a connection as a failure.
            pass
        finally:
            await _close(writer)
            async with self._changed:
                self._connections.discard(connection)
                self._changed.notify_all()

    async def _answer(
        self,
        request: RecordedRequest,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> bool:
        """Answer one request and return whether the connection can be used again."""
        reply = await self._choose(request)
        if reply.gate is not None:
            await reply.gate.wait()
        if reply.delay_s:
            await asyncio.sleep(reply.delay_s)
        streamed = reply.body is None and self.is_streamed(request)
        head, body = self._head_and_body(reply, request, streamed=streamed)
        if reply.stop_after_bytes is None:
            await _write(writer, head, body, reply, chunked=streamed)
            return True
        await _write(writer, head, body[: reply.stop_after_bytes], reply, chunked=streamed, end=b"")
        if reply.stop == "stall":
            with suppress(ConnectionError):  # closed, or reset
                while await reader.read(1_024):
                    pass
            request.disconnected.set()
        elif reply.stop == "reset":
            raw: socket.socket = writer.get_extra_info("socket")
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
        return False

    def _head_and_body(
        self, reply: Reply, request: RecordedRequest, *, streamed: bool
    ) -> tuple[bytes, bytes]:
        """Return the head of the response, without the empty line, and its body."""
        if reply.body is not None:
            body, kind = reply.body, "application/json"
        elif streamed:
            events = self.render_events(reply, request)
            body, kind = "".join(f"{event}\n\n" for event in events).encode(), "text/event-stream"
        else:
            body, kind = json.dumps(self.render(reply, request)).encode(), "application/json"
        return render_head(reply, kind, len(body), chunked=streamed), body

    async def _choose(self, request: RecordedRequest) -> Reply:
        if (request.method, request.path) == ("GET", "/requests"):
            return _json_reply([_describe(seen) for seen in self.requests])
        if request.method == "GET" and request.path.partition("?")[0].endswith("/models"):
            return _json_reply(self.render_models())
        if request.method != "POST" or not self.is_request(request):
            return _json_reply({"error": {"message": "no such path"}}, status=404)
        async with self._changed:
            self.requests.append(request)
            self._changed.notify_all()
        refusal = self.refusal(request)
        if refusal is not None:
            return refusal
        if self._script:
            return self._script.pop(0)
        return self.default if isinstance(self.default, Reply) else self.default(request)


async def _close(writer: asyncio.StreamWriter) -> None:
    """Send what is still to be sent and close; a cancelled server sends no more."""
    try:
        writer.close()
        await writer.wait_closed()
    except ConnectionError:
        pass  # the client was faster
    finally:
        writer.transport.abort()


async def _read_request(reader: asyncio.StreamReader) -> RecordedRequest | None:
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return None
    first, *lines = head[:-4].decode("latin-1").split("\r\n")
    method, path, _ = first.split(" ", 2)
    headers: dict[str, str] = {}
    for line in lines:
        name, _, value = line.partition(":")
        headers[name.lower()] = value.strip()
    raw = await reader.readexactly(int(headers.get("content-length", "0")))
    return RecordedRequest(
        method=method,
        path=path,
        headers=headers,
        body=json.loads(raw) if raw else {},
        received_at_s=time.monotonic(),
    )


async def _write(
    writer: asyncio.StreamWriter,
    head: bytes,
    body: bytes,
    reply: Reply,
    *,
    chunked: bool,
    end: bytes = b"0\r\n\r\n",
) -> None:
    size = reply.write_bytes or len(body) or 1
    pieces = [body[start : start + size] for start in range(0, len(body), size)]
    if chunked:
        pieces = [b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces] + [end]
    # The head and the first piece leave in one packet, as they do from fast services.
    writer.write(b"".join([head, b"\r\n\r\n", *pieces[:1]]))
    for piece in pieces[1:] + pieces * (reply.body_repeat - 1):
        writer.write(piece)
        if reply.write_bytes or reply.body_repeat > 1:
            await writer.drain()
            await asyncio.sleep(reply.pause_s)
    await writer.drain()


def _json_reply(value: JsonValue, *, status: int = 200) -> Reply:
    return Reply(status=status, body=json.dumps(value).encode())


def _describe(request: RecordedRequest) -> JsonObject:
    return {
        "path": request.path,
        "headers": dict(request.headers),
        "body": request.body,
        "received_at_s": request.received_at_s,
    }


def render_head(reply: Reply, kind: str, body_bytes: int, *, chunked: bool) -> bytes:
    """Return the head of a response, without the empty line."""
    framing = (
        "transfer-encoding: chunked"
        if chunked
        else f"content-length: {body_bytes * reply.body_repeat}"
    )
    lines = [
        f"HTTP/1.1 {reply.status} Scripted",
        f"content-type: {kind if reply.content_type is None else reply.content_type}",
        framing,
        *(f"{name}: {value}" for name, value in reply.headers.items()),
    ]
    return "\r\n".join(lines).encode("latin-1")


def pieces(text: str, reply: Reply) -> list[str]:
    """Return `text` in the pieces in which a stream of `reply` sends it."""
    size = reply.chunk_chars
    return [text[start : start + size] for start in range(0, len(text), size)]
