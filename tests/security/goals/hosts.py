"""The three ways in which nanobot runs: a gateway, a terminal, and one message through a pipe."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import time
from abc import ABC, abstractmethod
from collections import Counter
from contextlib import suppress
from typing import Final
from uuid import uuid4

from tests.gateways import OWNER, Platform
from tests.integration.cli.terminal import Terminal
from tests.security.goals.trial import Trial
from tests.security.goals.world import NEVER_A_PROCESS, World

START_LIMIT_S: Final = 30.0
STOP_LIMIT_S: Final = 15.0
VICTIM: Final = "victim"
_ASKED: Final = "Allow it?"
_QUESTION: Final = re.compile(r"/deny (\w+)")


class Host(ABC):
    """A nanobot that runs in a world."""

    def __init__(self, world: World) -> None:
        self.world = world

    @abstractmethod
    async def start(self) -> None:
        """Start and wait until it can be spoken to."""

    @abstractmethod
    async def stop(self) -> None:
        """End it, also where it hangs or is gone."""

    @property
    @abstractmethod
    def is_alive(self) -> bool:
        """Whether it runs as it should."""


class GatewayHost(Host):
    """``nanobot gateway`` with a platform on which the owner, a guest and a victim have chats."""

    def __init__(self, world: World, platform: Platform) -> None:
        super().__init__(world)
        self._platform = platform
        self._process: asyncio.subprocess.Process | None = None
        self._answered: set[str] = set()
        self._denied: Counter[str] = Counter()

    async def start(self) -> None:
        log = self.world.folder / "stderr.txt"
        with log.open("wb") as stderr:
            self._process = await asyncio.create_subprocess_exec(
                *self.world.command("gateway"),
                env=self.world.environment,
                cwd=self.world.user,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.DEVNULL,
                stderr=stderr,
                start_new_session=True,
            )
        self.world.pid = self._process.pid
        async with asyncio.timeout(START_LIMIT_S):
            while b"gateway ready" not in log.read_bytes():
                assert self._process.returncode is None, log.read_text()
                await asyncio.sleep(0.02)
        await self._platform.say("I am here.", chat="home", sender=OWNER)

    async def stop(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        with suppress(ProcessLookupError):
            process.send_signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(STOP_LIMIT_S):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()

    @property
    def is_alive(self) -> bool:
        return self._process is not None and self._process.returncode is None

    async def turn(self, trial: Trial, said: tuple[str, str], who: str, limit_s: float) -> bool:
        """Have a message answered in a new chat; the owner says no to every question."""
        words, end = said
        chat = f"{who}-{uuid4().hex[:8]}"
        start = len(self._platform.sent)
        with suppress(TimeoutError):
            async with asyncio.timeout(limit_s):
                await self._platform.say(words, chat=chat, sender=who)
                while not self._has_ended(chat):
                    if not await self._deny(trial, start):
                        await self._news(len(self._platform.sent))
        trial.sent += [(sent["chat"], sent["text"]) for sent in self._platform.sent[start:]]
        trial.shown += [text for _, text in trial.sent]
        return any(end in text for text in self._platform.texts(chat))

    def _has_ended(self, chat: str) -> bool:
        """Whether the turn of a chat has its reply; the owner's answers have one, too."""
        replies = [
            sent["key"]
            for sent in self._platform.sent
            if sent["chat"] == chat and sent["key"].endswith(":final")
        ]
        return len(replies) > self._denied[chat]

    async def _deny(self, trial: Trial, start: int) -> bool:
        """Answer the questions since `start`; return whether there was one."""
        found = False
        for sent in self._platform.sent[start:]:
            for question in _QUESTION.findall(sent["text"]):
                if question in self._answered:
                    continue
                found = True
                self._answered.add(question)
                trial.questions += 1
                await asyncio.sleep(trial.goal.patience_s)
                self._denied[sent["chat"]] += 1
                await self._platform.say(f"/deny {question}", chat=sent["chat"], sender=OWNER)
        return found

    async def _news(self, count: int) -> None:
        """Wait until the platform has more than `count` messages, or the gateway is gone."""
        with suppress(TimeoutError):
            await self._platform.until(lambda: len(self._platform.sent) > count, 0.5)
        if not self.is_alive:
            raise TimeoutError


class TerminalHost(Host):
    """``nanobot agent`` on a pseudo-terminal, at which a person says no to every question."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._terminal: PatientTerminal | None = None

    async def start(self) -> None:
        self._terminal = await asyncio.to_thread(self._open)

    def _open(self) -> PatientTerminal:
        terminal = PatientTerminal(
            self.world.command("agent", "--no-markdown"),
            {**self.world.environment, "NO_COLOR": "1"},
        )
        self.world.pid = terminal.pid
        terminal.expect("Ctrl-D leaves")
        terminal.expect(">")
        return terminal

    async def stop(self) -> None:
        terminal, self._terminal = self._terminal, None
        if terminal is not None:
            await asyncio.to_thread(terminal.__exit__, None, None, None)

    @property
    def is_alive(self) -> bool:
        return self._terminal is not None and not self._terminal.has_ended

    async def turn(self, trial: Trial, said: tuple[str, str], limit_s: float) -> bool:
        """Have a message answered in a new session."""
        assert self._terminal is not None
        return await asyncio.to_thread(self._turn, self._terminal, trial, said, limit_s)

    def _turn(
        self, terminal: PatientTerminal, trial: Trial, said: tuple[str, str], limit_s: float
    ) -> bool:
        words, end = said
        terminal.forget()
        terminal.send("/new\r")
        finish = time.monotonic() + limit_s
        found = terminal.first("Started a new conversation", end=finish)
        terminal.send(f"{words}\r")
        signs = (end, _ASKED, "Error: ")
        while found and (found := terminal.first(*signs, end=finish)) == _ASKED:
            trial.questions += 1
            time.sleep(trial.goal.patience_s)
            terminal.send("n\r")
        trial.shown.append(terminal.shown())
        has_prompt = found is not None and terminal.first(">", end=finish) is not None
        return has_prompt and found == end


class PatientTerminal(Terminal):
    """A terminal on which one of several things may come."""

    @property
    def pid(self) -> int:
        """Return the id of the process."""
        return self._pid

    @property
    def has_ended(self) -> bool:
        """Whether the process is gone."""
        if self._code is None:
            pid, status = os.waitpid(self._pid, os.WNOHANG)
            if pid:
                self._code = os.waitstatus_to_exitcode(status)
        return self._code is not None

    def forget(self) -> None:
        """Forget what came so far."""
        self._seen, self._position = "", 0

    def first(self, *texts: str, end: float) -> str | None:
        """Wait for one of `texts` until `end`; return which came first, or ``None``."""
        while True:
            fresh = self.shown()[self._position :]
            places = {text: place for text in texts if (place := fresh.find(text)) >= 0}
            if places:
                text = min(places, key=lambda one: places[one])
                self._position += places[text] + len(text)
                return text
            if time.monotonic() >= end or not self._read(end):
                return None


class PipeHost(Host):
    """``nanobot agent -m``, a process for each message, without a terminal."""

    async def start(self) -> None:
        self.world.pid = NEVER_A_PROCESS

    async def stop(self) -> None:
        """Nothing runs between two messages."""

    @property
    def is_alive(self) -> bool:
        return True

    async def turn(
        self, trial: Trial | None, said: tuple[str, str], session: str, limit_s: float
    ) -> bool:
        """Have a message answered; False when that takes too long or the process was killed."""
        words, end = said
        process = await asyncio.create_subprocess_exec(
            *self.world.command("agent", "-m", words, "-s", f"cli:{session}"),
            env=self.world.environment,
            cwd=self.world.user,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            async with asyncio.timeout(limit_s):
                output, _ = await process.communicate()
        except TimeoutError:
            process.kill()
            await process.wait()
            return False
        text = output.decode(errors="replace")
        if trial is not None:
            trial.shown.append(text)
            trial.is_alive = trial.is_alive and (process.returncode or 0) >= 0
        return end in text
