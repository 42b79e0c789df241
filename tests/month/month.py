"""Month: one gateway with everything, its people and programs, and what goes wrong."""

from __future__ import annotations

import asyncio
import random
import signal
import traceback
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import fields, replace
from datetime import UTC, datetime, timedelta
from operator import attrgetter
from pathlib import Path
from typing import Any, Final

from nanobot_core.app.client import ControlClient
from nanobot_core.testing import OpenAIServer, StandIn
from tests.crowd.chat import Chat
from tests.month import checks
from tests.month.attacks import Attacks
from tests.month.faults import BETWEEN, UNDER_LOAD, Fault, choose
from tests.month.model import MonthModel
from tests.month.people import DAILY, OFTEN, People
from tests.month.process import HOUR_S, MonthGateway, Shift
from tests.month.programs import ApiProgram, PageClient
from tests.month.report import Report
from tests.month.setting import add_job, write_home
from tests.reliability.samples import Sample
from tests.stand_ins import all_running, installed_stand_ins

IDLE_LIMIT_S: Final = 60.0
POLL_S: Final = 0.02
QUIET_POLLS: Final = 5
BUSY_S: Final = 1.0
"""Seconds in which they write before, between and after faults."""
STOPS: Final = (6.5, 9.5, 12.5, 18.5, 24.0)
"""Hours at which the clock stops while no one writes, each soon after a job is due."""
BEFORE_DAYS: Final = 60
BUDGET_DAYS: Final = 6
"""The budget of each such day is spent before its last hour."""
SAMPLES: Final = 5
SAMPLE_S: Final = 0.2


class Month:
    """A gateway and everything around it.

    Attributes:
        home: nanobot's folder.
        rng: decides what happens.
        platforms: the chat platforms.
        model: what the model service answers.
        people: who write.
        gateway: the process that runs.
        version: of the owner's plugin.
        report: what has happened.
    """

    def __init__(
        self, home: Path, seed: int, platforms: list[StandIn], model: MonthModel, attacks: Attacks
    ) -> None:
        self.home: Path = home
        self.rng: random.Random = random.Random(seed)
        self.platforms: list[StandIn] = platforms
        self.model: MonthModel = model
        self.version: int = 1
        self.report: Report = Report(seed)
        # Platforms have the time of the machine. A month that ends before it has no message that is
        # too old to be answered.
        now = datetime.now(UTC)
        midnight = datetime(now.year, now.month, now.day, tzinfo=UTC) - timedelta(days=BEFORE_DAYS)
        self._first = midnight
        self.gateway: MonthGateway = MonthGateway(
            home, Shift(wall_s=(midnight - now).total_seconds())
        )
        self._attacks = attacks
        self._protected = attacks.protected()
        self.people: People = People(platforms, home, model, self.rng)
        self._program = ApiProgram(home)
        self._page = PageClient(home)
        self._restarting = asyncio.Lock()
        self._ends: AsyncExitStack = AsyncExitStack()

    # --- the gateway

    async def start(self) -> None:
        """Start the first process."""
        await self._launch()
        await self.people.greet()
        await self._page.sign_in()

    async def restart(self, number: signal.Signals) -> None:
        """End the process with a signal, and start another one."""
        async with self._restarting:
            self.gateway.send(number)
            await self.gateway.ended()
            await self.end()
            await self._launch()

    async def end(self) -> None:
        """End the process, with a kill if it still runs."""
        await self._ends.aclose()
        self._hear(self.gateway.errors)

    async def _launch(self) -> None:
        self.gateway = MonthGateway(self.home, self.gateway.shift)
        await self._ends.enter_async_context(self.gateway)
        await all_running(self.home, [type(platform) for platform in self.platforms])

    async def change(self, make: Callable[[], object]) -> None:
        """Let the owner change something with a command that blocks."""
        self._check_protected()
        async with self._restarting:
            await asyncio.to_thread(make)
        self._protected = self._attacks.protected()

    async def pass_time(self, seconds: float, *, delivers: bool = True) -> None:
        """Let time pass at once, and wait until what was due is done.

        Args:
            delivers: replies can be delivered.
        """
        shift = self.gateway.shift
        self.gateway.move(replace(shift, passed_s=shift.passed_s + seconds))
        self.report.counts["hours"] += round(seconds / HOUR_S)
        await self._idle(delivers=delivers)

    async def _idle(self, *, delivers: bool = True) -> None:
        """Wait until the gateway has nothing to do, and no plugin asks the model."""
        client, quiet, calls = ControlClient(self.home / "gateway"), 0, 0
        status: Any = None
        try:
            async with asyncio.timeout(IDLE_LIMIT_S):
                while quiet < QUIET_POLLS:
                    await asyncio.sleep(POLL_S)
                    status = await client.call("status")
                    waiting = status["depth"]["inbound"] + delivers * status["depth"]["outbound"]
                    is_busy = status["turns"] or waiting or calls != self.model.calls
                    quiet, calls = 0 if is_busy else quiet + 1, self.model.calls
        except TimeoutError:
            self.report.findings.append(f"not idle within {IDLE_LIMIT_S:g} s: {status}")
        self._hear(await self.gateway.reported())
        self.gateway.errors = ""

    def _hear(self, printed: str) -> None:
        """Look at what the gateway has printed."""
        if found := self._attacks.found_in(printed):
            self.report.findings.append(f"the gateway printed {found}")

    # --- a day

    async def day(self, under_load: Sequence[Fault], between: Sequence[Fault]) -> None:
        """Let people live for a while, with faults, and let the rest of the day pass."""
        day = self.report.days + 1
        chats = self.people.some_chats()
        async with self.people.react(chats):
            await self._busy_time(day, chats, under_load)
            await self.people.settle()
            for fault in between:
                self.report.faults[fault.__name__] += 1
                await fault(self)
                await self.people.write()
                await self.people.settle()
        await self._idle()
        before = self._uncounted()
        for hours in STOPS:
            stop = self._first + timedelta(days=day - 1, hours=hours)
            left_s = (stop - self.gateway.shift.now()).total_seconds()
            if hours == STOPS[-1] and day % BUDGET_DAYS == 0:
                await self._spend_all()
            if left_s > 0:
                await self.pass_time(left_s)
        if self._uncounted() != before:
            found = f"{before} before the night, {self._uncounted()} after it"
            self.report.findings.append(f"day {day}: calls that are not recorded: {found}")
        await self._check(day)

    async def _busy_time(self, day: int, chats: list[Chat], faults: Sequence[Fault]) -> None:
        """Let people and programs work while faults happen."""
        seed = f"{self.report.seed} {day} "
        async with asyncio.TaskGroup() as group:
            group.create_task(self._program.ask(next(self.people.numbers)))
            group.create_task(self._page.say(next(self.people.numbers)))
            async with self.people.live(chats, seed):
                await asyncio.sleep(BUSY_S)
                for fault in faults:
                    self.report.faults[fault.__name__] += 1
                    await fault(self)
                    await asyncio.sleep(BUSY_S)

    async def _spend_all(self) -> None:
        """Spend the budget of the day; until midnight, no model is asked."""
        await self.people.spend()
        await self._idle()
        calls = self.model.calls
        await self.people.are_refused()
        if self.model.calls != calls:
            asked = list(self.model.recent)[calls - self.model.calls :]
            self.report.findings.append(f"beyond a budget: {asked}")
        self.report.counts["budgets spent"] += 1

    # --- checks

    async def _check(self, day: int) -> None:
        """Note what is wrong at the end of a day."""
        findings = [*self.people.findings(), *await self._page.findings(), *self._program.wrong]
        findings += checks.leaks(self.people.chats, self._attacks)
        if self.model.forecasts != sorted(self.model.forecasts):
            findings.append(f"a former version of a plugin answered: {self.model.forecasts}")
        self._check_protected()
        self.report.findings += [f"day {day}: {each}" for each in findings]
        self.report.samples.append(await self._least())
        self.report.days = day

    async def _least(self) -> Sample:
        """Return the least that the gateway holds within a moment: channels may be reconnecting."""
        await all_running(self.home, [type(platform) for platform in self.platforms])
        samples = []
        for _ in range(SAMPLES):
            samples.append(await self.gateway.sample())
            await asyncio.sleep(SAMPLE_S)
        return Sample(*(min(map(attrgetter(each.name), samples)) for each in fields(Sample)))

    def _check_protected(self) -> None:
        now = self._attacks.protected()
        if changed := [name for name in now if now[name] != self._protected[name]]:
            self.report.findings.append(f"attackers changed {changed}")

    async def close(self) -> None:
        """End the gateway as the system does, and look at what is left."""
        self.gateway.send(signal.SIGTERM)
        code = await self.gateway.ended()
        await self.end()
        findings = [f"the gateway ended with {code}"] if code else []
        findings += [*checks.unreadable(self.home), *checks.leaks_on_disk(self.home, self._attacks)]
        self.report.findings += findings
        self.report.counts.update(self.people.counts())
        self.report.counts.update(
            {
                "model calls": self.model.calls,
                "attacks": self._attacks.made,
                "requests of a program": self._program.asked,
                "messages on the page": len(self._page.said),
            }
        )
        self.report.sum_up(len(self.people.chats))

    def _uncounted(self) -> tuple[int, int]:
        """Return the calls and tokens of the model that nanobot-usage has not recorded."""
        calls, tokens = checks.recorded(self.home)
        return self.model.calls - calls, self.model.tokens - tokens


@asynccontextmanager
async def prepared(folder: Path, seed: int) -> AsyncIterator[Month]:
    """Start the services around a gateway, and write its home.

    Args:
        folder: an empty folder.
        seed: of all that is chosen.
    """
    home = folder / "home"
    attacks = Attacks(folder)
    async with AsyncExitStack() as stack:
        kinds = installed_stand_ins()
        platforms = [await stack.enter_async_context(kind()) for kind in kinds]
        model = MonthModel(attacks)
        server = await stack.enter_async_context(OpenAIServer(default=model))
        model.forget = server.requests.clear
        await asyncio.to_thread(write_home, home, platforms, server.url, attacks)
        month = Month(home, seed, platforms, model, attacks)
        owner = next(each for each in platforms if each.abilities.equal_keys_once)
        chat = f"{owner.name}:{owner.private(owner.anna)}"
        await asyncio.to_thread(add_job, home, DAILY, chat, "--cron", "0 9 * * *")
        await asyncio.to_thread(add_job, home, OFTEN, chat, "--every", "6h")
        try:
            yield month
        finally:
            await month.end()


async def live(
    folder: Path, seed: int, days: int, progress: Callable[[Report], None] = lambda _: None
) -> Report:
    """Live so many days, or until something is not answered, and return what has happened.

    Args:
        progress: called after each day.
    """
    async with prepared(folder, seed) as month:
        try:
            await month.start()
            for _ in range(days):
                under_load = choose(month.rng, UNDER_LOAD, 0.35)
                await month.day(under_load, choose(month.rng, BETWEEN, 0.2))
                progress(month.report)
            await month.close()
        except (TimeoutError, ExceptionGroup):  # of a task group around what was not in time
            month.report.findings.append(f"day {month.report.days + 1}: {traceback.format_exc()}")
        return month.report
