"""Brave Search, https://api-dashboard.search.brave.com/app/documentation."""

from __future__ import annotations

from collections.abc import Sequence

from nanobot_web.backend import (
    SearchAccess,
    SearchBackend,
    SearchHit,
    hits_from_json,
    without_markup,
)


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
