"""A scheduler whose time, gateway and plugins the tests control, and a context without one."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from nanobot_core import (
    Assignment,
    AssignmentFinished,
    BusFull,
    Contributed,
    CronExpression,
    Fire,
    InboundMessage,
    JsonObject,
    Requester,
    SystemJob,
    ToolContext,
    Trigger,
    TurnInfo,
    TurnOutcome,
)
from nanobot_core.testing import FakeClock, FakeGateway, FakePluginContext
from nanobot_cron.file_trigger import FileTrigger
from nanobot_cron.job import JobState, Schedule
from nanobot_cron.jobs import Jobs
from nanobot_cron.message_trigger import MessageTrigger
from nanobot_cron.runner import Runner
from nanobot_cron.scheduler import CronService
from nanobot_cron.settings import CronSettings
from nanobot_cron.store import Book, JobStore

CHAT = Requester(
    channel="chatty", chat_id="c1", sender_id="anna", session_key="chatty:c1", authority="owner"
)
LIMIT_S = 20.0
POLL_S = 0.0005


class JumpingClock(FakeClock):
    """A clock whose wall time can be set to another instant."""

    def __init__(self) -> None:
        super().__init__()
        self.offset = timedelta(0)
        self.sleeps: list[float] = []

    def now(self) -> datetime:
        return super().now() + self.offset

    async def sleep(self, delay_s: float) -> None:
        self.sleeps.append(delay_s)
        await super().sleep(delay_s)


class Gateway(FakeGateway):
    """A gateway that may be full."""

    def __init__(self) -> None:
        super().__init__()
        self.is_full = False
        self.refused = False

    async def assign(self, assignment: Assignment, content: str) -> bool:
        if self.is_full:
            self.refused = True
            raise BusFull(1, 1)
        return await super().assign(assignment, content)


class SpyTrigger(Trigger):
    """Fires what a test gives it, and fails as often as the test says."""

    name = "spy"
    description = "waits for a test"
    parameters: JsonObject

    def __init__(self) -> None:
        self.parameters = {"type": "object"}
        self.fires: dict[str, Fire] = {}
        self.failures = 0

    async def check(self, context: ToolContext, options: JsonObject) -> JsonObject:
        return options

    async def watch(self, job_id: str, options: JsonObject, fire: Fire) -> None:
        if self.failures:
            self.failures -= 1
            msg = "lost the connection"
            raise OSError(msg)
        self.fires[job_id] = fire
        try:
            await asyncio.Event().wait()
        finally:
            del self.fires[job_id]

    def describe(self, options: JsonObject) -> str:
        return "when the test says so"


class Home:
    """A home, in which processes start and end."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.clock = JumpingClock()
        self.gateway = Gateway()
        self.gateway.owners_chat = ("chatty", "c1")
        self.system: list[SystemJob] = []
        self.triggers: list[Trigger] = []
        self.settings = CronSettings()
        self.is_hanging = False

    @asynccontextmanager
    async def process(self, *, has_gateway: bool = True) -> AsyncIterator[Process]:
        """A process, killed at the end of the block: nothing is stored on the way out."""
        contributions: dict[str, Sequence[Contributed[Any]]] = {
            "contribute_jobs": [Contributed("maker", job) for job in self.system],
            "contribute_triggers": [Contributed("maker", trigger) for trigger in self.triggers],
        }
        ctx = FakePluginContext(
            self.folder,
            plugin_id="cron",
            settings=self.settings,
            clock=self.clock,
            gateway=self.gateway if has_gateway else None,
            contributions=contributions,
        )
        async with ctx:
            service = asyncio.ensure_future(CronService(ctx).run()) if has_gateway else None
            process = Process(self, ctx)
            try:
                if service is not None:
                    await process.settle()
                yield process
            finally:
                if service is not None:
                    service.cancel()
                    await asyncio.gather(service, return_exceptions=True)


class Process:
    """What runs in a home."""

    def __init__(self, home: Home, ctx: FakePluginContext) -> None:
        self.home = home
        self.ctx = ctx
        self.jobs = ctx.shared(Jobs)
        self.store = ctx.shared(JobStore)
        self.runner = ctx.shared(Runner)

    async def settle(self) -> None:
        """Wait until the scheduler sleeps, and nothing has changed since it looked."""
        await self.until(
            lambda: self.home.clock.sleeper_count > 0 and not self.store.changed.is_set()
        )

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until a condition holds."""
        async with asyncio.timeout(LIMIT_S):
            while not condition():  # noqa: ASYNC110 - what it waits for has no event
                await asyncio.sleep(POLL_S)

    async def state(self, job_id: str) -> JobState:
        """Return what is known of a job."""
        return (await self.jobs.get(job_id)).state

    def count_writes(self) -> list[int]:
        """Return a list that gets an entry for each write of the file from now on."""
        found: list[int] = []
        write = self.store._write

        def counted(book: Book) -> None:
            found.append(len(book.jobs))
            write(book)

        self.store._write = counted  # type: ignore[method-assign]
        return found

    async def advance(self, seconds: float) -> None:
        """Move the time on, as the scheduler sees it."""
        await self.home.clock.advance(seconds)
        await self.settle()

    async def finish(self, message: InboundMessage, **outcome: Any) -> None:
        """Report the end of a run."""
        assignment = message.assignment
        assert assignment is not None
        turn = TurnInfo(
            id="t",
            session_key=assignment.session_key,
            channel=message.channel,
            chat_id=message.chat_id,
            sender_id=message.sender_id,
            source="cron",
            assignment=assignment,
        )
        result = replace(TurnOutcome(turn=turn, reply="done"), **outcome)
        await self.runner.finish(AssignmentFinished(assignment=assignment, outcome=result))
        await self.settle()


@pytest.fixture
def chat() -> Requester:
    """The owner, in a private chat."""
    return CHAT


@pytest.fixture
def full_disk(monkeypatch: pytest.MonkeyPatch) -> Callable[[], AbstractContextManager[None]]:
    """Makes each write fail in a ``with`` block."""

    def fail(_path: Path, _text: str) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    @contextmanager
    def full() -> Iterator[None]:
        with monkeypatch.context() as patch:
            patch.setattr("nanobot_cron.store.replace_file", fail)
            yield

    return full


@pytest.fixture
def many() -> Callable[[Home, Requester, int, Schedule], Awaitable[None]]:
    """Stores many jobs at once."""

    async def store_many(home: Home, chat: Requester, count: int, schedule: Schedule) -> None:
        async with home.process(has_gateway=False) as process:
            job = await process.jobs.add(message="Say hello", schedule=schedule, requester=chat)
            copies = [job.model_copy(update={"id": f"job{number}"}) for number in range(count)]
            book = Book(jobs={copy.id: copy for copy in copies})
            await process.store.change(lambda _: (book, None))

    return store_many


@pytest.fixture
def home(tmp_path: Path) -> Home:
    """A home without jobs, in which the owner has written."""
    return Home(tmp_path)


async def _tidy() -> str:
    return "removed 3 files"


@pytest.fixture
def ctx(tmp_path: Path) -> FakePluginContext:
    """The plugin in a gateway, at 10:30 on a Monday in Berlin."""
    job = SystemJob(
        id="tidy", summary="remove old files", schedule=CronExpression("30 3 * * *"), run=_tidy
    )
    triggers: list[Contributed[Trigger]] = []
    made = FakePluginContext(
        tmp_path,
        plugin_id="cron",
        clock=FakeClock(datetime(2026, 11, 23, 9, 30, tzinfo=UTC)),
        gateway=FakeGateway(),
        contributions={
            "contribute_jobs": [Contributed("acme", job)],
            "contribute_triggers": triggers,
        },
    )
    triggers += [Contributed("cron", each) for each in (FileTrigger(made), MessageTrigger(made))]
    made.timezone = ZoneInfo("Europe/Berlin")
    (made.workspace / "inbox").mkdir()
    return made


@pytest.fixture
def spy_trigger() -> SpyTrigger:
    """A trigger that waits for the test."""
    return SpyTrigger()
