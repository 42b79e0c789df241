from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, closing
from pathlib import Path

import pytest

from nanobot_core import (
    Assignment,
    Delivery,
    JsonObject,
    Nanobot,
    PluginContext,
    Requester,
    Tool,
    ToolCall,
    ToolContext,
    Usage,
    UsageRecorded,
    on,
)
from nanobot_core.testing import FakeClock, FakePluginContext, FakeReply
from nanobot_usage.books import GATHER_S, Books
from nanobot_usage.store import FILE_NAME, UsageStore

pytestmark = pytest.mark.anyio

Start = Callable[..., AbstractAsyncContextManager[Nanobot]]
Reply = Callable[..., FakeReply]
LIMIT_S = 5.0
SESSIONS = ("sdk:default", "boss:one", "boss:two")
CALL = UsageRecorded(
    session_key="sdk:default",
    source="sdk",
    model="large",
    provider="script",
    plugin="script",
    usage=Usage(prompt_tokens=1),
)


def store_of(tmp_path: Path, home: str = "home") -> UsageStore:
    return UsageStore(tmp_path / home / "plugins" / "usage-here")


def calls_in(store: UsageStore) -> int:
    return sum(line.calls for line in store.lines("model", "2000-01-01"))


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(LIMIT_S):
        while not holds():  # noqa: ASYNC110 - what a thread does sets no event
            await asyncio.sleep(0.001)


async def ask(bot: Nanobot, text: str = "hello", **options: str) -> str:
    async with asyncio.timeout(LIMIT_S):
        outcome = await bot.run(text, **options)  # type: ignore[call-overload]  # session and model are texts
    return outcome.reply or f"failed: {outcome.error}"


async def test_every_call_is_recorded_with_its_cost(
    start: Start, reply: Reply, tmp_path: Path
) -> None:
    prices: JsonObject = {"large": {"input": 1, "output": 10}}
    async with start(
        reply(tokens=100, usd=0.5), reply(tokens=100), usage={"prices": prices}
    ) as bot:
        await ask(bot)
        await ask(bot, session="sdk:other")

    with closing(store_of(tmp_path)) as store:
        (line,) = store.lines("model", "2000-01-01")
        sessions = store.lines("session", "2000-01-01")
        (plugin,) = store.lines("plugin", "2000-01-01")
    assert (line.key, line.calls, line.spent.tokens) == ("script/large", 2, 200)
    assert line.nano_usd == 500_000_000 + 90 * 1_000 + 10 * 10_000
    assert [each.key for each in sessions] == ["sdk:default", "sdk:other"]
    assert plugin.key == "script"


async def test_calls_that_come_faster_than_the_disk_takes_them_are_all_recorded(
    start: Start, reply: Reply, tmp_path: Path
) -> None:
    async with start() as bot:
        for number in range(3_000):
            bot.plugins.hooks.on_usage(CALL)
            if number % 100 == 0:
                await asyncio.sleep(0)

    with closing(store_of(tmp_path)) as store:
        assert calls_in(store) == 3_000


async def test_calls_of_a_moment_are_stored_together(tmp_path: Path) -> None:
    clock = FakeClock()
    async with FakePluginContext(tmp_path, clock=clock) as context:
        books = await asyncio.to_thread(Books, context)
        context.on_dispose(books.aclose)
        with closing(UsageStore(context.data_dir)) as store:
            books.record(CALL)
            await until(lambda: calls_in(store) == 1)

            books.record(CALL)
            books.record(CALL)
            await clock.wait_for_sleepers()
            assert calls_in(store) == 1

            await clock.advance(GATHER_S)
            await until(lambda: calls_in(store) == 3)


async def test_calls_whose_write_waits_for_a_thread_are_stored_at_the_end(tmp_path: Path) -> None:
    loop, release = asyncio.get_running_loop(), threading.Event()

    async def release_at_the_end() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)  # the write is cancelled by now
            loop.call_soon(release.set)

    with ThreadPoolExecutor(1) as executor:
        loop.set_default_executor(executor)
        async with FakePluginContext(tmp_path, clock=FakeClock()) as context:
            books = await asyncio.to_thread(Books, context)
            context.on_dispose(books.aclose)
            executor.submit(release.wait, LIMIT_S)
            context.spawn(release_at_the_end(), name="release")
            books.record(CALL)
            for _ in range(10):  # the write is queued behind the other work
                await asyncio.sleep(0)

    with closing(UsageStore(context.data_dir)) as store:
        assert calls_in(store) == 1


@pytest.mark.parametrize("lets_go", [True, False])
async def test_what_cannot_be_stored_for_a_while_counts_all_the_same(
    start: Start, reply: Reply, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lets_go: bool
) -> None:
    monkeypatch.setattr("nanobot_usage.store.BUSY_LIMIT_S", 0.01)
    async with start(reply(), budgets={"day": {"tokens": 100}}) as bot:
        file = tmp_path / "home" / "plugins" / "usage-here" / FILE_NAME
        with closing(sqlite3.connect(file, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            await ask(bot)
            await bot_is_idle(bot)
            if lets_go:
                other.execute("ROLLBACK")

            told = "the day budget is used up" if lets_go else "the record of usage cannot be read"
            assert told in await ask(bot)


@pytest.mark.parametrize(
    ("budgets", "told"),
    [
        ({"day": {"tokens": 100}}, "the day budget is used up (100 of 100 tokens)"),
        ({"session": {"tokens": 90}}, "the session budget is used up (100 of 90 tokens)"),
        ({"day": {"usd": 0.25}}, "the day budget is used up ($0.2500 of $0.25)"),
        ({"turn": {"tokens": 0}}, "the turn budget is used up (0 of 0 tokens)"),
    ],
)
async def test_the_call_after_the_last_token_of_a_budget_is_not_made(
    start: Start, reply: Reply, budgets: JsonObject, told: str
) -> None:
    async with start(reply(usd=0.25), budgets=budgets) as bot:
        if "turn" not in budgets:
            assert (await ask(bot)).startswith("Hello.")

        assert (await ask(bot)).startswith(told)


async def test_a_turn_ends_within_itself_when_its_budget_is_used_up(
    start: Start, tmp_path: Path
) -> None:
    call = FakeReply(tool_calls=(ToolCall("1", "nothing", {}),), usage=Usage(prompt_tokens=60))
    async with start(call, call, budgets={"turn": {"tokens": 100}}) as bot:
        bot.tools.register(NothingTool())

        assert (await ask(bot)).startswith("the turn budget is used up (120 of 100 tokens)")


async def test_another_session_is_not_held_to_the_session_budget(
    start: Start, reply: Reply
) -> None:
    async with start(reply(), reply(), budgets={"session": {"tokens": 100}}) as bot:
        await ask(bot)

        assert (await ask(bot, session="sdk:other")).startswith("Hello.")


async def test_budgets_survive_a_restart(start: Start, reply: Reply) -> None:
    budgets: JsonObject = {"day": {"tokens": 100}}
    async with start(reply(), budgets=budgets) as bot:
        await ask(bot)

    async with start(budgets=budgets) as bot:
        assert (await ask(bot)).startswith("the day budget is used up")


async def test_eighty_per_cent_are_reported_once_also_over_a_restart(
    start: Start, reply: Reply
) -> None:
    budgets: JsonObject = {"day": {"tokens": 120}}
    async with start(reply(tokens=100), budgets=budgets) as bot:
        assert "83% of the day budget are used (100 of 120 tokens)" in await ask(bot)

    async with start(reply(tokens=10), budgets=budgets) as bot:
        assert await ask(bot) == "Hello."


async def test_a_turn_budget_is_warned_of_in_every_turn(start: Start, reply: Reply) -> None:
    async with start(reply(), reply(), budgets={"turn": {"tokens": 120}}) as bot:
        for _ in range(2):
            assert "83% of the turn budget" in await ask(bot)


async def test_two_applications_side_by_side_keep_their_own_books(
    start: Start, reply: Reply, tmp_path: Path
) -> None:
    budgets: JsonObject = {"day": {"tokens": 100}}
    async with (
        start(reply(), home="one", budgets=budgets) as one,
        start(reply(tokens=40), home="two", budgets=budgets) as two,
        asyncio.timeout(LIMIT_S),
        asyncio.TaskGroup() as group,
    ):
        group.create_task(ask(one))
        group.create_task(ask(two))

    with (
        closing(store_of(tmp_path, "one")) as store_one,
        closing(store_of(tmp_path, "two")) as store_two,
    ):
        (line_one,) = store_one.lines("model", "2000-01-01")
        (line_two,) = store_two.lines("model", "2000-01-01")
    assert (line_one.spent.tokens, line_two.spent.tokens) == (100, 40)


async def test_two_applications_on_one_home_share_a_budget(start: Start, reply: Reply) -> None:
    budgets: JsonObject = {"day": {"tokens": 100}}
    async with start(reply(), budgets=budgets) as one:
        await ask(one)
        await bot_is_idle(one)
        assert "100 tokens" in await ask(one, "/usage")
        async with start(budgets=budgets) as two:
            assert (await ask(two)).startswith("the day budget is used up")


async def test_without_a_readable_record_no_call_is_made_while_budgets_are_set(
    start: Start, reply: Reply, tmp_path: Path
) -> None:
    async with start(reply(), budgets={"day": {"tokens": 100}}) as bot:
        file = tmp_path / "home" / "plugins" / "usage-here" / FILE_NAME
        with closing(sqlite3.connect(file)) as connection:
            connection.execute("DROP TABLE totals")

        assert "the record of usage cannot be read" in await ask(bot)


async def test_the_economy_model_steps_in_at_eighty_per_cent(
    start: Start, reply: Reply, tmp_path: Path
) -> None:
    usage = {"economy_model": "script/small"}
    async with start(
        reply(tokens=80), reply(tokens=10), usage=usage, budgets={"day": {"tokens": 100}}
    ) as bot:
        await ask(bot)
        await ask(bot)

    with closing(store_of(tmp_path)) as store:
        lines = {line.key: line.spent.tokens for line in store.lines("model", "2000-01-01")}
    assert lines == {"script/large": 80, "script/small": 10}


async def test_the_footer_reports_what_the_turn_cost(start: Start, reply: Reply) -> None:
    async with start(reply(tokens=1_500, usd=0.5), usage={"footer": True}) as bot:
        assert await ask(bot) == "Hello.\n\n*1,500 tokens, $0.5000*"


async def test_without_settings_answers_stay_as_they_are(start: Start, reply: Reply) -> None:
    async with start(reply(tokens=1_500, usd=0.5)) as bot:
        assert await ask(bot) == "Hello."


async def test_the_slash_command_reports_sums_and_budgets(start: Start, reply: Reply) -> None:
    async with start(reply(), reply(), budgets={"day": {"tokens": 1_000, "usd": 2}}) as bot:
        await ask(bot, session="sdk:other")
        await ask(bot)
        await bot_is_idle(bot)

        answer = await ask(bot, "/usage")

    assert "- Today: 200 tokens (budget 1,000 tokens and $2)" in answer
    assert "- This session: 100 tokens\n" in answer
    assert "- script/large today: 200 tokens (2 of 2 calls without a price)" in answer


async def bot_is_idle(bot: Nanobot) -> None:
    """Return when every queued event was delivered."""
    assert await bot.plugins.hooks.queues.drain(LIMIT_S)


class Boss:
    """A plugin that gives work."""

    @on.start
    async def start(self, ctx: PluginContext) -> None:
        self.ctx = ctx

    async def give(
        self, name: str, parent: str = "sdk:default", delivery: Delivery = "never"
    ) -> str:
        work = Assignment(
            plugin=self.ctx.id,
            id=name,
            source="subagent",
            requester=Requester(authority="machine"),
            session_key=f"boss:{name}",
            parent=parent,
            delivery=delivery,
        )
        async with asyncio.timeout(LIMIT_S):
            outcome = await self.ctx.agent.work(work, "hello")
        return outcome.reply or f"failed: {outcome.error}"


@pytest.fixture
def boss() -> Boss:
    return Boss()


async def test_work_counts_once_for_the_session_that_gave_it(
    start: Start, reply: Reply, boss: Boss, tmp_path: Path
) -> None:
    budgets: JsonObject = {"session": {"tokens": 150}}
    async with start(reply(), reply(tokens=30), reply(tokens=10), budgets=budgets) as bot:
        await bot.plugins.register(boss, "boss")
        await ask(bot)
        assert await boss.give("one") == "Hello.", "a warning waits for an answer that is read"
        assert "93% of the session" in await boss.give("two", delivery="always")
        assert "- This session: 140 tokens" in await ask(bot, "/usage")

    with closing(store_of(tmp_path)) as store:
        sessions = {line.key: line.spent.tokens for line in store.lines("session", "2000-01-01")}
        sources = {line.key: line.spent.tokens for line in store.lines("source", "2000-01-01")}
    assert sessions == {"sdk:default": 100, "boss:one": 30, "boss:two": 10}
    assert sources == {"sdk": 100, "subagent": 40}
    async with start(reply(tokens=5), budgets=budgets) as bot:
        assert await ask(bot) == "Hello.", "the warning was given"


@pytest.mark.parametrize("scope", ["session", "day"])
async def test_a_used_up_budget_stops_the_work_that_it_pays_for(
    start: Start, reply: Reply, boss: Boss, scope: str
) -> None:
    budgets: JsonObject = {scope: {"tokens": 100}}
    async with start(reply(), budgets=budgets) as bot:
        await ask(bot)

    async with start(budgets=budgets) as bot:
        await bot.plugins.register(boss, "boss")
        assert (await boss.give("one")).startswith(f"the {scope} budget is used up (100 of 100")


async def test_work_that_work_has_given_counts_for_both(
    start: Start, reply: Reply, boss: Boss, tmp_path: Path
) -> None:
    async with start(reply(tokens=20), reply(tokens=100)) as bot:
        await bot.plugins.register(boss, "boss")
        await boss.give("one")
        await boss.give("two", "boss:one")

    with closing(store_of(tmp_path)) as store:
        totals = {key: store.total("session", key).tokens for key in SESSIONS}
    assert totals == {"sdk:default": 120, "boss:one": 120, "boss:two": 100}


class NothingTool(Tool):
    name = "nothing"
    description = "Do nothing."
    parameters: JsonObject = {"type": "object", "properties": {}}  # noqa: RUF012 - the contract has it so

    async def execute(self, context: ToolContext, arguments: JsonObject) -> str:
        return "done"
