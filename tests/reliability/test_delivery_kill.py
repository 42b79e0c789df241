"""A whole gateway, killed at any moment under load: who wrote to it is answered, once."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import sys
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from nanobot_core.bus.sqlite import SqliteBus
from nanobot_core.sessions.history import OUTCOME_UNKNOWN

pytestmark = pytest.mark.anyio

MAILBOX = Path(__file__).parents[1] / "strangers" / "mailbox.py"
CHATS = 20
MESSAGES_A_SECOND = 5
START_LIMIT_S = 30.0
SETTLE_LIMIT_S = 120.0
SHOWN_CHARS = 3_000


@dataclass
class Findings:
    """What a run came to.

    Attributes:
        wrong: what must not be; empty as it should be.
    """

    rounds: int = 0
    messages: int = 0
    answered: int = 0
    interrupted: int = 0
    doubled_sends: int = 0
    doubled_effects: int = 0
    repeated_looks: int = 0
    wrong: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return (
            f"{self.rounds} kills, {self.messages} messages, {self.answered} answered; sent but not"
            f" noted, and so sent again: {self.doubled_sends}; calls whose outcome is unknown, and"
            f" told so: {self.interrupted}; effects doubled: {self.doubled_effects}; looks"
            f" repeated: {self.repeated_looks}; wrong: {len(self.wrong)}"
        )


class Home:
    """A folder of nanobot with the mailbox, and the process that works on it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.mail = path / "mail"
        self.mail.mkdir(parents=True)
        (self.mail / "in.jsonl").touch()
        self.written = 0
        config = {
            "agents": {
                "defaults": {
                    "model": "mailbox/one",
                    "provider": "mailbox",
                    "workspace": str(path / "workspace"),
                }
            },
            "channels": {
                "send_progress": False,
                "mailbox": {
                    "folder": str(self.mail),
                    "allow_from": ["tester"],
                    "rate_limit": 1_000_000,
                },
            },
            "gateway": {"port": 0, "patience_s": 3600},
            "tools": {"guests": {"allow": ["*"], "files": "workspace"}},
            "plugins": {"policy": "listed", "enabled": ["mailbox"], "local": [str(MAILBOX)]},
        }
        file = path / "config.yaml"
        file.write_text(json.dumps(config), "utf-8")
        file.chmod(0o600)

    async def start(self) -> asyncio.subprocess.Process:
        """Start a gateway and wait until it admits messages."""
        environ = {
            name: value for name, value in os.environ.items() if not name.startswith("NANOBOT_")
        }
        with (self.path / "stderr").open("ab") as told:
            before = told.tell()
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "nanobot_core", "gateway"),
                env={**environ, "NANOBOT_HOME": str(self.path)},
                stdin=asyncio.subprocess.DEVNULL,
                stdout=told,
                stderr=told,
            )
        try:
            async with asyncio.timeout(START_LIMIT_S):
                while b"gateway ready" not in self.said(before):
                    assert process.returncode is None, self.said(before).decode()
                    await asyncio.sleep(0.02)
        except BaseException:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()
            raise
        return process

    def said(self, since: int = 0) -> bytes:
        """Return what gateways have printed."""
        return (self.path / "stderr").read_bytes()[since:]

    def write(self) -> None:
        """Send one message more, to the next chat."""
        number, self.written = self.written, self.written + 1
        line = {"id": f"m{number}", "chat": str(number % CHATS), "text": f"do m{number}"}
        with (self.mail / "in.jsonl").open("a", encoding="utf-8") as opened:
            opened.write(json.dumps(line) + "\n")

    def lines(self, name: str) -> list[dict[str, str]]:
        """Return the content of a file of the mailbox."""
        file = self.mail / name
        text = file.read_text("utf-8") if file.exists() else ""
        # A kill may fall into the last line of a life; the next one goes on behind it.
        return [json.loads(line) for line in text.splitlines() if line.endswith("}")]

    def answers(self) -> list[tuple[str, str, str]]:
        """Return (message, chat, key) of every answer that was sent, in order."""
        return [
            (line["text"].split()[1], line["chat"], line["key"])
            for line in self.lines("out.jsonl")
            if line["kind"] == "final" and line["text"].startswith("done ")
        ]

    async def settle(self) -> None:
        """Wait until everything is answered, and nothing waits to be sent."""
        async with asyncio.timeout(SETTLE_LIMIT_S):
            while len({message for message, _, _ in self.answers()}) < self.written:  # noqa: ASYNC110 - another process, which nothing here can await
                await asyncio.sleep(0.1)


async def kill_under_load(home: Home, rng: random.Random, life_s: float) -> None:
    """Let a gateway work for some time while messages come in, then kill it."""
    process = await home.start()
    try:
        until = time.monotonic() + rng.uniform(0, life_s)
        while (left := until - time.monotonic()) > 0:
            home.write()
            await asyncio.sleep(min(1 / MESSAGES_A_SECOND, left))
    finally:
        process.send_signal(signal.SIGKILL)
        await process.wait()


async def end_in_peace(home: Home) -> None:
    """Let a last gateway answer what is left, and end it."""
    process = await home.start()
    try:
        await home.settle()
        process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(SETTLE_LIMIT_S):
            assert await process.wait() == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def judge(home: Home, rounds: int) -> Findings:
    """Compare what was sent with what came in."""
    found = Findings(rounds=rounds, messages=home.written)
    judge_answers(home, found)
    judge_effects(home, found)
    await judge_files(home, found)
    return found


def judge_answers(home: Home, found: Findings) -> None:
    """Everybody is answered, once, and in order."""
    answers = home.answers()
    keys: dict[str, set[str]] = {}
    for message, _, key in answers:
        keys.setdefault(message, set()).add(key)
    wanted = {f"m{number}" for number in range(home.written)}
    found.answered = len(keys)
    found.wrong += [f"{message} has no answer" for message in sorted(wanted - set(keys))]
    found.wrong += [f"{message} has two answers" for message in keys if len(keys[message]) > 1]
    for line in home.lines("out.jsonl"):
        if line["kind"] == "final" and not line["text"].startswith("done "):
            found.wrong.append(f"an answer that is none: {line['text']}")
    sent = Counter(line["key"] for line in home.lines("out.jsonl"))
    found.doubled_sends = sum(count - 1 for count in sent.values())
    for chat in range(CHATS):
        first = list(dict.fromkeys(message for message, where, _ in answers if where == str(chat)))
        if first != sorted(first, key=lambda message: int(message[1:])):
            found.wrong.append(f"chat {chat} is out of order: {first}")


def judge_effects(home: Home, found: Findings) -> None:
    """Each effect happened at most once; if that is unknown, both sides are informed."""
    effects = Counter(line["id"] for line in home.lines("effects.jsonl"))
    found.doubled_effects = sum(count - 1 for count in effects.values())
    found.wrong += [f"{one} was stamped {n} times" for one, n in effects.items() if n > 1]
    looks = Counter(line["id"] for line in home.lines("looks.jsonl"))
    found.repeated_looks = sum(count - 1 for count in looks.values())
    told = {line["key"] for line in home.lines("out.jsonl") if line["kind"] == "notice"}
    for line in home.lines("out.jsonl"):
        if line["kind"] != "final" or not line["text"].startswith("done "):
            continue
        message = line["text"].split()[1]
        if "look=<seen>" not in line["text"]:
            found.wrong.append(f"{message}: what only reads was not run again: {line['text']}")
        if "stamp=<stamped>" in line["text"]:
            if effects[message] != 1:
                found.wrong.append(f"{message} is said to be stamped and is not")
        elif f"stamp=<{OUTCOME_UNKNOWN}>" in line["text"]:
            found.interrupted += 1
            if not any(f"stamp-{message}/unknown" in key for key in told):
                found.wrong.append(f"{message}: its user does not know that nobody knows")
        else:
            found.wrong.append(f"{message}: {line['text']}")


async def judge_files(home: Home, found: Findings) -> None:
    """Nothing was damaged, and nothing is left over."""
    for file in home.path.rglob("*"):
        if "corrupt" in file.name or file.name.endswith(".damaged"):
            found.wrong.append(f"damaged: {file.relative_to(home.path)}")
    bus = await SqliteBus.open(home.path / "gateway" / "bus.sqlite")
    try:
        found.wrong += bus.repaired
        depth = await bus.depth()
        if (depth.inbound, depth.outbound, depth.dead) != (0, 0, 0):
            found.wrong.append(f"left over: {depth}")
    finally:
        await bus.aclose()


async def survive(path: Path, rounds: int, life_s: float) -> Findings:
    """Kill a gateway again and again."""
    home, rng = Home(path), random.Random(rounds)
    for _ in range(rounds):
        await kill_under_load(home, rng, life_s)
    await end_in_peace(home)
    return await judge(home, rounds)


async def test_a_killed_gateway_answers_everybody_once(tmp_path: Path) -> None:
    found = await survive(tmp_path / "home", 6, 3.0)
    print(found)  # noqa: T201 - the figures are what the test is run for
    assert found.wrong == []
    assert found.messages == found.answered > 0


@pytest.mark.long
@pytest.mark.timeout(3_600)
async def test_two_hundred_killed_gateways_answer_everybody_once(tmp_path: Path) -> None:
    found = await survive(tmp_path / "home", 200, 4.0)
    print(found)  # noqa: T201 - the figures are what the test is run for
    assert found.wrong == []
    assert found.messages == found.answered > 0
