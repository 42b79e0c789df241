"""A process that is killed loses no key and uses none twice."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from nanobot_core.testing import load_stand_in

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]
pytest.importorskip("vodozemac", reason="the extra 'e2e' is not installed")
pytest.importorskip("cryptography", reason="the extra 'e2e' is not installed")
pytest.importorskip("nio.crypto", reason="matrix-nio[e2e] is not installed")
HERE = Path(__file__).parent
SealedMatrix: Any = load_stand_in(HERE / "sealed_matrix.py")
ROOM = "!anna:example.org"
RULE = {"algorithm": "m.megolm.v1.aes-sha2", "rotation_period_msgs": 2}
PLACES = ("/keys/upload", "/sync", "/keys/claim", "/sendToDevice/", "/send/m.room.encrypted/")


class Process:
    """The agent in a process of its own, killed at the next call to a place."""

    def __init__(self, folder: Path, section: dict[str, Any]) -> None:
        self._folder = folder
        self._settings = {"allow_from": ["*"], **section}
        self._running: asyncio.subprocess.Process | None = None
        self._place: tuple[str, bool] | None = None

    async def start(self) -> None:
        """Start the process."""
        self._running = await asyncio.create_subprocess_exec(
            sys.executable,
            str(HERE / "killed_agent.py"),
            *(str(self._folder), json.dumps(self._settings)),
            stderr=asyncio.subprocess.DEVNULL,
        )

    def kill_at(self, place: str, *, is_done: bool) -> None:
        """Kill the process at its next call to a place, before or after that takes effect."""
        self._place = (place, is_done)

    def watch(self, path: str, is_done: bool) -> None:
        """Take note of a call."""
        if self._place is not None and self._place[1] == is_done and self._place[0] in path:
            self._place = None
            self.kill()

    def kill(self) -> None:
        """Kill the process now."""
        if self._running is not None and self._running.returncode is None:
            self._running.kill()

    async def ended(self) -> None:
        """Wait until the process is dead."""
        async with asyncio.timeout(30):
            if self._running is not None:
                await self._running.wait()


async def test_a_kill_at_any_call_loses_nothing(tmp_path: Path) -> None:
    said: list[str] = []
    async with SealedMatrix() as local:
        agent = Process(tmp_path, local.section())
        local.watch = agent.watch
        await agent.start()
        await local.say("first")
        said.append("first")
        local.push(ROOM, local.anna.id, RULE, type="m.room.encryption", state_key="")
        try:
            for number, place in enumerate(PLACES * 2):
                local.phone.forget(ROOM)
                if place == "/keys/upload":
                    local.keys.one_time_keys["@nano:example.org", "NANO"].clear()
                if place == "/keys/claim":
                    add_device(local, number)
                agent.kill_at(place, is_done=number >= len(PLACES))
                said.append(f"message {number}")
                await local.say(said[-1])
                await agent.ended()
                await agent.start()
            async with asyncio.timeout(60):
                while answers(local) != {f"answer to {text}" for text in said}:  # noqa: ASYNC110
                    await asyncio.sleep(0.05)
        finally:
            local.watch = None
            agent.kill()
            await agent.ended()
        # No index of a room key was used for two events: matrix-nio refuses the second.
        assert all(event["type"] == "m.room.encrypted" for event in local.events(ROOM))
        assert len(local.keys.claimed) == len(set(local.keys.claimed))


def answers(local: Any) -> set[str]:  # noqa: ANN401 - its module is loaded by path
    return {each.text for each in local.shown(ROOM) if each.author == local.agent}


def add_device(local: Any, number: int) -> None:  # noqa: ANN401 - its module is loaded by path
    """Give Anna another device, to which the agent begins a session."""
    client = sys.modules[SealedMatrix.__module__].NioClient
    client(local.keys, local.anna.id, f"TABLET{number}")
