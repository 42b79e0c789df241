"""One gateway with every installed channel at once, on their stand-ins, killed under load."""

from __future__ import annotations

import asyncio
import itertools
import random
import re
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from importlib.metadata import packages_distributions, requires
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from nanobot_core.testing import GatewayProcess, OpenAIServer, ScriptedModel, StandIn
from nanobot_core.testing.gateway import gateway_environment
from nanobot_core.testing.model_server import Responder
from nanobot_core.testing.playing import write_config
from nanobot_core.testing.stand_in import transcript
from tests.crowd.chat import Chat, chats_of
from tests.crowd.model import CrowdModel
from tests.crowd.people import living, reacting, troubled
from tests.stand_ins import all_running, installed_stand_ins

pytestmark = pytest.mark.anyio
NEEDED = ("files", "message", "openai", "shell")
for _plugin in NEEDED:
    if find_spec(f"nanobot_{_plugin}") is None:
        pytest.skip(f"nanobot-{_plugin} is not installed", allow_module_level=True)

LIMIT_S = 60.0
SETTLE_LIMIT_S = 120.0
SHOWN_CHARS = 3_000
REPORTED_CHARS = 10_000
STORY_LINES = 700
"""A story has at least three pieces on most platforms."""
SHARED = frozenset({"nanobot-core", "pydantic"})


FOUND = installed_stand_ins()


@asynccontextmanager
async def platforms(
    home: Path, kinds: Sequence[type[StandIn]], script: Responder | None = None, **sections: Any
) -> AsyncIterator[list[StandIn]]:
    """Run platforms and a model, and write the configuration of a gateway on all of them."""
    async with AsyncExitStack() as stack:
        running = [await stack.enter_async_context(kind()) for kind in kinds]
        model = await stack.enter_async_context(OpenAIServer(default=script or ScriptedModel()))
        # A kill can leave an unfinished answer whose id is unknown; the day of a channel looks at
        # drafts.
        settings = {"streaming": False}
        write_config(home, running, model.url, bert_may_write=True, settings=settings, **sections)
        yield running


def resident_mb(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text("utf-8")
    found = re.search(r"VmRSS:\s+(\d+) kB", status)
    assert found
    return int(found[1]) / 1024


async def all_settled(chats: Sequence[Chat], limit_s: float = SETTLE_LIMIT_S) -> None:
    """Wait until people wait for nothing."""
    try:
        async with asyncio.timeout(limit_s):
            while not all(chat.is_settled() for chat in chats):  # noqa: ASYNC110 - other processes
                await asyncio.sleep(0.5)
    except TimeoutError:
        raise AssertionError("\n".join(_findings(chats))) from None


def _findings(chats: Sequence[Chat]) -> list[str]:
    """Return what is wrong in each chat, and the end of what people see in it."""
    found = {id(chat): [*chat.findings(STORY_LINES)] for chat in chats}
    return [
        f"{chat.platform.name} {chat.id}: {'; '.join(found[id(chat)])}\n"
        + transcript(chat.platform.shown(chat.id))[-SHOWN_CHARS:]
        for chat in chats
        if found[id(chat)]
    ]


async def play(home: Path, kills: int, life_s: float, pause_s: float) -> None:
    """Let people live on all channels at once, and kill the gateway under that load.

    Args:
        life_s: most seconds of a gateway before it is killed.
        pause_s: most seconds between two things that are done in a chat.
    """
    numbers, rng, model = itertools.count(1), random.Random(14), CrowdModel(STORY_LINES)
    ask = [{"tool": "exec", "arguments": {"command": "echo*"}, "action": "ask"}]
    tools = {"exec": {"sandbox": "none"}, "approval": ask}
    async with platforms(home, FOUND, model, tools=tools) as running:
        chats = chats_of(running, home / "workspace")
        async with GatewayProcess(home):
            await all_running(home, FOUND)
            # What was written before the first answer of a chat may be history.
            await all_say(chats, next(numbers))
            await all_settled(chats, LIMIT_S)
            # Leaving the block kills it.
        async with reacting(chats, model, numbers):
            async with living(chats, numbers, pause_s=pause_s), troubled(running, pause_s=life_s):
                for _ in range(kills):
                    async with GatewayProcess(home):
                        await all_running(home, FOUND)
                        await asyncio.sleep(rng.uniform(life_s / 2, life_s))
            async with GatewayProcess(home) as gateway:
                try:
                    await all_settled(chats)
                except AssertionError as error:
                    error.add_note((await gateway.reported())[-REPORTED_CHARS:])
                    raise
        said, doubled = Counter[str](), Counter[str]()
        for chat in chats:
            said[chat.platform.name] += len(chat.said) + len(chat.voices) + len(chat.commands)
            doubled[chat.platform.name] += len(chat.doubled())
        verbs = Counter(verb for chat in chats for verb in chat.verbs.values())
        report(f"{len(FOUND)} channels, {len(chats)} chats, {kills + 1} kills")
        report(f"{said.total()} messages: {dict(said)}, of these {dict(verbs)}")
        report(f"sent but not recorded, and so sent again: {dict(+doubled)}")
        findings = _findings(chats)
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
    await play(tmp_path / "home", kills=1, life_s=2.0, pause_s=0.2)


@pytest.mark.long
@pytest.mark.timeout(1_800)
async def test_nothing_is_lost_in_ten_minutes_with_a_kill_each_minute(tmp_path: Path) -> None:
    await play(tmp_path / "home", kills=10, life_s=60.0, pause_s=4.0)


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
