"""``/stop`` at any moment: answered in time, and nothing of what was stopped goes on."""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections import Counter
from pathlib import Path

import pytest
from loguru import logger

from nanobot_core import Message, Nanobot
from nanobot_core.app.client import ControlClient
from nanobot_core.sessions.history import align
from tests.gateways import Platform, running, until, write_config
from tests.strangers import delegator

pytestmark = pytest.mark.anyio
IDLE_WITHIN_S = 20.0
ANSWERED_WITHIN_S = 5.0
DELEGATOR = Path(delegator.__file__)
MARK = "7391.25"
"""Seconds of a ``sleep`` by which its process is known among all others."""
EMPTY = {"inbound": 0, "outbound": 0, "dead": 0}
ENDS = "a tool that ends by itself"
TREE = "a tree of processes"
PROCESSES = (
    f'exec {{"command": "sh -c \\"sleep {MARK} & sleep {MARK}\\" & '
    f'sleep {MARK} & sleep {MARK}; echo output of what was stopped"}}'
)


def child(name: str, wish: str, by: str = "assign") -> str:
    """Return the call that has a child do something."""
    how = json.dumps({"source": "subagent" if by == "work" else "cron"})
    return f"{by} {json.dumps({'name': f'{name}@CHAT', 'content': wish, 'how': how})}"


COMMANDS = {
    "a model that says nothing": "hang",
    "a model that goes on and on": "stream",
    TREE: f"call {PROCESSES}",
    "tools side by side": "call "
    + ";; ".join(f'wait_beside {{"seconds": {number + 600}}}' for number in range(5)),
    "a question to the owner": 'call note {"word": "stopped"}',
    "a tool that ignores it": 'call ignore_stop {"seconds": 4}',
    ENDS: 'call wait_beside {"seconds": 0.05}',
    "a child that says nothing": "call " + child("a", "hang"),
    "a child with a tree of processes": "call " + child("a", f"call {PROCESSES}"),
    "a grandchild that goes on and on": "call "
    + child("a", "call " + child("b", "call " + child("c", "stream", by="work"))),
    "a grandchild that asks the owner": "call "
    + child("a", "call " + child("b", 'call note {"word": "stopped"}')),
    "a child of a call": "call " + child("a", "hang", by="work"),
    "children that wait for others": "call "
    + ";; ".join(child(str(number), "hang") for number in range(6)),
}
"""What a turn does; ``@CHAT`` stands for the chat."""


def processes() -> list[str]:
    """Return the command lines of what the shell tool has started."""
    found = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            text = file.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if MARK in text:
            found.append(text)
    return found


async def stop_at_random(folder: Path, times: int, seed: int) -> None:
    rng = random.Random(seed)
    figures: list[float] = []
    kinds: Counter[str] = Counter()
    async with Platform() as platform:
        write_config(
            folder,
            platform,
            plugins=["shell", DELEGATOR],
            agents={"max_concurrent_turns": 4},
            tools={"approval": [{"tool": "note", "action": "ask"}], "exec": {"timeout": 600}},
        )
        async with running(folder) as bot:
            for number in range(times):
                kind = list(COMMANDS)[number % len(COMMANDS)]
                answered_s, reply = await _stop_once(platform, number, COMMANDS[kind], rng.random())
                assert answered_s < ANSWERED_WITHIN_S, (kind, answered_s)
                assert reply == "Stopped." or kind == ENDS, (kind, reply)
                figures.append(answered_s)
                kinds[f"{kind}: {reply}"] += 1
                await _is_whole(bot, platform, number)
            # Time for whatever ignored its end, so that its output could show up.
            await asyncio.sleep(4)
            ends_s = time.monotonic() + IDLE_WITHIN_S
            while (left := await _work_left(folder)) != (0, EMPTY):
                assert time.monotonic() < ends_s, left
                await asyncio.sleep(0.1)
            shown = [one["text"] for one in platform.sent]
            stored = [text for number in range(times) for text in await _texts(bot, number)]
    assert not [text for text in shown + stored if text.startswith("output of what was")]
    assert not (folder / "workspace" / "notes.txt").exists()
    assert processes() == []
    assert json.loads((folder / "gateway" / "approvals.json").read_text()) == []
    middle_s, worst_s = sorted(figures)[len(figures) // 2], max(figures)
    logger.info("{} stops: median {:.3f} s, worst {:.3f} s", times, middle_s, worst_s)
    for kind, count in sorted(kinds.items()):
        logger.info("{:3} {}", count, kind)


async def _work_left(folder: Path) -> tuple[object, object]:
    status = await ControlClient(folder / "gateway").call("status")
    assert isinstance(status, dict)
    return status["turns"], status["depth"]


async def _stop_once(
    platform: Platform, number: int, command: str, share: float
) -> tuple[float, str]:
    """Let a turn begin, stop it at some moment, and return how long that took and the answer."""
    chat = str(number)
    await platform.say(command.replace("@CHAT", f"-{number}"), chat=chat)
    await asyncio.sleep(share * 0.7)
    if command == COMMANDS[TREE] and share > 0.3:
        await until(lambda: len(processes()) >= 4)
    started_s = time.monotonic()
    await platform.say("/stop", chat=chat)

    def answer() -> str | None:
        answers = [text for text in platform.texts(chat) if text in {"Stopped.", NOTHING}]
        return answers[0] if answers else None

    await platform.until(lambda: answer() is not None)
    return time.monotonic() - started_s, answer() or ""


NOTHING = "Nothing is running in this chat."


async def _is_whole(bot: Nanobot, platform: Platform, number: int) -> None:
    """The session is valid and the next message works; no process is left."""
    chat = str(number)
    await platform.say("say next", chat=chat)
    await platform.until(lambda: "next" in platform.texts(chat))
    history = await _history(bot, number)
    assert list(align(history)) == history
    assert history[-1].text == "next"
    assert processes() == []


async def _history(bot: Nanobot, number: int) -> list[Message]:
    return [message async for message in bot.sessions.read(f"chatty:{number}")]


async def _texts(bot: Nanobot, number: int) -> list[str]:
    return [message.text for message in await _history(bot, number)]


async def test_a_turn_is_stopped_whatever_it_does(tmp_path: Path) -> None:
    await stop_at_random(tmp_path, len(COMMANDS), seed=1)


@pytest.mark.long
@pytest.mark.timeout(1200)
async def test_a_hundred_turns_are_stopped_whatever_they_do(tmp_path: Path) -> None:
    await stop_at_random(tmp_path, 100, seed=2)
