"""SearXNG, https://docs.searxng.org/dev/search_api.html."""

from __future__ import annotations

from collections.abc import Sequence

from nanobot_web.backend import SearchAccess, SearchBackend, SearchHit, hits_from_json


class SearxngSearch(SearchBackend):
    """Searches with an instance of SearXNG whose settings allow the format ``json``."""

    name = "searxng"
    url_variable = "SEARXNG_BASE_URL"

    async def search(self, access: SearchAccess, query: str, count: int) -> Sequence[SearchHit]:
        """Ask the instance; it cannot be told how many results are wanted."""
        request = access.client.build_request(
            "GET", f"{access.base_url}/search", params={"q": query, "format": "json"}
        )
        answer = await access.send_for_json(self.name, request)
        return hits_from_json(answer.get("results"), snippet="content")
