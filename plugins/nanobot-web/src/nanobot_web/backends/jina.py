"""Jina AI, https://jina.ai/reader."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import quote

from nanobot_web.backend import SearchAccess, SearchBackend, SearchHit, hits_from_json


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
