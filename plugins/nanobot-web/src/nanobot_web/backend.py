"""SearchBackend: the interface of a search service."""

from __future__ import annotations

import html
import json
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from nanobot_core import JsonObject, ToolFailed
from nanobot_core.net import BoundedResponse, FetchLimits, fetch

if TYPE_CHECKING:
    import httpx

_MARKUP = re.compile(r"<[^<>]{1,500}>")
_TITLE_CHARS = 200
_SNIPPET_CHARS = 600
_URL_CHARS = 2_000


@dataclass(frozen=True, slots=True)
class SearchHit:
    """One result: a page, and what the service says of it, as plain text on one line each."""

    title: str
    url: str
    snippet: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchAccess:
    """Resources for one search.

    Attributes:
        client: sends the requests; it reaches what the owner allows and has the owner's proxy.
        base_url: address of the service, without a slash at the end.
        api_key: key of the service; empty if there is none.
        limits: limits of one request.
    """

    client: httpx.AsyncClient
    base_url: str
    api_key: str
    limits: FetchLimits

    async def send(self, backend: str, request: httpx.Request) -> BoundedResponse:
        """Return the answer to `request`.

        Raises:
            ToolFailed: none came, or one that is not a success.
        """
        response = await fetch(self.client, request, self.limits)
        if not 200 <= response.status < 300:
            raise ToolFailed(f"{backend} answered with HTTP status {response.status}")
        return response

    async def send_for_json(self, backend: str, request: httpx.Request) -> JsonObject:
        """Return the JSON object that answers `request`.

        Raises:
            ToolFailed: no answer came, or another one.
        """
        response = await self.send(backend, request)
        try:
            found: Any = json.loads(response.content)
        except (ValueError, RecursionError) as error:
            raise ToolFailed(f"{backend} answered with something that is not JSON") from error
        if not isinstance(found, dict):
            raise ToolFailed(f"{backend} answered with a JSON value that is not an object")
        return found


class SearchBackend(ABC):
    """One search service. An instance serves all sessions and holds no state of a search.

    Attributes:
        name: its name in ``tools.web.search.provider``.
        default_url: the service's address; empty where only the owner knows it.
        key_variable: environment variable of its key; empty if it needs none.
        url_variable: environment variable of its address; empty if there is none.
        needs_key: it cannot be used without a key.
    """

    name: ClassVar[str]
    default_url: ClassVar[str] = ""
    key_variable: ClassVar[str] = ""
    url_variable: ClassVar[str] = ""
    needs_key: ClassVar[bool] = False

    @abstractmethod
    async def search(self, access: SearchAccess, query: str, count: int) -> Sequence[SearchHit]:
        """Return the results, the best first; those beyond `count` are left out later.

        Args:
            access: how the service is reached.
            count: wanted results, 1 to 10.

        Raises:
            ToolFailed: the service did not answer with results; another backend is asked then.

        Cancellation:
            The search must end.
        """


def hits_from_json(items: object, *, snippet: str) -> list[SearchHit]:
    """Return the results in a list of JSON objects that have ``title`` and ``url``.

    Args:
        items: the list in the service's answer; entries of another form are skipped.
        snippet: key of the text.
    """
    return [
        SearchHit(
            str(item.get("title") or ""), str(item.get("url") or ""), str(item.get(snippet) or "")
        )
        for item in (items if isinstance(items, list) else ())
        if isinstance(item, dict)
    ]


def without_markup(text: str) -> str:
    """Return `text` of a service that marks words with tags and writes entities."""
    return html.unescape(_MARKUP.sub("", text))


def tidy(hits: Iterable[SearchHit]) -> list[SearchHit]:
    """Return the results as bounded plain text; those that lead to no web page are left out."""
    return [
        SearchHit(
            _one_line(hit.title, _TITLE_CHARS) or hit.url,
            hit.url,
            _one_line(hit.snippet, _SNIPPET_CHARS),
        )
        for hit in hits
        if hit.url.startswith(("http://", "https://"))
        and len(hit.url) <= _URL_CHARS
        and hit.url.isprintable()
        and " " not in hit.url
    ]


def _one_line(text: str, limit: int) -> str:
    plain = " ".join(text[: 10 * limit].split())
    return plain if len(plain) <= limit else f"{plain[: limit - 1]}…"
