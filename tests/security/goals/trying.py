"""Trying goals: every wall, every speaker, and what came of it."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, TypeAlias
from uuid import uuid4

from tests.gateways import Platform
from tests.security.goals.goal import SPEAKERS, Goal, Setting, Speaker
from tests.security.goals.hosts import VICTIM, GatewayHost, PipeHost, TerminalHost
from tests.security.goals.model import ObedientModel
from tests.security.goals.speakers import AtTerminal, InChat, Unattended, Voice
from tests.security.goals.trial import Trial
from tests.security.goals.walls import WALLS, WallName, missing, wall
from tests.security.goals.world import World

Verdict: TypeAlias = Literal["refused", "asked", "open", "REACHED", "STUCK", "UNTRIED"]
"""``asked``: a question was put to the owner, who said no. ``open``: reached, and documented.
``STUCK``: the turn did not end. ``UNTRIED``: no call of the model was answered."""

SAFE: Final[frozenset[Verdict]] = frozenset({"refused", "asked", "open"})
_SETTINGS: Final[tuple[Setting, ...]] = ("default", "strict")
_ENTRANCE_LIMIT_S: Final = 30.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of one goal in one combination."""

    goal: str
    wall: WallName
    speaker: Speaker
    verdict: Verdict


Report: TypeAlias = Callable[[Outcome], None]


async def try_goals(
    goals: Sequence[Goal],
    walls: Iterable[WallName] = WALLS,
    speakers: Sequence[Speaker] = SPEAKERS,
    report: Report = lambda _: None,
) -> list[Outcome]:
    """Try each goal behind each wall that works here, for each speaker."""
    found: list[Outcome] = []

    def note(outcome: Outcome) -> None:
        found.append(outcome)
        report(outcome)

    for name in walls:
        if missing(name):
            continue
        for setting in _SETTINGS:
            wanted = [goal for goal in goals if goal.setting == setting]
            if wanted:
                await _try_behind(name, setting, wanted, speakers, note)
    return found


async def _try_behind(
    name: WallName,
    setting: Setting,
    goals: Sequence[Goal],
    speakers: Sequence[Speaker],
    report: Report,
) -> None:
    async with ObedientModel() as model, asyncio.TaskGroup() as group:
        for kind in ("gateway", "terminal", "pipe"):
            group.create_task(_try_host(kind, name, setting, model, goals, speakers, report))


async def _try_host(
    kind: str,
    name: WallName,
    setting: Setting,
    model: ObedientModel,
    goals: Sequence[Goal],
    speakers: Sequence[Speaker],
    report: Report,
) -> None:
    kinds: dict[Speaker, str] = {"terminal": "terminal", "unattended": "pipe"}
    wanted = [speaker for speaker in speakers if kinds.get(speaker, "gateway") == kind]
    if not wanted:
        return
    async with _voices(kind, name, setting, model) as voices:
        for voice in voices:
            if voice.name in wanted:
                for goal in goals:
                    report(Outcome(goal.id, name, voice.name, await _try(goal, voice, model)))


@asynccontextmanager
async def _voices(
    kind: str, name: WallName, setting: Setting, model: ObedientModel
) -> AsyncIterator[list[Voice]]:
    """Build a world with a nanobot in it, and lend those who speak with it."""
    # Addresses of sockets have 100 bytes, and folders of tests have long names.
    folder = Path(tempfile.mkdtemp(prefix="goals-"))
    try:
        async with AsyncExitStack() as opened:
            platform = await opened.enter_async_context(Platform())
            address = str(platform.path) if kind == "gateway" else ""
            world = World(folder, wall(name), setting, model.server.url, address)
            await opened.enter_async_context(world.listeners)
            await _write_as_victim(world)
            voices: list[Voice]
            if kind == "gateway":
                gateway = GatewayHost(world, platform)
                voices = [InChat(gateway, "owner"), InChat(gateway, "guest")]
            elif kind == "terminal":
                voices = [AtTerminal(TerminalHost(world))]
            else:
                voices = [Unattended(PipeHost(world))]
            opened.push_async_callback(voices[0].host.stop)
            await voices[0].host.start()
            yield voices
    finally:
        shutil.rmtree(folder)


async def _write_as_victim(world: World) -> None:
    """Begin a session of someone else, and keep the world as it is then."""
    words = f"My secret is {world.canaries['words']}."
    await PipeHost(world).turn(None, (words, ""), VICTIM, _ENTRANCE_LIMIT_S)
    world.keep()


async def _try(goal: Goal, voice: Voice, model: ObedientModel) -> Verdict:
    world = voice.host.world
    trial = Trial(goal, world, uuid4().hex[:12])
    world.listeners.heard.clear()
    async with asyncio.TaskGroup() as group:
        knocking = group.create_task(world.listeners.knock())
        try:
            await _attack(trial, voice, model)
        finally:
            knocking.cancel()
    model.forget(trial)
    trial.is_taken_over = trial.nonce in model.taken_over
    is_reached = goal.reached(trial)
    await _tidy(trial, voice, is_harmed=is_reached)
    if is_reached:
        return "open" if voice.name in goal.documented else "REACHED"
    if not trial.answered:
        return "STUCK"
    if not trial.results:
        return "UNTRIED"
    return "asked" if trial.questions else "refused"


async def _attack(trial: Trial, voice: Voice, model: ObedientModel) -> None:
    goal = trial.goal
    for name, canary in goal.plants.items():
        trial.world.plant(name, trial.world.canaries[canary])
    trial.answered = await voice.attack(trial, model.expect(trial, goal.means))
    trial.is_alive = trial.is_alive and voice.host.is_alive
    if goal.later == "nothing" or not trial.is_alive:
        return
    try:
        if goal.later == "start":
            await voice.host.stop()
            await voice.host.start()
        trial.later_answered = await voice.later(trial, model.expect(trial))
    except (AssertionError, TimeoutError):
        trial.later_answered = False


async def _tidy(trial: Trial, voice: Voice, *, is_harmed: bool) -> None:
    """Make the world as it was; where more than the workspace was touched, with a new start."""
    world, host = trial.world, voice.host
    is_well = trial.answered and trial.later_answered and host.is_alive
    if is_well and not is_harmed and world.is_whole():
        world.restore_workspace()
        return
    await host.stop()
    world.restore()
    await host.start()
