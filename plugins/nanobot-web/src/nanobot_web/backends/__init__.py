"""The search services that need no further package."""

from __future__ import annotations

from nanobot_web.backend import SearchBackend
from nanobot_web.backends.brave import BraveSearch
from nanobot_web.backends.duckduckgo import DuckDuckGoSearch
from nanobot_web.backends.jina import JinaSearch
from nanobot_web.backends.searxng import SearxngSearch
from nanobot_web.backends.tavily import TavilySearch

BUILT_IN: tuple[SearchBackend, ...] = (
    BraveSearch(),
    DuckDuckGoSearch(),
    JinaSearch(),
    SearxngSearch(),
    TavilySearch(),
)
