"""Jobs that the agent made in a chat, and a gateway that is killed around their times.

Each of them is done once, and its answer reaches that chat.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
from collections import Counter
from pathlib import Path

import pytest

pytest.importorskip("nanobot_cron", reason="nanobot-cron is not installed")

from nanobot_core.sessions.history import OUTCOME_UNKNOWN
from tests.gateways import GatewayProcess, Platform, until, write_config

pytestmark = pytest.mark.anyio
JOBS = 4
"""Jobs of a round, each in a chat of its own."""
FIRST_S = 0.5
"""Seconds until the first is due; the others follow within `SPREAD_S`."""
SPREAD_S = 0.6


def answers(platform: Platform) -> dict[str, tuple[str, str]]:
    """Return the answers of jobs by their keys: chat and text."""
    sent = [one for one in platform.sent if one["key"].startswith("cron/")]
    return {one["key"]: (one["chat"], one["text"]) for one in sent if one["key"].endswith(":final")}


async def make_jobs(platform: Platform, number: int) -> None:
    """Have the agent make jobs, which call a tool that must not be called twice."""
    made = len([one for one in platform.sent if "Added job" in one["text"]])
    for chat in range(JOBS):
        task = f"call note {json.dumps({'word': f'{number}-{chat}'})}"
        due = f"+{FIRST_S + SPREAD_S * chat / JOBS:.2f}s"
        arguments = json.dumps({"action": "add", "message": task, "at": due})
        await platform.say(f"call cron {arguments}", chat=str(chat))
    await platform.until(
        lambda: len([one for one in platform.sent if "Added job" in one["text"]]) == made + JOBS
    )


async def survive(home: Path, kills: int, seed: int) -> Counter[str]:
    """Kill a gateway again and again while jobs are due, and return how the jobs ended."""
    rng = random.Random(seed)
    async with Platform() as platform:
        write_config(home, platform, plugins=["cron"], channels={"send_progress": False})
        for number in range(kills):
            async with GatewayProcess(home) as gateway:
                await platform.until(lambda: len(answers(platform)) == number * JOBS)  # noqa: B023 - called here
                await make_jobs(platform, number)
                await asyncio.sleep(rng.uniform(0, FIRST_S + SPREAD_S))
                os.kill(gateway.pid, signal.SIGKILL)
                await gateway.ended()
        async with GatewayProcess(home) as gateway:
            await platform.until(lambda: len(answers(platform)) == kills * JOBS)
            await until(lambda: stored(home) == [])
            gateway.send(signal.SIGTERM)
            assert await gateway.ended() == 0
        return judge(home, platform, kills)


def stored(home: Path) -> list[object]:
    """Return the jobs that are stored."""
    (file,) = (home / "plugins" / "cron").glob("jobs.json")
    jobs: list[object] = json.loads(file.read_text())["jobs"]
    return jobs


def judge(home: Path, platform: Platform, kills: int) -> Counter[str]:
    """Every job has one answer in its chat, and was done at most once."""
    words = [f"{number}-{chat}" for number in range(kills) for chat in range(JOBS)]
    done = Counter((home / "workspace" / "notes.txt").read_text().split())
    assert set(done.values()) == {1}
    assert set(done) <= set(words)
    found = answers(platform)
    assert len(found) == len(words)
    outcomes = Counter[str]()
    for chat, text in found.values():
        if OUTCOME_UNKNOWN in text:
            outcomes["outcome unknown"] += 1
            continue
        word = text.removeprefix("The tool said: noted ")
        assert done[word] == 1
        assert word.endswith(f"-{chat}")
        outcomes[f"answered {word}"] += 1
    assert all(count == 1 for what, count in outcomes.items() if what.startswith("answered"))
    return Counter(what.split()[0] for what in outcomes.elements())


async def test_jobs_are_done_once_by_a_gateway_that_is_killed(tmp_path: Path) -> None:
    outcomes = await survive(tmp_path / "home", 2, seed=1)
    assert outcomes["answered"] > 0


@pytest.mark.long
@pytest.mark.timeout(3_600)
async def test_jobs_are_done_once_by_a_gateway_that_is_killed_200_times(tmp_path: Path) -> None:
    outcomes = await survive(tmp_path / "home", 200, seed=2)
    print(outcomes)  # noqa: T201 - the figures are what the test is run for
    assert outcomes["answered"] > 400
