"""The stored sessions, for programs that list, show and change them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import yaml
from hypothesis import HealthCheck, given, settings, strategies as st

from nanobot_core import (
    Message,
    SessionAccess,
    SessionError,
)
from nanobot_core.app import histories
from nanobot_core.app.histories import MAX_TITLE_CHARS
from nanobot_core.contracts.store import SessionSummary
from nanobot_core.sessions.folder import SessionFolder
from tests.gateways import GatewayKeeper, Platform, running, write_config

pytestmark = pytest.mark.anyio
COUNT = 12


@pytest.fixture
async def sessions(tmp_path: Path) -> AsyncIterator[SessionAccess]:
    home, keeper = tmp_path / "home", GatewayKeeper()
    home.mkdir()
    config = {"plugins": {"policy": "listed"}, "gateway": {"port": 0}}
    (home / "config.yaml").write_text(yaml.safe_dump(config))
    async with running(home, None, keeper):
        yield keeper.gateway.client.sessions


def said(count: int = COUNT) -> list[Message]:
    return [
        Message(role="assistant" if number % 2 else "user", content=f"message {number}")
        for number in range(count)
    ]


async def test_pages_join_to_the_whole_history(
    sessions: SessionAccess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(histories, "_HELD", 5)  # older pages are read from the file
    await sessions.create("web:a", said())

    found: list[str] = []
    before: int | None = None
    while before != 0:
        page = await sessions.page("web:a", before=before, limit=5)
        assert page is not None
        assert page.total == COUNT
        found[:0] = [message.text for message in page.messages]
        before = page.first_index

    assert found == [message.text for message in said()]


async def test_a_page_is_read_without_a_look_at_other_sessions(
    sessions: SessionAccess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The page in the browser asks in every turn, and each answer listed all sessions."""
    await sessions.create("web:a", said())
    await sessions.create("web:b", said())
    (listed,) = [entry for entry in await sessions.entries() if entry.key == "web:a"]

    def refuse(folder: SessionFolder) -> list[SessionSummary]:
        raise AssertionError(folder)

    monkeypatch.setattr(SessionFolder, "summaries", refuse)
    page = await sessions.page("web:a", limit=1)
    assert page is not None
    assert (page.entry.updated_at, page.entry.size) == (listed.updated_at, listed.size)


@pytest.mark.parametrize(
    ("before", "limit", "first", "count"),
    [
        (None, 5, 7, 5),
        (7, 5, 2, 5),
        (2, 5, 0, 2),
        (0, 5, 0, 0),
        (-3, 5, 0, 0),
        (99, 5, 7, 5),
        (None, 0, 11, 1),
        (None, 10_000, 0, 12),
    ],
)
async def test_a_page_is_bounded(
    sessions: SessionAccess, before: int | None, limit: int, first: int, count: int
) -> None:
    await sessions.create("web:a", said())

    page = await sessions.page("web:a", before=before, limit=limit)

    assert page is not None
    assert (page.first_index, len(page.messages)) == (first, count)
    assert [message.text for message in page.messages] == [
        f"message {number}" for number in range(first, first + count)
    ]


async def test_sessions_are_listed_with_a_title_or_their_newest_message(
    sessions: SessionAccess,
) -> None:
    await sessions.create("web:a", said())
    await sessions.create("web:b", [Message(role="user", content="line\n  and line " + "x" * 200)])
    assert await sessions.set_title("web:a", "  My \n title ")

    listed = {entry.key: entry for entry in await sessions.entries()}

    assert (listed["web:a"].title, listed["web:a"].is_titled) == ("My title", True)
    assert listed["web:b"].title.startswith("line and line x")
    assert len(listed["web:b"].title) <= 80
    assert not listed["web:b"].is_titled
    assert listed["web:a"].size > 0
    assert len(await sessions.entries(offset=1, limit=1)) == 1
    assert list(await sessions.entries(offset=2)) == []


async def test_a_title_is_bounded_removed_and_leaves_the_history(sessions: SessionAccess) -> None:
    await sessions.create("web:a", said())

    await sessions.set_title("web:a", "x" * 1_000)
    long = await sessions.page("web:a")
    await sessions.set_title("web:a", "")
    none = await sessions.page("web:a")

    assert long is not None
    assert none is not None
    assert len(long.entry.title) <= MAX_TITLE_CHARS
    assert not none.entry.is_titled
    assert none.total == COUNT
    assert not await sessions.set_title("web:none", "x")
    assert await sessions.page("web:none") is None


async def test_search_finds_in_all_sessions_and_is_bounded(sessions: SessionAccess) -> None:
    await sessions.create("web:a", said())
    await sessions.create("web:b", [Message(role="user", content="MESSAGE in a bottle")])

    found = await sessions.search("Message", limit=3)
    exact = await sessions.search("message 7")

    assert len(found) == 3
    assert [(hit.key, hit.index, hit.message.text) for hit in exact] == [("web:a", 7, "message 7")]
    assert list(await sessions.search("")) == []
    assert list(await sessions.search("nothing like it")) == []


async def test_a_branch_has_the_beginning_and_its_own_future(sessions: SessionAccess) -> None:
    await sessions.create("web:a", said())

    assert await sessions.branch("web:a", 4, "web:b")

    branch, whole = await sessions.page("web:b"), await sessions.page("web:a")
    assert branch is not None
    assert whole is not None
    assert [message.text for message in branch.messages] == [f"message {n}" for n in range(4)]
    assert whole.total == COUNT
    assert not await sessions.branch("web:none", 1, "web:c")
    with pytest.raises(SessionError, match="exists"):
        await sessions.branch("web:a", 1, "web:b")
    with pytest.raises(SessionError, match="exists"):
        await sessions.create("web:a", [])


async def test_of_two_that_create_a_session_one_does(sessions: SessionAccess) -> None:
    done = await asyncio.gather(
        *(sessions.create("web:a", said(2)) for _ in range(2)), return_exceptions=True
    )

    page = await sessions.page("web:a")
    assert sorted(type(each).__name__ for each in done) == ["NoneType", "SessionError"]
    assert page is not None
    assert page.total == 2


async def test_a_deleted_session_is_gone(sessions: SessionAccess) -> None:
    await sessions.create("web:a", said())

    assert await sessions.delete("web:a")

    assert await sessions.page("web:a") is None
    assert list(await sessions.entries()) == []
    assert not await sessions.delete("web:a")


async def test_a_session_of_another_channel_is_readable_and_busy_while_it_works(
    tmp_path: Path,
) -> None:
    keeper = GatewayKeeper()
    ask = {"approval": [{"tool": "note", "action": "ask"}]}
    async with Platform() as platform:
        write_config(tmp_path, platform, tools=ask)
        async with running(tmp_path, None, keeper):
            await platform.say('call note {"word": "once"}')
            await platform.shows("Run note?")
            busy = await keeper.gateway.client.sessions.page("chatty:1")
            with pytest.raises(SessionError):
                await keeper.gateway.client.sessions.delete("chatty:1")

    assert busy is not None
    assert busy.is_busy
    assert busy.messages[0].text == 'call note {"word": "once"}'


@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=st.text(max_size=60))
async def test_any_text_can_be_searched_and_be_a_title(sessions: SessionAccess, text: str) -> None:
    if await sessions.page("web:a") is None:
        await sessions.create("web:a", said(2))

    await sessions.search(text)
    await sessions.set_title("web:a", text)

    page = await sessions.page("web:a")
    assert page is not None
    assert page.total == 2
    assert "\n" not in page.entry.title
