"""Tavily, https://docs.tavily.com/documentation/api-reference/endpoint/search."""

from __future__ import annotations

from collections.abc import Sequence

from nanobot_web.backend import SearchAccess, SearchBackend, SearchHit, hits_from_json


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
