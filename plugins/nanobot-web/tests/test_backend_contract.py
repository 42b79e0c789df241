"""The search backends keep their contract."""

from __future__ import annotations

import httpx

from nanobot_core import JsonObject
from nanobot_web import SearchBackend
from nanobot_web.backends import (
    BraveSearch,
    DuckDuckGoSearch,
    JinaSearch,
    SearxngSearch,
    TavilySearch,
)
from nanobot_web.testing import SearchContract

HIT: JsonObject = {"title": "Bonn", "url": "https://bonn.example/", "content": "A city."}


class TestBrave(SearchContract):
    def make_backend(self) -> SearchBackend:
        return BraveSearch()

    def answer(self, count: int) -> httpx.Response:
        return httpx.Response(200, json={"web": {"results": [HIT] * count}})


class TestTavily(SearchContract):
    def make_backend(self) -> SearchBackend:
        return TavilySearch()

    def answer(self, count: int) -> httpx.Response:
        return httpx.Response(200, json={"results": [HIT] * count})


class TestSearxng(SearchContract):
    def make_backend(self) -> SearchBackend:
        return SearxngSearch()

    def answer(self, count: int) -> httpx.Response:
        return httpx.Response(200, json={"results": [HIT] * count})


class TestJina(SearchContract):
    def make_backend(self) -> SearchBackend:
        return JinaSearch()

    def answer(self, count: int) -> httpx.Response:
        return httpx.Response(200, json={"data": [HIT] * count})


class TestDuckDuckGo(SearchContract):
    def make_backend(self) -> SearchBackend:
        return DuckDuckGoSearch()

    def answer(self, count: int) -> httpx.Response:
        hit = (
            '<div class="result "><a class="result__a" href="https://bonn.example/">Bonn</a></div>'
        )
        return httpx.Response(200, html=f"<html><body>{hit * count}</body></html>")
