"""The file behind keys and requests: what many requests ask of it at the same time."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import pytest

from nanobot_api.database import Database, StoreUnusable
from nanobot_api.keys import ApiKey, KeyExists, KeyStore
from nanobot_api.records import Records
from nanobot_core.testing import FakePluginContext

pytestmark = pytest.mark.anyio
COUNT = 20


@pytest.fixture
async def ctx(tmp_path: Path) -> AsyncIterator[FakePluginContext]:
    async with FakePluginContext(tmp_path, plugin_id="api") as ctx:
        yield ctx


def _key(name: str) -> ApiKey:
    return ApiKey(name=name, created_at=datetime(2026, 1, 1, tzinfo=UTC))


async def test_requests_at_the_same_time_share_a_transaction(
    ctx: FakePluginContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each waited for the disk by itself, one after another."""
    database, records = ctx.shared(Database), ctx.shared(Records)
    commits: list[str] = []
    real = sqlite3.connect

    def traced(path: Path, *, timeout: float, isolation_level: None) -> sqlite3.Connection:
        connection = real(path, timeout=timeout, isolation_level=isolation_level)
        connection.set_trace_callback(
            lambda text: commits.append(text) if text == "COMMIT" else None
        )
        return connection

    monkeypatch.setattr(sqlite3, "connect", traced)
    names = [f"api:a:once-{number}" for number in range(COUNT)]
    await asyncio.gather(*(database.finish(partial(records.add_temporary, name)) for name in names))
    assert len(commits) == 1
    assert sorted(await database.finish(records.temporary)) == sorted(names)
    assert await database.finish(lambda: records.is_temporary(names[0]))
    assert not await database.finish(lambda: records.is_temporary("api:a:session-x"))


async def test_what_fails_among_them_fails_alone_and_leaves_nothing(ctx: FakePluginContext) -> None:
    database, store, records = ctx.shared(Database), ctx.shared(KeyStore), ctx.shared(Records)

    def half_done() -> None:
        with database.transaction():
            records.add_temporary("half")
            store.add(_key("b"))

    results = await asyncio.gather(
        database.finish(lambda: store.add(_key("a"))),
        database.finish(lambda: store.add(_key("b"))),
        database.finish(half_done),
        database.finish(lambda: records.add_temporary("whole")),
        return_exceptions=True,
    )
    assert isinstance(results[2], KeyExists)
    assert not any(isinstance(result, BaseException) for result in (*results[:2], results[3]))
    assert [key.name for key in await database.finish(store.all)] == ["a", "b"]
    assert await database.finish(records.temporary) == ["whole"]


async def test_nothing_counts_as_stored_when_sqlite_undoes_all(ctx: FakePluginContext) -> None:
    database, records = ctx.shared(Database), ctx.shared(Records)

    def like_a_full_disk() -> None:
        with database.transaction() as connection:
            connection.execute("ROLLBACK")
            raise sqlite3.OperationalError("database or disk is full")

    results = await asyncio.gather(
        database.finish(lambda: records.add_temporary("before")),
        database.finish(like_a_full_disk),
        database.finish(lambda: records.add_temporary("after")),
        return_exceptions=True,
    )
    assert [type(result) for result in results] == [StoreUnusable] * 3
    assert "disk is full" in str(results[1])
    assert await database.finish(records.temporary) == []
    await database.finish(lambda: records.add_temporary("again"))
    assert await database.finish(records.temporary) == ["again"]
