"""The contract of search backends, as a test suite for the packages that add one."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import httpx
import pytest

from nanobot_core import ToolFailed
from nanobot_core.net import FetchLimits
from nanobot_core.testing import ConformanceSuite
from nanobot_web.backend import SearchAccess, SearchBackend, SearchHit

Handler: TypeAlias = Callable[[httpx.Request], Any]  # a response, or an awaitable of one
_LIMIT_S = 5.0
_WANTED = 5


class SearchContract(ConformanceSuite):
    """What every search backend must do. Supply `make_backend` and `answer`."""

    @abstractmethod
    def make_backend(self) -> SearchBackend:
        """Return the backend."""

    @abstractmethod
    def answer(self, count: int) -> httpx.Response:
        """Return the answer of the service with `count` results."""

    @pytest.mark.parametrize("count", [0, 3])
    async def test_it_returns_the_results_of_the_service(self, count: int) -> None:
        hits = await self._search(lambda _: _streamed(self.answer(count)))
        assert len(hits) == count
        assert all(hit.title and hit.url.startswith("http") for hit in hits)

    @pytest.mark.parametrize("status", [403, 429, 500])
    async def test_a_refusal_is_a_failure_of_the_tool(self, status: int) -> None:
        with pytest.raises(ToolFailed):
            await self._search(lambda _: _streamed(httpx.Response(status, text="no")))

    async def test_a_service_that_cannot_be_reached_is_a_failure_of_the_tool(self) -> None:
        def refuse(request: httpx.Request) -> httpx.Response:
            raise httpx.ConnectError("refused", request=request)

        with pytest.raises(ToolFailed):
            await self._search(refuse)

    async def test_a_search_ends_when_it_is_cancelled(self) -> None:
        begun = asyncio.Event()

        async def hang(_request: httpx.Request) -> httpx.Response:
            begun.set()
            await asyncio.Event().wait()
            return self.answer(1)

        async with asyncio.timeout(_LIMIT_S), asyncio.TaskGroup() as group:
            search = group.create_task(self._search(hang))
            await begun.wait()
            search.cancel()
        assert search.cancelled()

    async def _search(self, handler: Handler) -> Sequence[SearchHit]:
        backend = self.make_backend()
        limits = FetchLimits(max_bytes=1_000_000, total_s=_LIMIT_S)
        url = backend.default_url or "https://search.example"
        async with httpx.AsyncClient(transport=httpx.MockTransport(handler)) as client:
            access = SearchAccess(client=client, base_url=url, api_key="key", limits=limits)
            return await backend.search(access, "Bonn", _WANTED)


def _streamed(answer: httpx.Response) -> httpx.Response:
    """Return an answer whose body has not been read yet."""
    stream = httpx.ByteStream(answer.content)
    return httpx.Response(answer.status_code, headers=answer.headers, stream=stream)
