"""A scheduler whose time, gateway and plugins the tests control, and a context without one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
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
    InboundMessage,
    Requester,
    SystemJob,
    Trigger,
    TurnInfo,
    TurnOutcome,
)
from nanobot_core.testing import FakeClock, FakeGateway, FakePluginContext
from nanobot_cron.file_trigger import FileTrigger
from nanobot_cron.job import JobState
from nanobot_cron.jobs import Jobs
from nanobot_cron.message_trigger import MessageTrigger
from nanobot_cron.runner import Runner
from nanobot_cron.scheduler import CronService
from nanobot_cron.settings import CronSettings
from nanobot_cron.store import JobStore

CHAT = Requester(
    channel="chatty", chat_id="c1", sender_id="anna", session_key="chatty:c1", authority="owner"
)
LIMIT_S = 20.0


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

    async def assign(self, assignment: Assignment, content: str) -> bool:
        if self.is_full:
            raise BusFull(1, 1)
        return await super().assign(assignment, content)


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
                await asyncio.sleep(0)

    async def state(self, job_id: str) -> JobState:
        """Return what is known of a job."""
        return (await self.jobs.get(job_id)).state

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
