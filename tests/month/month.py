"""Month: one gateway with everything, its people and programs, and what goes wrong."""

from __future__ import annotations

import asyncio
import itertools
import random
import re
import signal
import traceback
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from operator import attrgetter
from pathlib import Path
from statistics import median
from typing import Any, Final

from nanobot_core.app.client import ControlClient
from nanobot_core.testing import OpenAIServer, StandIn
from nanobot_core.testing.stand_in import answers, transcript
from tests.month import checks
from tests.month.attacks import Attacks
from tests.month.faults import BETWEEN, UNDER_LOAD, Fault, choose
from tests.month.model import MonthModel
from tests.month.process import HOUR_S, MonthGateway, Shift
from tests.month.programs import ApiProgram, PageClient
from tests.month.setting import add_job, write_home
from tests.reliability.crowd import DEEDS, Chat, Deeds, chats_of, living, reacting
from tests.reliability.samples import Sample
from tests.stand_ins import all_running, installed_stand_ins

SETTLE_LIMIT_S: Final = 90.0
IDLE_LIMIT_S: Final = 60.0
POLL_S: Final = 0.02
QUIET_POLLS: Final = 5
SHOWN_CHARS: Final = 2_000
LIVING_CHATS: Final = 9
"""Chats in which people write on a day."""
BUSY_S: Final = 1.0
"""Seconds in which they write before, between and after faults."""
PAUSE_S: Final = 0.6
"""Most seconds between two things that are done in a chat."""
STOPS: Final = (6.5, 9.5, 12.5, 18.5, 24.0)
"""Hours at which the clock stops while no one writes, each soon after a job is due."""
BEFORE_DAYS: Final = 60
BUDGET_DAYS: Final = 6
"""The budget of each such day is spent before its last hour."""
DAILY: Final = "tick daily"
OFTEN: Final = "tick often"
BUDGET: Final = "the day budget is used up"
STORY_LINES: Final = 40
SAMPLES: Final = 5
SAMPLE_S: Final = 0.2
LEAST_DAYS: Final = 15
"""Days of which the first third can be compared with the last."""
MAY_GROW: Final = {"rss_mb": 60.0, "tasks": 6, "threads": 4, "handles": 6}
"""How much more a gateway may hold in the last third of a month than in the first; the histories of
its chats are in memory."""
_DENY: Final = re.compile(r"/deny ([0-9a-f]{6,})")


async def _verb(chat: Chat, number: int, verb: str) -> None:
    if verb == "spawn":
        chat.late.add(number)
    await chat.say(number, verb)


def _is_private(chat: Chat) -> bool:
    return not chat.is_group and not chat.is_berts


MONTH_DEEDS: Final[Deeds] = (
    *DEEDS,
    (lambda chat, number: _verb(chat, number, "spawn"), lambda _able, chat: _is_private(chat)),
    (lambda chat, number: _verb(chat, number, "clock"), lambda _able, chat: _is_private(chat)),
    (lambda chat, number: _verb(chat, number, "forecast"), lambda _able, chat: _is_private(chat)),
    (lambda chat, number: _verb(chat, number, "attack"), lambda _able, chat: chat.is_berts),
)


@dataclass
class Report:
    """What happened in a month.

    Attributes:
        seed: of all that was chosen.
        days: how many have passed.
        counts: what was done, and how often.
        faults: name to how often it happened.
        samples: what the gateway held at the end of each day.
        findings: what must not be.
    """

    seed: int
    days: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    samples: list[Sample] = field(default_factory=list)
    findings: list[str] = field(default_factory=list)


class Month:
    """A gateway and everything around it.

    Attributes:
        home: nanobot's folder.
        rng: decides what happens.
        platforms: the chat platforms.
        model: what the model service answers.
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
        self._numbers = itertools.count(1)
        self._protected = attacks.protected()
        self._chats = chats_of(platforms, home / "workspace")
        self._program = ApiProgram(home)
        self._page = PageClient(home)
        self._denied: set[str] = set()
        self._restarting = asyncio.Lock()
        self._ends: AsyncExitStack = AsyncExitStack()

    # --- the gateway

    async def start(self) -> None:
        """Start the first process."""
        await self._launch()
        for chat in self._chats:
            await chat.say(next(self._numbers))  # what precedes the first answer may be history
        await self._settled()
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

    # --- people

    async def people_write(self) -> None:
        """Let someone write in a few chats."""
        for chat in self.rng.sample(self._chats, LIVING_CHATS):
            await chat.say(next(self._numbers))

    async def _settled(self) -> None:
        """Wait until people wait for nothing."""
        try:
            waiting = self._chats
            async with asyncio.timeout(SETTLE_LIMIT_S):
                while waiting := [each for each in waiting if not each.is_settled()]:  # noqa: ASYNC110
                    await asyncio.sleep(0.1)
        except TimeoutError:
            self.report.findings += self._chat_findings()
            raise

    @asynccontextmanager
    async def _denying(self) -> AsyncIterator[None]:
        """Let the owner deny what attackers ask for."""
        async with asyncio.TaskGroup() as group:
            task = group.create_task(self._deny_all())
            yield
            task.cancel()

    async def _deny_all(self) -> None:
        while True:
            await asyncio.sleep(0.5)
            for chat in self._chats:
                if not chat.is_berts:
                    await self._deny(chat)

    async def _deny(self, chat: Chat) -> None:
        platform = chat.platform
        for message in answers(platform, chat.id):
            key = f"{platform.name} {message.id}"
            if key in self._denied or "echo made" in message.text:
                continue
            if "Deny" in message.buttons:
                self._denied.add(key)
                await platform.press(message, "Deny")
            elif found := _DENY.search(message.text):
                self._denied.add(key)
                place = chat.id if chat.is_group else ""
                await platform.say(f"/deny {found[1]}", chat=place, mention=chat.is_group)

    # --- a day

    async def day(self, under_load: Sequence[Fault], between: Sequence[Fault]) -> None:
        """Let people live for a while, with faults, and let the rest of the day pass."""
        day = self.report.days + 1
        chats = self.rng.sample(self._chats, LIVING_CHATS)
        async with reacting(chats, self.model, self._numbers), self._denying():
            await self._busy_time(day, chats, under_load)
            await self._settled()
            for fault in between:
                self.report.faults[fault.__name__] += 1
                await fault(self)
                await self.people_write()
                await self._settled()
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
            group.create_task(self._program.ask(next(self._numbers)))
            group.create_task(self._page.say(next(self._numbers)))
            async with living(chats, self._numbers, pause_s=PAUSE_S, deeds=MONTH_DEEDS, seed=seed):
                await asyncio.sleep(BUSY_S)
                for fault in faults:
                    self.report.faults[fault.__name__] += 1
                    await fault(self)
                    await asyncio.sleep(BUSY_S)

    async def _spend_all(self) -> None:
        """Spend the budget of the day; until midnight, no model is asked."""
        chat = next(chat for chat in self._chats if _is_private(chat))
        for _ in range(2):
            number = next(self._numbers)
            await chat.say(number, "spend")
            await self._until(lambda: number in chat.answered())  # noqa: B023 - awaited here
        await self._idle()
        calls, seen = self.model.calls, self._refusals(chat)
        for count in range(1, 4):
            await chat.write(f"anything {count}")
            await self._until(lambda: self._refusals(chat) >= seen + count)  # noqa: B023 - likewise
        if self.model.calls != calls:
            asked = list(self.model.recent)[calls - self.model.calls :]
            self.report.findings.append(f"beyond a budget: {asked}")
        self.report.counts["budgets spent"] += 1

    @staticmethod
    async def _until(holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(SETTLE_LIMIT_S):
            while not holds():  # noqa: ASYNC110 - other processes
                await asyncio.sleep(POLL_S)

    @staticmethod
    def _refusals(chat: Chat) -> int:
        return sum(BUDGET in text for text in chat.texts())

    # --- checks

    async def _check(self, day: int) -> None:
        """Note what is wrong at the end of a day."""
        findings = [*self._chat_findings(), *await self._page.findings(), *self._program.wrong]
        findings += checks.leaks(self._chats, self._attacks)
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
        return Sample(*(min(map(attrgetter(each), samples)) for each in MAY_GROW))

    def _check_protected(self) -> None:
        now = self._attacks.protected()
        if changed := [name for name in now if now[name] != self._protected[name]]:
            self.report.findings.append(f"attackers changed {changed}")

    def _chat_findings(self) -> list[str]:
        found = {id(chat): [*chat.findings(STORY_LINES)] for chat in self._chats}
        return [
            f"{chat.platform.name} {chat.id}: {'; '.join(found[id(chat)])}\n"
            + transcript(chat.platform.shown(chat.id))[-SHOWN_CHARS:]
            for chat in self._chats
            if found[id(chat)]
        ]

    async def close(self) -> None:
        """End the gateway as the system does, and look at what is left."""
        self.gateway.send(signal.SIGTERM)
        code = await self.gateway.ended()
        await self.end()
        findings = [f"the gateway ended with {code}"] if code else []
        findings += [*checks.unreadable(self.home), *checks.leaks_on_disk(self.home, self._attacks)]
        self.report.counts.update(self._counts())
        self.report.findings += [*findings, *self._sums()]

    def _sums(self) -> Iterator[str]:
        """Yield what is wrong with the whole."""
        counts, faults, days = self.report.counts, self.report.faults, self.report.days
        if not days - faults["clock_forward"] <= counts["jobs at nine"] <= days:
            yield f"{counts['jobs at nine']} of {days} jobs at nine have run"
        # A kill can come between sending and its record.
        if counts["shown twice"] > (faults["kill"] + faults["disk_full"]) * len(self._chats):
            yield f"{counts['shown twice']} answers are shown twice"
        if days >= LEAST_DAYS:
            yield from self._growth()

    def _growth(self) -> Iterator[str]:
        """Yield what the gateway holds more of in the last third than in the first."""
        samples = self.report.samples
        third = len(samples) // 3
        for name, may_grow in MAY_GROW.items():
            values = [getattr(sample, name) for sample in samples]
            before, after = median(values[:third]), median(values[-third:])
            if after > before + may_grow:
                yield f"{name} grew from {before:g} to {after:g}: {values}"

    def _counts(self) -> Counter[str]:
        said = [number for chat in self._chats for number in chat.said]
        verbs = Counter(verb for chat in self._chats for verb in chat.verbs.values())
        shown = "\n".join(text for chat in self._chats for text in chat.texts())
        return Counter(
            {
                "messages": len(said) + sum(len(chat.voices) for chat in self._chats),
                "shown twice": sum(len(chat.doubled()) for chat in self._chats),
                "model calls": self.model.calls,
                "attacks": self._attacks.made,
                "questions denied": len(self._denied),
                "jobs at nine": shown.count(f"You said: {DAILY}"),
                "jobs every six hours": shown.count(f"You said: {OFTEN}"),
                "heartbeats": shown.count("Beat "),
                "requests of a program": self._program.asked,
                "messages on the page": len(self._page.said),
                "subagents": verbs["spawn"],
                "turns stopped": verbs["wait"],
                "calls of an MCP server": verbs["clock"],
            }
        )

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
