"""The search services that need no further package."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, quote, urlsplit

from nanobot_core import ToolFailed
from nanobot_web.backend import (
    SearchAccess,
    SearchBackend,
    SearchHit,
    hits_from_json,
    without_markup,
)

if TYPE_CHECKING:
    from lxml.html import HtmlElement  # type: ignore[import-untyped]  # lxml has no types


class BraveSearch(SearchBackend):
    """Searches with a key of Brave."""

    name = "brave"
    default_url = "https://api.search.brave.com"
    key_variable = "BRAVE_API_KEY"
    needs_key = True

    async def search(self, access: SearchAccess, query: str, count: int) -> Sequence[SearchHit]:
        """Ask the web search endpoint."""
        request = access.client.build_request(
            "GET",
            f"{access.base_url}/res/v1/web/search",
            params={"q": query, "count": count},
            headers={"Accept": "application/json", "X-Subscription-Token": access.api_key},
        )
        answer = await access.send_for_json(self.name, request)
        web = answer.get("web")
        found = web.get("results") if isinstance(web, dict) else None
        return [
            SearchHit(without_markup(hit.title), hit.url, without_markup(hit.snippet))
            for hit in hits_from_json(found, snippet="description")
        ]


_CHALLENGE_STATUS = 202
_CHALLENGE = "//*[contains(@class, 'anomaly-modal')]"
_RESULTS = "//div[contains(concat(' ', @class, ' '), ' result ')]"
_LINK = ".//a[contains(@class, 'result__a')]"
_SNIPPET = ".//*[contains(@class, 'result__snippet')]"


class DuckDuckGoSearch(SearchBackend):
    """Searches without a key. The page is made for people: its form may change without notice."""

    name = "duckduckgo"
    default_url = "https://html.duckduckgo.com"

    async def search(self, access: SearchAccess, query: str, count: int) -> Sequence[SearchHit]:
        """Ask for the page and read it."""
        request = access.client.build_request("POST", f"{access.base_url}/html/", data={"q": query})
        response = await access.send(self.name, request)
        if response.status == _CHALLENGE_STATUS:
            raise ToolFailed(_CHALLENGED)
        return await asyncio.to_thread(parse_page, response.content)


_CHALLENGED = "duckduckgo asks for proof that a person is searching; wait, or use another backend"


def parse_page(page: bytes) -> list[SearchHit]:
    """Return the results on a page, advertisements left out.

    Raises:
        ToolFailed: the page has no list of results.
    """
    from lxml.etree import ParserError  # type: ignore[import-untyped]  # lxml has no types
    from lxml.html import HTMLParser, document_fromstring

    try:
        document = document_fromstring(page, parser=HTMLParser(encoding="utf-8"))
    except ParserError as error:
        raise ToolFailed("duckduckgo answered with an empty page") from error
    if document.xpath(_CHALLENGE):
        raise ToolFailed(_CHALLENGED)
    return [hit for each in document.xpath(_RESULTS) if (hit := _hit(each)) is not None]


def _hit(result: HtmlElement) -> SearchHit | None:
    links = result.xpath(_LINK)
    if not links or "result--ad" in result.get("class", ""):
        return None
    snippets = result.xpath(_SNIPPET)
    return SearchHit(
        links[0].text_content(),
        _target(links[0].get("href", "")),
        snippets[0].text_content() if snippets else "",
    )


def _target(href: str) -> str:
    """Return the address behind a link, which may lead over DuckDuckGo's own counter."""
    parts = urlsplit(href)
    if parts.path == "/l/" and (found := parse_qs(parts.query).get("uddg")):
        return found[0]
    return href


class JinaSearch(SearchBackend):
    """Searches with a key of Jina AI."""

    name = "jina"
    default_url = "https://s.jina.ai"
    key_variable = "JINA_API_KEY"
    needs_key = True

    async def search(self, access: SearchAccess, query: str, count: int) -> Sequence[SearchHit]:
        """Ask for results without the pages behind them, which cost tokens of the account."""
        request = access.client.build_request(
            "GET",
            f"{access.base_url}/{quote(query, safe='')}",
            headers={
                "Accept": "application/json",
                "Authorization": f"Bearer {access.api_key}",
                "X-Respond-With": "no-content",
            },
        )
        answer = await access.send_for_json(self.name, request)
        return hits_from_json(answer.get("data"), snippet="description")


class SearxngSearch(SearchBackend):
    """Searches with an instance of SearXNG whose settings allow the format ``json``."""

    name = "searxng"
    url_variable = "SEARXNG_BASE_URL"

    async def search(self, access: SearchAccess, query: str, count: int) -> Sequence[SearchHit]:
        """Ask the instance; the number of results cannot be chosen."""
        request = access.client.build_request(
            "GET", f"{access.base_url}/search", params={"q": query, "format": "json"}
        )
        answer = await access.send_for_json(self.name, request)
        return hits_from_json(answer.get("results"), snippet="content")


class TavilySearch(SearchBackend):
    """Searches with a key of Tavily."""

    name = "tavily"
    default_url = "https://api.tavily.com"
    key_variable = "TAVILY_API_KEY"
    needs_key = True

    async def search(self, access: SearchAccess, query: str, count: int) -> Sequence[SearchHit]:
        """Ask the search endpoint."""
        request = access.client.build_request(
            "POST",
            f"{access.base_url}/search",
            json={"query": query, "max_results": count},
            headers={"Authorization": f"Bearer {access.api_key}"},
        )
        answer = await access.send_for_json(self.name, request)
        return hits_from_json(answer.get("results"), snippet="content")


BUILT_IN: tuple[SearchBackend, ...] = (
    BraveSearch(),
    DuckDuckGoSearch(),
    JinaSearch(),
    SearxngSearch(),
    TavilySearch(),
)
