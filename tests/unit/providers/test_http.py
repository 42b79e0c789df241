"""A provider of an invented service, before a server that plays it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest

from nanobot_core import (
    AuthenticationFailed,
    ChatRequest,
    Completed,
    LLMResponse,
    Message,
    ModelInfo,
    ProviderError,
    ProviderSettings,
    ProviderSpec,
    StreamEvent,
    Usage,
)
from nanobot_core.providers import (
    AnswerBuilder,
    AnswerReader,
    FailureReader,
    FailureWords,
    HTTPProvider,
    key_hint,
    resolve_endpoint,
)
from nanobot_core.providers.answer import parse_payload
from nanobot_core.testing import (
    FakeClock,
    FakePluginContext,
    ModelServer,
    RecordedRequest,
    Reply,
    pieces,
)

pytestmark = pytest.mark.anyio

SPEC = ProviderSpec(name="acme", factory="x:y", api_key_env=("ACME_KEY",))
NOW = datetime(2026, 1, 1, tzinfo=UTC)


class AcmeReader(AnswerReader):
    """Reads ``{"say": text}`` and ``{"end": true}``."""

    def __init__(self) -> None:
        self._answer = AnswerBuilder("acme")
        self._ended = False

    def feed(self, payload: dict[str, Any]) -> Iterator[StreamEvent]:
        if text := payload.get("say"):
            yield self._answer.text(text)
        self._ended = self._ended or bool(payload.get("end"))

    @property
    def is_complete(self) -> bool:
        return self._ended

    @property
    def has_ended(self) -> bool:
        return self._ended

    def response(self) -> LLMResponse:
        return self._answer.response("stop", Usage())


class AcmeProvider(HTTPProvider):
    path = "/ask"

    def encode(self, request: ChatRequest, *, stream: bool) -> bytes:
        return json.dumps({"text": request.messages[-1].text, "stream": stream}).encode()

    def reader(self) -> AcmeReader:
        return AcmeReader()

    async def headers(self, request: ChatRequest | None) -> Mapping[str, str]:
        return {"x-acme-token": "fresh"}


class AcmeServer(ModelServer):
    def is_request(self, request: RecordedRequest) -> bool:
        return request.path == "/v1/ask"

    def echo(self, request: RecordedRequest) -> Reply:
        return Reply(text=request.body["text"])

    def render(self, reply: Reply, request: RecordedRequest) -> dict[str, Any]:
        return {"say": reply.text, "end": True}

    def render_events(self, reply: Reply, request: RecordedRequest) -> Iterator[str]:
        yield from (f"data: {json.dumps({'say': piece})}" for piece in pieces(reply.text, reply))
        yield 'data: {"end": true}'

    def refusal(self, request: RecordedRequest) -> Reply | None:
        if request.headers.get("x-key") == "right":
            return None
        return Reply(status=401, body=b'{"error": {"message": "wrong key canary"}}')


Opened = Callable[..., AbstractAsyncContextManager[tuple[AcmeProvider, AcmeServer]]]


@pytest.fixture
def opened(tmp_path: Path) -> Opened:
    @asynccontextmanager
    async def opened(key: str = "right") -> AsyncIterator[tuple[AcmeProvider, AcmeServer]]:
        ctx = FakePluginContext(tmp_path)
        async with AcmeServer(models=("acme-1", "acme-2")) as server:
            settings = ProviderSettings.model_validate({"api_key": key, "api_base": server.origin})
            endpoint = resolve_endpoint(ctx, SPEC, settings, path="/ask", key_header="x-key")
            failures = FailureReader(
                provider="acme",
                key_hint=key_hint(SPEC),
                secrets=endpoint.secrets,
                clock=ctx.clock,
            )
            provider = AcmeProvider(SPEC, endpoint, failures)
            yield provider, server
            await provider.aclose()

    return opened


REQUEST = ChatRequest(messages=(Message(role="user", content="Hello, Köln!" * 9),), model="m")


async def test_an_invented_protocol_needs_a_body_and_a_reader(opened: Opened) -> None:
    async with opened() as (provider, server):
        last = [event async for event in provider.chat_stream(REQUEST)][-1]
        assert last == Completed(await provider.chat(REQUEST))
    assert last.response.content == "Hello, Köln!" * 9
    assert [seen.headers["x-acme-token"] for seen in server.requests] == ["fresh", "fresh"]


async def test_models_are_listed_without_a_call(opened: Opened) -> None:
    async with opened() as (provider, server):
        assert await provider.list_models() == [ModelInfo(name="acme-1"), ModelInfo(name="acme-2")]
        assert not server.requests


async def test_a_refused_key_names_the_setting_and_quotes_nothing(opened: Opened) -> None:
    async with opened("wrong") as (provider, _):
        with pytest.raises(AuthenticationFailed, match=r"providers\.acme\.api_key") as raised:
            await provider.chat(REQUEST)
    assert "canary" not in str(raised.value)


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"x-reset": "2026-01-01T00:00:30Z"}, 30.0),
        ({"x-reset": "2026-01-01T00:00:30Z", "retry-after": "2"}, 2.0),
        ({"x-reset": "2025-12-31T00:00:00Z"}, 0.0),
        ({"x-reset": "soon"}, None),
    ],
)
def test_a_limit_ends_when_the_service_says(headers: dict[str, str], seconds: float | None) -> None:
    words = FailureWords(reset_headers=("x-reset",))
    reader = FailureReader(
        provider="acme", key_hint="", secrets=(), clock=FakeClock(NOW), words=words
    )
    assert reader.from_status(429, headers, b"").retry_after_s == seconds


def test_numbers_that_json_lacks_do_not_cost_the_rest_of_a_payload() -> None:
    assert parse_payload('{"a": NaN, "b": [1e999, -Infinity, 1.5]}') == {
        "a": None,
        "b": [None, None, 1.5],
    }


def _tree(kind: type[Exception]) -> list[type[Exception]]:
    return [kind, *(found for below in kind.__subclasses__() for found in _tree(below))]


@pytest.mark.parametrize(
    "kind",
    [*_tree(httpx.HTTPError), *_tree(httpx.StreamError), httpx.InvalidURL, httpx.CookieConflict],
)
def test_every_error_of_the_http_library_becomes_ours(kind: type[Exception]) -> None:
    reader = FailureReader(provider="v", key_hint="", secrets=("canary",), clock=FakeClock())
    error = kind.__new__(kind, "canary")
    Exception.__init__(error, "canary")
    found = reader.from_httpx(error, "http://h", None)
    assert isinstance(found, ProviderError)
    assert kind.__name__ in str(found)
    assert "canary" not in str(found)
