"""Turns in a warm process, compared with the same requests by httpx alone.

Each turn is the second one of its session; all plugins are enabled, every message is stored with
an fsync. The floor replays the bodies that the turn sent, so that the service has the same work.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from itertools import count
from typing import Any

import httpx

from benchmarks.measure import Cost, Goal, Row, cost_of, cost_rows, interleave_async
from benchmarks.server import ModelServer, model_server, nanobot_home, open_agent
from nanobot_core import Nanobot

FILES = 50
ROUNDS = 20
ROUNDS_OF_50 = 4
GOAL = Goal(2.5)
ANSWER: Mapping[str, object] = {"text": "Done."}


def rows(scale: int) -> Iterator[Row]:
    """Measure each kind of turn with a service of its own."""
    one, many = [_reading(1), ANSWER], [*(_reading(number) for number in range(50)), ANSWER]
    for title, replies, rounds in (
        ("answer / 1 round trip", [ANSWER], ROUNDS),
        ("one tool call / 2 round trips", one, ROUNDS),
        ("50 successive tool calls / 51 round trips", many, ROUNDS_OF_50),
    ):
        ours, floor = asyncio.run(_against_httpx(replies, rounds * scale))
        yield from cost_rows(title, ours, floor, GOAL)
    side_by_side = [_reading(*range(20)), ANSWER]
    ours, floor = asyncio.run(_against_each_other(side_by_side, one, ROUNDS * scale))
    yield from cost_rows("20 parallel read_file / one", ours, floor)


async def _against_httpx(
    replies: Sequence[Mapping[str, object]], rounds: int
) -> tuple[list[Cost], ...]:
    async with _stage(replies, rounds) as stage:
        await stage.turn()
        bodies = [each["body"] for each in stage.server.requests()[-len(replies) :]]
        return await interleave_async(rounds, stage.turn, lambda: stage.replay(bodies))


async def _against_each_other(
    ours: Sequence[Mapping[str, object]], floor: Sequence[Mapping[str, object]], rounds: int
) -> tuple[list[Cost], ...]:
    async with _stage(ours, rounds) as one, _stage(floor, rounds) as other:
        return await interleave_async(rounds, one.turn, other.turn)


class _Stage:
    """An agent and an httpx client of one service, which answers all turns alike."""

    def __init__(self, bot: Nanobot, client: httpx.AsyncClient, server: ModelServer) -> None:
        self.server = server
        self._bot = bot
        self._client = client
        self._numbers = count()

    async def turn(self) -> Cost:
        """Return the time of the second turn of a new session."""
        session = f"bench:{next(self._numbers)}"
        await self._answered(session)
        return await cost_of(self._answered(session))

    async def replay(self, bodies: Sequence[Mapping[str, Any]]) -> Cost:
        """Return the time of the requests of a turn without nanobot."""
        return await cost_of(self._posted(bodies))

    async def _answered(self, session: str) -> None:
        outcome = await self._bot.run("hello", session=session)
        if outcome.stop_reason != "completed":
            raise RuntimeError(outcome.error or outcome.stop_reason)

    async def _posted(self, bodies: Sequence[Mapping[str, Any]]) -> None:
        for body in bodies:
            answer = await self._client.post(f"{self.server.url}/chat/completions", json=body)
            answer.raise_for_status()


@asynccontextmanager
async def _stage(replies: Sequence[Mapping[str, object]], rounds: int) -> AsyncIterator[_Stage]:
    # A round takes the replies three times: first turn, second turn, floor.
    script = [*replies] * (3 * (rounds + 2))
    with model_server(script) as server, nanobot_home(server.url) as home:
        for number in range(FILES):
            (home / "workspace" / f"{number}.txt").write_text(f"This is file {number}.\n")
        async with (
            open_agent(home) as bot,
            httpx.AsyncClient(trust_env=False, timeout=30) as client,
        ):
            yield _Stage(bot, client, server)


def _reading(*numbers: int) -> Mapping[str, object]:
    """Return a reply that reads files concurrently."""
    calls = [
        {
            "name": "read_file",
            "arguments": json.dumps({"path": f"{number}.txt"}),
            "id": f"call_{number}",
        }
        for number in numbers
    ]
    return {"calls": calls}
