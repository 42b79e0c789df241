"""One gateway with every installed channel at once, on their stand-ins, killed under load."""

from __future__ import annotations

import asyncio
import itertools
import random
import re
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from importlib.metadata import packages_distributions, requires
from importlib.util import find_spec
from pathlib import Path

import pytest

from nanobot_core.app.client import ControlClient
from nanobot_core.messages import JsonObject
from nanobot_core.testing import GatewayProcess, OpenAIServer, ScriptedModel, StandIn, answers
from nanobot_core.testing.gateway import gateway_environment, until
from nanobot_core.testing.played_day import write_config
from tests.stand_ins import installed_stand_ins

pytestmark = pytest.mark.anyio
NEEDED = ("files", "message", "openai", "shell")
for _plugin in NEEDED:
    if find_spec(f"nanobot_{_plugin}") is None:
        pytest.skip(f"nanobot-{_plugin} is not installed", allow_module_level=True)

LIMIT_S = 60.0
SETTLE_LIMIT_S = 60.0
NUMBER = re.compile(r"You said: number (\d+)\b")
SHARED = frozenset({"nanobot-core", "pydantic"})


FOUND = installed_stand_ins()


@dataclass
class Chat:
    """One chat of a platform, and what was written into it.

    Attributes:
        said: number to the platform's id of the message, in the order of writing.
    """

    platform: StandIn
    id: str
    said: dict[int, str] = field(default_factory=dict)

    async def say(self, number: int) -> None:
        platform = self.platform
        is_group = self.id == platform.group
        is_berts = self.id == platform.private(platform.bert)
        sender = platform.bert if is_berts else platform.anna
        self.said[number] = await platform.say(
            f"number {number}",
            sender=sender,
            chat=self.id if is_group else "",
            mention=is_group,
        )

    def answered(self) -> list[int]:
        texts = (message.text for message in answers(self.platform, self.id))
        return [int(found) for text in texts for found in NUMBER.findall(text)]

    def expected(self) -> list[int]:
        """Return what must be answered; if nothing is offered again, what the channel took."""
        if self.platform.abilities.resends:
            return list(self.said)
        taken = set(self.platform.acknowledged)
        return [number for number, key in self.said.items() if key in taken]

    def doubled(self) -> list[int]:
        return [number for number, count in Counter(self.answered()).items() if count > 1]

    def findings(self) -> Iterator[str]:
        """Yield what is wrong with the answers."""
        place, found = f"{self.platform.name} {self.id}", self.answered()
        if lost := sorted(set(self.expected()) - set(found)):
            yield f"{place}: not answered: {lost}"
        if self.platform.abilities.equal_keys_once and self.doubled():
            yield f"{place}: answered more than once: {self.doubled()}"
        first = list(dict.fromkeys(found))
        if first != sorted(first):
            yield f"{place}: in another order: {found}"


@asynccontextmanager
async def platforms(
    home: Path, kinds: Sequence[type[StandIn]]
) -> AsyncIterator[tuple[list[StandIn], list[Chat]]]:
    """Run platforms and a model, and write the configuration of a gateway on all of them."""
    async with AsyncExitStack() as stack:
        running = [await stack.enter_async_context(kind()) for kind in kinds]
        model = await stack.enter_async_context(OpenAIServer(default=ScriptedModel()))
        # A kill can leave an unfinished answer whose id is unknown; the day of a channel looks at
        # drafts.
        settings = {"streaming": False}
        write_config(home, running, model.url, bert_may_write=True, settings=settings)
        chats = [
            Chat(platform, place)
            for platform in running
            for place in (
                platform.private(platform.anna),
                platform.private(platform.bert),
                platform.group,
            )
            if place
        ]
        yield running, chats


async def channel_states(home: Path) -> dict[str, str]:
    """Return the states of the channels by name."""
    status = await ControlClient(home / "gateway").call("status")
    assert isinstance(status, dict)
    rows = status["running"]
    assert isinstance(rows, list)
    shown: list[JsonObject] = [row for row in rows if isinstance(row, dict)]
    return {str(row["name"]): str(row["state"]) for row in shown if row["kind"] == "channel"}


async def all_running(home: Path, kinds: Sequence[type[StandIn]]) -> None:
    wanted, states = {kind.name for kind in kinds}, dict[str, str]()
    try:
        async with asyncio.timeout(LIMIT_S):
            while {name for name, state in states.items() if state == "running"} < wanted:
                await asyncio.sleep(0.05)
                states = await channel_states(home)
    except TimeoutError:
        raise AssertionError(f"not all channels run: {states}") from None


def resident_mb(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text("utf-8")
    found = re.search(r"VmRSS:\s+(\d+) kB", status)
    assert found
    return int(found[1]) / 1024


async def all_answered(chats: Sequence[Chat], limit_s: float = SETTLE_LIMIT_S) -> None:
    """Wait until everything is answered."""
    try:
        await until(lambda: all(set(c.expected()) <= set(c.answered()) for c in chats), limit_s)
    except TimeoutError:
        findings = [finding for chat in chats for finding in chat.findings()]
        raise AssertionError("\n".join(findings)) from None


async def play(home: Path, kills: int, life_s: float) -> None:
    """Let people write to all channels at once, and kill the gateway under that load.

    Args:
        life_s: most seconds of a gateway before it is killed, while people write in each chat.
    """
    numbers, rng = itertools.count(1), random.Random(14)
    async with platforms(home, FOUND) as (_, chats):
        async with GatewayProcess(home):
            await all_running(home, FOUND)
            # What was written before the first answer of a chat may be history.
            await all_say(chats, next(numbers))
            await all_answered(chats, LIMIT_S)
            # Leaving the block kills it.
        for _ in range(kills):
            async with GatewayProcess(home):
                await all_running(home, FOUND)
                end_s = time.monotonic() + rng.uniform(life_s / 4, life_s)
                while (left_s := end_s - time.monotonic()) > 0:
                    await all_say(chats, next(numbers))
                    await asyncio.sleep(min(1.0, left_s))
        async with GatewayProcess(home):
            await all_say(chats, next(numbers))
            await all_answered(chats)
        said = sum(len(chat.said) for chat in chats)
        doubled = Counter(chat.platform.name for chat in chats for _ in chat.doubled())
        report(f"{len(FOUND)} channels, {len(chats)} chats, {kills + 1} kills, {said} messages")
        report(f"sent but not recorded, and so sent again: {dict(doubled)}")
        findings = [finding for chat in chats for finding in chat.findings()]
        assert findings == [], "\n".join(findings)
        # Only what was on its way at the moment of a kill.
        assert doubled.total() <= (kills + 1) * len(chats)


async def all_say(chats: Sequence[Chat], number: int) -> None:
    async with asyncio.TaskGroup() as group:
        for chat in chats:
            group.create_task(chat.say(number))


def report(text: str) -> None:
    sys.stdout.write(f"{text}\n")


@pytest.mark.timeout(180)
async def test_nothing_is_lost_when_a_gateway_of_all_channels_is_killed(tmp_path: Path) -> None:
    await play(tmp_path / "home", kills=1, life_s=1.0)


@pytest.mark.long
@pytest.mark.timeout(1_800)
async def test_nothing_is_lost_in_ten_minutes_with_a_kill_each_minute(tmp_path: Path) -> None:
    await play(tmp_path / "home", kills=10, life_s=60.0)


@pytest.mark.long
@pytest.mark.timeout(600)
async def test_start_and_idle_memory_of_each_channel_are_printed(tmp_path: Path) -> None:
    base: tuple[float, float] | None = None
    for kinds in ([], *([kind] for kind in FOUND), FOUND):
        home = tmp_path / ("-".join(kind.name for kind in kinds) or "none")
        async with platforms(home, kinds):
            before = time.monotonic()
            async with GatewayProcess(home) as gateway:
                await all_running(home, kinds)
                took_s, held_mb = time.monotonic() - before, resident_mb(gateway.pid)
        base = base or (took_s, held_mb)
        more = f"{took_s - base[0]:+.2f} s, {held_mb - base[1]:+.1f} MB"
        report(f"{home.name:>12}: ready in {took_s:.2f} s, {held_mb:.1f} MB ({more})")


async def test_no_library_of_a_channel_that_is_not_enabled_is_imported(tmp_path: Path) -> None:
    enabled, *others = FOUND
    home = tmp_path / "home"
    async with platforms(home, [enabled]):
        config = home / "config.yaml"
        names = [f"nanobot-{kind.name}" for kind in others]
        plugins = "".join(f"  - {kind.name}\n" for kind in others)
        config.write_text(re.sub(r"(?<=\n  enabled:\n)", plugins, config.read_text()))
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-X", "importtime", "-m", "nanobot_core", "gateway"),
            env=gateway_environment(home),
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            imported = await _imports(process, home, enabled)
        finally:
            with suppress(ProcessLookupError):  # it has usually ended
                process.kill()
            await process.wait()
    allowed = _libraries([f"nanobot-{name}" for name in (enabled.name, *NEEDED)])
    assert f"nanobot_{enabled.name}.platform" in imported
    assert imported & (_libraries(names) - allowed) == set()


async def _imports(
    process: asyncio.subprocess.Process, home: Path, enabled: type[StandIn]
) -> set[str]:
    """Return the names of imported modules, and of the packages that contain them."""
    assert process.stderr is not None
    lines: list[str] = []
    async with asyncio.timeout(LIMIT_S):
        while not lines or "gateway ready" not in lines[-1]:
            lines.append((await process.stderr.readline()).decode())
        await all_running(home, [enabled])
    process.terminate()
    lines += (await process.stderr.read()).decode().splitlines()
    names = {line.rpartition("|")[2].strip() for line in lines if line.startswith("import time:")}
    return names | {name.partition(".")[0] for name in names}


def _libraries(distributions: Sequence[str]) -> set[str]:
    """Return the modules of what these distributions require."""
    needed = {
        re.split(r"[^A-Za-z0-9._-]", line)[0].lower()
        for name in distributions
        for line in requires(name) or ()
        if "extra ==" not in line
    }
    return {
        module
        for module, owners in packages_distributions().items()
        if {owner.lower() for owner in owners} & (needed - SHARED)
    }
