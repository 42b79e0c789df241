"""What the provider of a service behind HTTP does when the service fails, as inherited tests."""

from __future__ import annotations

import asyncio
import gc
import socket
import traceback
import zlib
from abc import abstractmethod
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import ClassVar, Final

import pytest

from nanobot_core.contracts.provider import ChatRequest, Completed, LLMProvider, LLMResponse
from nanobot_core.errors import (
    AnswerTooLong,
    BadRequest,
    Overloaded,
    ProviderError,
    ProviderProtocolError,
    ProviderTimeout,
    RateLimited,
    Unreachable,
)
from nanobot_core.messages import Message
from nanobot_core.testing.model_server import ModelServer, Reply, ScriptedCall
from nanobot_core.testing.suite import ConformanceSuite

_LIMIT_S = 20.0
_EVENTS = "text/event-stream"
_GZIP: Mapping[str, str] = {"content-encoding": "gzip"}


def _bomb() -> bytes:
    """Return the gzip form of 100 MB that are one line of an event stream, and no JSON.

    It repeats one packed block: to pack 100 MB would take half a second of every test run.
    """
    packer = zlib.compressobj(wbits=zlib.MAX_WBITS | 16)
    start = packer.compress(b": ") + packer.flush(zlib.Z_FULL_FLUSH)
    block = packer.compress(b"x" * 1_000_000) + packer.flush(zlib.Z_FULL_FLUSH)
    return start + block * 100


_BOMB = _bomb()
_BLOCK = b"x" * 65_536
_LOOK = ScriptedCall(name="look", arguments='{"at": "K\u00f6ln \U0001f980"}')

HTTP_FAULTS: Final[Mapping[str, tuple[Reply, type[ProviderError]]]] = {
    "a limit": (Reply(status=429, body=b"{}"), RateLimited),
    "an error of the service": (Reply(status=500, body=b"oops"), Overloaded),
    "an overloaded service": (Reply(status=503, body=b"<html>busy</html>"), Overloaded),
    "an empty body": (Reply(body=b""), ProviderProtocolError),
    "no event": (Reply(body=b"", content_type=_EVENTS), ProviderProtocolError),
    "no JSON": (Reply(body=b"{]"), ProviderProtocolError),
    "no object": (Reply(body=b"[]"), ProviderProtocolError),
    "no answer": (Reply(body=b"{}"), ProviderProtocolError),
    "an event without JSON": (
        Reply(body=b"data: {]\n\n", content_type=_EVENTS),
        ProviderProtocolError,
    ),
    "an event without an object": (
        Reply(body=b'data: "text"\n\n', content_type=_EVENTS),
        ProviderProtocolError,
    ),
    "another content type": (Reply(body=b"x", content_type="image/png"), ProviderProtocolError),
    "damaged gzip": (Reply(body=b"x", headers=_GZIP), ProviderProtocolError),
    "an encoding that was not asked for": (
        Reply(body=b"x", headers={"content-encoding": "br"}),
        ProviderProtocolError,
    ),
    "100 MB of JSON": (Reply(body=_BLOCK, body_repeat=1_600), AnswerTooLong),
    "100 MB in one event": (
        Reply(body=b"data: " + _BLOCK, body_repeat=1_600, content_type=_EVENTS),
        AnswerTooLong,
    ),
    "100 MB of comments": (
        Reply(body=b": " + _BLOCK + b"\n", body_repeat=1_600, content_type=_EVENTS),
        AnswerTooLong,
    ),
    "100 MB of an error": (Reply(status=500, body=_BLOCK, body_repeat=1_600), Overloaded),
    "100 MB of JSON in gzip": (Reply(body=_BOMB, headers=_GZIP), AnswerTooLong),
    "100 MB of events in gzip": (
        Reply(body=_BOMB, headers=_GZIP, content_type=_EVENTS),
        AnswerTooLong,
    ),
    "100 MB of an error in gzip": (Reply(status=500, body=_BOMB, headers=_GZIP), Overloaded),
    "3,000 calls": (
        Reply(calls=tuple(ScriptedCall(name="look", id=f"c{n}") for n in range(3_000))),
        AnswerTooLong,
    ),
    "10 MB of arguments": (
        Reply(calls=(ScriptedCall(name="look", arguments="x" * 10_000_000),), chunk_chars=9_999),
        AnswerTooLong,
    ),
    "an error as an answer": (
        Reply(body=b'{"error": {"type": "invalid_request_error", "message": "m"}}'),
        BadRequest,
    ),
    "an error event": (
        Reply(
            body=b'event: error\ndata: {"error": {"type": "rate_limit_error"}}\n\n',
            content_type=_EVENTS,
        ),
        RateLimited,
    ),
    "a cut answer": (Reply(text="x" * 999, stop_after_bytes=900), Unreachable),
    "a reset connection": (
        Reply(text="x" * 999, stop_after_bytes=900, stop="reset"),
        Unreachable,
    ),
}
"""Name to what the service does, and the class of the error."""


class HTTPFaultContract(ConformanceSuite):
    """Subclass it as ``TestFaultsOfMyProvider`` and supply a server and a provider.

    For providers that rest on `HTTPProvider`, or hold its limits of time and size themselves.
    """

    CUT_AFTER_BYTES: ClassVar[tuple[int, ...]] = (0, 1, 50, 200, 400, 600, 800)
    """Where an answer with a tool call is cut; less than the whole answer."""

    @abstractmethod
    def make_server(self, *replies: Reply) -> ModelServer:
        """Return a server of the service's protocol."""

    @abstractmethod
    def make_provider(self, folder: Path, **section: object) -> LLMProvider:
        """Return the provider with `section` as its settings, among them ``api_base``."""

    @asynccontextmanager
    async def _serving(
        self, folder: Path, *replies: Reply, **section: object
    ) -> AsyncIterator[tuple[LLMProvider, ModelServer]]:
        async with asyncio.timeout(_LIMIT_S), self.make_server(*replies) as server:
            known = {"api_base": server.url, "api_key": "sk-test"}
            provider = self.make_provider(folder, **(known | section))
            try:
                yield provider, server
            finally:
                await provider.aclose()

    @pytest.mark.parametrize("fault", HTTP_FAULTS)
    async def test_a_fault_gives_a_typed_error_and_leaves_nothing_open(
        self, tmp_path: Path, fault: str
    ) -> None:
        reply, error = HTTP_FAULTS[fault]
        async with self._serving(tmp_path, reply) as (provider, server):
            handles, tasks = _open_handles(), len(asyncio.all_tasks())
            with pytest.raises(ProviderError) as raised:
                await _streamed(provider)
            await provider.aclose()
            await server.wait_for_connections(0)
            gc.collect()
            assert _open_handles() <= handles
            assert len(asyncio.all_tasks()) <= tasks
        assert type(raised.value) is error

    @pytest.mark.parametrize("stop_after_bytes", [0, 600])
    async def test_a_silent_service_is_left_after_the_time_limit(
        self, tmp_path: Path, stop_after_bytes: int
    ) -> None:
        reply = Reply(text="x" * 999, stop_after_bytes=stop_after_bytes, stop="stall")
        async with self._serving(tmp_path, reply, timeout_s=0.1) as (provider, server):
            with pytest.raises(ProviderTimeout):
                await _streamed(provider)
            await server.requests[0].disconnected.wait()

    async def test_no_call_of_a_cut_answer_is_given(self, tmp_path: Path) -> None:
        cuts = self.CUT_AFTER_BYTES
        call = ScriptedCall(name="delete", arguments='{"path": "' + "x" * 2_000 + '"}')
        replies = [Reply(calls=(call,), stop_after_bytes=cut) for cut in cuts]
        async with self._serving(tmp_path, *replies) as (provider, _):
            for _ in cuts:
                with pytest.raises(ProviderError):
                    await _streamed(provider)

    @pytest.mark.parametrize("write_bytes", [1, 7, 64])
    async def test_any_division_of_the_stream_gives_the_same_answer(
        self, tmp_path: Path, write_bytes: int
    ) -> None:
        reply = Reply(text="Gr\u00fc\u00dfe \U0001f980", calls=(_LOOK,), write_bytes=write_bytes)
        async with self._serving(tmp_path, reply) as (provider, _):
            response = await _streamed(provider)
        assert response.content == "Gr\u00fc\u00dfe \U0001f980"
        assert response.tool_calls[0].arguments == {"at": "K\u00f6ln \U0001f980"}

    @pytest.mark.parametrize("status", [301, 302, 307, 308])
    async def test_a_redirect_takes_the_key_nowhere(self, tmp_path: Path, status: int) -> None:
        async with self.make_server() as other:
            moved = Reply(status=status, body=b"", headers={"location": f"{other.url}/x"})
            async with self._serving(tmp_path, moved) as (provider, _):
                with pytest.raises(BadRequest, match="api_base"):
                    await _streamed(provider)
            assert other.connections_seen == 0

    async def test_failed_tls_is_unreachable(self, tmp_path: Path) -> None:
        async def answer_plainly(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(b"no TLS here\r\n\r\n")
            writer.close()

        async with await asyncio.start_server(answer_plainly, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            base = f"https://127.0.0.1:{port}"
            async with self._serving(tmp_path, api_base=base) as (provider, _):
                with pytest.raises(Unreachable):
                    await _streamed(provider)

    async def test_a_refused_connection_names_the_host(self, tmp_path: Path) -> None:
        with socket.socket() as unused:
            unused.bind(("127.0.0.1", 0))
            base = f"http://127.0.0.1:{unused.getsockname()[1]}"
            async with self._serving(tmp_path, api_base=base) as (provider, _):
                with pytest.raises(Unreachable, match=r"127\.0\.0\.1"):
                    await _streamed(provider)

    @pytest.mark.parametrize(
        "reply",
        [
            Reply(status=401, body=b'{"error": {"message": "Bearer sk-canary-1"}}'),
            Reply(status=400, body=b'{"error": {"message": "sk-canary-1 and hd-canary-2"}}'),
            Reply(body=b"x", content_type="sk-canary-1"),
            Reply(body=b'{"error": {"message": "hd-canary-2", "code": "sk-canary-1"}}'),
            Reply(text="x", stop_after_bytes=0),
        ],
    )
    async def test_no_secret_is_in_an_error_or_its_traceback(
        self, tmp_path: Path, reply: Reply
    ) -> None:
        section = {"api_key": "sk-canary-1", "extra_headers": {"X-Key": "hd-canary-2"}}
        async with self._serving(tmp_path, reply, **section) as (provider, server):
            with pytest.raises(ProviderError) as raised:
                await _streamed(provider)
            assert server.requests[0].headers["x-key"] == "hd-canary-2"
            assert "sk-canary-1" in "".join(server.requests[0].headers.values())
        text = "".join(traceback.format_exception(raised.value)) + repr(raised.value)
        assert "canary" not in text


def _open_handles() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


async def _streamed(provider: LLMProvider) -> LLMResponse:
    request = ChatRequest(messages=(Message(role="user", content="hello"),), model="contract-model")
    async for event in provider.chat_stream(request):
        if isinstance(event, Completed):
            return event.response
    raise AssertionError("the stream ended without an answer")
