"""The people of a month: the owner and a guest in every chat."""

from __future__ import annotations

import asyncio
import itertools
import json
import random
import re
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Final

from nanobot_core.testing import StandIn
from nanobot_core.testing.stand_in import answers, transcript
from tests.crowd.chat import Chat, chats_of
from tests.crowd.people import AGAIN_S, DEEDS, Deeds, living, reacting
from tests.month.model import MonthModel

DAILY: Final = "tick daily"
OFTEN: Final = "tick often"
SETTLE_LIMIT_S: Final = 90.0
LIVING_CHATS: Final = 9
"""Chats in which people write on a day."""
PAUSE_S: Final = 0.6
"""Most seconds between two things that are done in a chat."""
_POLL_S: Final = 0.1
_DENY_S: Final = 0.5
_SHOWN_CHARS: Final = 2_000
_BUDGET: Final = "the day budget is used up"
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


class People:
    """Everyone who writes on a platform.

    Attributes:
        chats: in which they write.
        numbers: of what they do next.

    Args:
        platforms: the chat platforms.
        home: nanobot's folder.
        model: what answers them.
        rng: decides who writes.
    """

    def __init__(
        self, platforms: Sequence[StandIn], home: Path, model: MonthModel, rng: random.Random
    ) -> None:
        self.chats: list[Chat] = chats_of(platforms, home / "workspace")
        self.numbers: Iterator[int] = itertools.count(1)
        self._model = model
        self._rng = rng
        self._open_file = home / "gateway/approvals.json"
        self._denied: set[str] = set()
        self._open_s: dict[str, float] = {}

    async def greet(self) -> None:
        """Write in every chat, and wait for the answers: what precedes them may be history."""
        for chat in self.chats:
            await chat.say(next(self.numbers))
        await self.settle()

    async def write(self) -> None:
        """Let someone write in a few chats."""
        for chat in self.some_chats():
            await chat.say(next(self.numbers))

    def some_chats(self) -> list[Chat]:
        """Choose the chats in which people write."""
        return self._rng.sample(self.chats, LIVING_CHATS)

    def live(self, chats: Sequence[Chat], seed: str) -> AbstractAsyncContextManager[None]:
        """Let people do everything in some chats while the block runs."""
        return living(chats, self.numbers, pause_s=PAUSE_S, deeds=MONTH_DEEDS, seed=seed)

    @asynccontextmanager
    async def react(self, chats: Sequence[Chat]) -> AsyncIterator[None]:
        """Let people react to what some chats show; the owner denies what attackers ask for."""
        async with reacting(chats, self._model, self.numbers), asyncio.TaskGroup() as group:
            task = group.create_task(self._deny_all())
            yield
            task.cancel()

    async def settle(self) -> None:
        """Wait until people wait for nothing, and nothing runs that they have stopped.

        Raises:
            TimeoutError: Something is not answered; it says what.
        """
        try:
            await _until(lambda: all(chat.is_settled() for chat in self.chats) and not self._runs())
        except TimeoutError:
            runs = f"turns that were stopped and run: {self._runs()}"
            raise TimeoutError("\n".join([*self.findings(), runs])) from None

    def _runs(self) -> list[int]:
        """Return the messages that the model is made to think about for ever.

        A turn that was stopped begins again after a kill, if its end was not stored.
        """
        asked = self._model.unanswered.items()
        return [number for number, request in asked if not request.disconnected.is_set()]

    async def spend(self) -> None:
        """Spend the budget of the day."""
        chat = self._owners_chat()
        for _ in range(2):
            number = next(self.numbers)
            await chat.say(number, "spend")
            await _until(lambda: number in chat.answered())  # noqa: B023 - awaited here

    async def are_refused(self) -> None:
        """Ask three times, and wait until the spent budget was named as often."""
        chat = self._owners_chat()
        seen = _refusals(chat)
        for count in range(1, 4):
            await chat.write(f"anything {count}")
            await _until(lambda: _refusals(chat) >= seen + count)  # noqa: B023 - awaited here

    def findings(self) -> list[str]:
        """Return what is wrong in the chats, with what they show."""
        found = [(chat, list(chat.findings(self._model.story_lines))) for chat in self.chats]
        return [
            f"{chat.platform.name} {chat.id}: {'; '.join(wrong)}\n"
            + transcript(chat.platform.shown(chat.id))[-_SHOWN_CHARS:]
            for chat, wrong in found
            if wrong
        ]

    def counts(self) -> Counter[str]:
        """Count what people did, and what they saw."""
        verbs = Counter(verb for chat in self.chats for verb in chat.verbs.values())
        shown = "\n".join(text for chat in self.chats for text in chat.texts())
        return Counter(
            {
                "messages": sum(len(chat.said) + len(chat.voices) for chat in self.chats),
                "shown twice": sum(len(chat.doubled()) for chat in self.chats),
                "questions denied": len(self._denied),
                "jobs at nine": shown.count(f"You said: {DAILY}"),
                "jobs every six hours": shown.count(f"You said: {OFTEN}"),
                "heartbeats": shown.count("Beat "),
                "subagents": verbs["spawn"],
                "turns stopped": verbs["wait"],
                "calls of an MCP server": verbs["clock"],
            }
        )

    def _owners_chat(self) -> Chat:
        return next(chat for chat in self.chats if _is_private(chat))

    async def _deny_all(self) -> None:
        """Deny what attackers ask for, by a command if only the page shows the question."""
        while True:
            await asyncio.sleep(_DENY_S)
            for chat in self.chats:
                if not chat.is_berts:
                    await self._deny(chat)
            now = time.monotonic()
            for question in self._open():
                if now - self._open_s.setdefault(question, now) > AGAIN_S:
                    self._open_s[question] = now
                    await self._owners_chat().write(f"/deny {question}")

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

    def _open(self) -> list[str]:
        """Return the ids of open questions about calls of guests."""
        text = self._open_file.read_text() if self._open_file.exists() else "[]"
        return [
            question["id"]
            for question in json.loads(text)
            if question["allowed"] is None and question["text"].startswith("Guest")
        ]


def _refusals(chat: Chat) -> int:
    return sum(_BUDGET in text for text in chat.texts())


async def _until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(SETTLE_LIMIT_S):
        while not holds():  # noqa: ASYNC110 - other processes
            await asyncio.sleep(_POLL_S)
