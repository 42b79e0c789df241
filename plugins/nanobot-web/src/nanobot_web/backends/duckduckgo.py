"""DuckDuckGo without a key, through its page for browsers without scripts."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, urlsplit

from nanobot_core import ToolFailed
from nanobot_web.backend import SearchAccess, SearchBackend, SearchHit

if TYPE_CHECKING:
    from lxml.html import HtmlElement  # type: ignore[import-untyped]  # lxml has no types

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
        ToolFailed: the page is no page of results.
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
