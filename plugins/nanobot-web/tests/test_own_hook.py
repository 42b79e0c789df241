"""Other packages add search backends."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest

from nanobot_core import Contributed, PluginContext, ToolFailed
from nanobot_core.testing import FakePluginContext, call_in, output_text
from nanobot_web import SearchAccess, SearchBackend, SearchHit, web_search_backends
from nanobot_web.web_search import WebSearchTool


class Library(SearchBackend):
    name = "library"
    default_url = "https://library.example"

    async def search(self, access: SearchAccess, query: str, count: int) -> Sequence[SearchHit]:
        return (SearchHit(f"{access.base_url}: {query}", "https://library.example/1"),)


class Broken(Library):
    name = "broken"

    async def search(self, access: SearchAccess, query: str, count: int) -> Sequence[SearchHit]:
        raise LookupError("secret")


class Pretender(Library):
    name = "brave"


@web_search_backends
def give(ctx: PluginContext) -> Iterable[SearchBackend]:
    return (Library(),)


def context(folder: Path, provider: str, *given: object) -> FakePluginContext:
    return FakePluginContext(
        folder,
        plugin_id="web",
        settings={"search": {"provider": provider, "fallback": ["library"]}},
        contributions={"web_search_backends": [Contributed("library", item) for item in given]},
    )


async def search(context: FakePluginContext) -> str:
    async with context:
        tool = WebSearchTool(context)
        return output_text(await tool.execute(call_in(context.workspace), {"query": "q"}))


async def test_a_backend_of_another_package_is_asked(tmp_path: Path) -> None:
    ctx = context(tmp_path, "library", *give(FakePluginContext(tmp_path)))

    assert "1. https://library.example: q" in await search(ctx)


async def test_one_that_fails_in_its_own_way_is_replaced(tmp_path: Path) -> None:
    found = await search(context(tmp_path, "broken", Broken(), Library()))

    assert "(broken failed with LookupError. Asked library instead.)" in found


async def test_what_is_not_a_backend_or_takes_a_name_of_ours_is_left_out(tmp_path: Path) -> None:
    with pytest.raises(ToolFailed, match=r"brave needs a key.*unknown search backend 'library'"):
        await search(context(tmp_path, "brave", Pretender(), "library", Library))
