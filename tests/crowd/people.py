"""What people of a crowd do in their chats."""

from __future__ import annotations

import asyncio
import base64
import random
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Final, TypeAlias

from nanobot_core.testing import ChatFile, StandIn
from nanobot_core.testing.stand_in import Abilities, Shown, answers
from tests.crowd.chat import Chat, content_of, numbers_in, stops_in
from tests.crowd.model import CrowdModel

_QUESTION: Final = re.compile(r"Run exec\?.*echo made (\d+)", re.DOTALL)
_APPROVE: Final = re.compile(r"/approve ([0-9a-f]{6,})")
AGAIN_S: Final = 5.0
"""Seconds after which a person does again what had no effect."""
_BUSY_S: Final = 0.5
_AWAY_S: Final = 1.0
_POLL_S: Final = 0.5
_VOICE: Final = b"OggS" + bytes(60)
_PICTURE: Final = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR4nGP4z8AAAAMBAQDJ/pLvAAAAAElFTkSuQmCC"
)

Deed: TypeAlias = Callable[[Chat, int], Awaitable[None]]
Deeds: TypeAlias = Sequence[tuple[Deed, Callable[[Abilities, Chat], bool]]]
"""Things that people do, and whether they can do them in a chat."""


async def _text(chat: Chat, number: int) -> None:
    await chat.say(number)


async def _code(chat: Chat, number: int) -> None:
    await chat.say(number, "code")


async def _table(chat: Chat, number: int) -> None:
    await chat.say(number, "table")


async def _story(chat: Chat, number: int) -> None:
    await chat.say(number, "story")


async def _picture(chat: Chat, number: int) -> None:
    await chat.say(number, files=[ChatFile("look.png", _PICTURE, "image")])


async def _file(chat: Chat, number: int) -> None:
    await chat.say(number, files=[ChatFile(f"{number}.txt", content_of(number))])


async def _voice(chat: Chat, _number: int) -> None:
    chat.voices.append(await chat.write(files=[ChatFile("voice.ogg", _VOICE, "voice")]))


async def _file_out(chat: Chat, number: int) -> None:
    await asyncio.to_thread((chat.workspace / f"{number}.txt").write_bytes, content_of(number))
    await chat.say(number, "send")


async def _quote(chat: Chat, number: int) -> None:
    quoted = answers(chat.platform, chat.id)[-1:]
    await chat.say(number, **({"quote": quoted[0].id} if quoted else {}))


async def _command(chat: Chat, _number: int) -> None:
    chat.commands.append(await chat.write("/status"))


async def _repeated(chat: Chat, number: int) -> None:
    chat.platform.duplicate_next()
    await chat.say(number)


async def _edit(chat: Chat, number: int) -> None:
    await chat.say(number)
    chat.edits.append(number)


async def _chatter(chat: Chat, number: int) -> None:
    chat.unheard.add(number)
    await chat.platform.say(f"number {number}", sender=chat.platform.bert, chat=chat.id)


async def _decision(chat: Chat, number: int) -> None:
    await chat.say(number, "make")


async def _stop(chat: Chat, number: int) -> None:
    if chat.late - set(chat.answered()):  # a stop would also end the work that they wait for
        await chat.say(number)
        return
    chat.stopping, chat.stops, chat.stops_before = number, [], stops_in(chat.texts())
    await chat.say(number, "wait")


DEEDS: Final[Deeds] = (
    (_text, lambda _able, _chat: True),
    (_code, lambda _able, _chat: True),
    (_table, lambda _able, _chat: True),
    (_story, lambda _able, _chat: True),
    (_picture, lambda able, _chat: able.pictures),
    (_file, lambda able, _chat: able.pictures),
    (_voice, lambda able, chat: able.voice and not chat.is_group),
    (_file_out, lambda able, chat: able.files_out and not chat.is_berts),
    (_quote, lambda able, _chat: able.quotes),
    (_command, lambda _able, _chat: True),
    (_repeated, lambda _able, _chat: True),
    (_edit, lambda able, chat: able.edits and not chat.is_group),
    (_chatter, lambda _able, chat: chat.is_group),
    (_decision, lambda _able, chat: not chat.is_berts),
    (_stop, lambda _able, chat: chat.has_one_session),
)


@asynccontextmanager
async def living(
    chats: Sequence[Chat],
    numbers: Iterator[int],
    *,
    pause_s: float,
    deeds: Deeds = DEEDS,
    seed: str = "",
) -> AsyncIterator[None]:
    """Let people do things in all chats while the block runs; what they have begun, they end.

    Args:
        pause_s: most seconds between two things that are done in a chat.
        deeds: what they do.
        seed: another one gives another order.
    """
    over = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        for chat in chats:
            group.create_task(_act(chat, numbers, pause_s, deeds, seed, over))
        yield
        over.set()


@asynccontextmanager
async def troubled(platforms: Sequence[StandIn], *, pause_s: float) -> AsyncIterator[None]:
    """Let platforms be busy or away for a moment now and then while the block runs.

    Args:
        pause_s: most seconds between two faults of a platform.
    """
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(_disturb(platform, pause_s)) for platform in platforms]
        yield
        for task in tasks:
            task.cancel()


async def _disturb(platform: StandIn, pause_s: float) -> None:
    rng = random.Random(platform.name)
    while True:
        await asyncio.sleep(rng.uniform(pause_s / 2, pause_s))
        if platform.abilities.asks_to_wait and rng.random() < 0.5:
            platform.busy(_BUSY_S, times=3)
            continue
        await platform.hang_up()
        try:
            await asyncio.sleep(_AWAY_S)
        finally:
            await platform.come_back()


@asynccontextmanager
async def reacting(
    chats: Sequence[Chat], model: CrowdModel, numbers: Iterator[int]
) -> AsyncIterator[None]:
    """Let people answer questions, edit what was answered, and stop turns while the block runs."""
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(_react(chat, model, numbers)) for chat in chats]
        yield
        for task in tasks:
            task.cancel()


async def _act(
    chat: Chat,
    numbers: Iterator[int],
    pause_s: float,
    deeds: Deeds,
    seed: str,
    over: asyncio.Event,
) -> None:
    rng = random.Random(f"{seed}{chat.platform.name} {chat.id}")
    possible = [deed for deed, is_possible in deeds if is_possible(chat.platform.abilities, chat)]
    while True:
        for deed in rng.sample(possible, len(possible)):
            while chat.stopping is not None and not over.is_set():  # noqa: ASYNC110 - see `_react`
                await asyncio.sleep(_POLL_S)
            if over.is_set():
                return
            async with chat.in_order:
                await deed(chat, next(numbers))
            with suppress(TimeoutError):
                async with asyncio.timeout(rng.uniform(pause_s / 2, pause_s)):
                    await over.wait()


async def _react(chat: Chat, model: CrowdModel, numbers: Iterator[int]) -> None:
    asked_s: dict[int, float] = {}
    while True:
        await asyncio.sleep(_POLL_S)
        # Stand-ins render what is shown each time.
        shown, now = answers(chat.platform, chat.id), time.monotonic()
        texts = [message.text for message in shown]
        found = set(numbers_in(texts))
        for number, question in _questions(shown).items():
            if number not in found and now - asked_s.get(number, 0.0) > AGAIN_S:
                asked_s[number] = now
                await _allow(chat, question)
        for number in [number for number in chat.edits if number in found]:
            async with chat.in_order:
                new = next(numbers)
                chat.said[new] = chat.said[number]
                chat.late.add(new)
                await chat.platform.edit(chat.said[number], f"number {new}")
            chat.edits.remove(number)
        await _stop_turns(chat, model, asked_s, texts)


async def _stop_turns(
    chat: Chat, model: CrowdModel, asked_s: dict[int, float], texts: Sequence[str]
) -> None:
    """Stop what runs, also a turn that was stopped too early and began again after a kill."""
    for number in [each for each, verb in chat.verbs.items() if verb == "wait"]:
        request, now = model.unanswered.get(number), time.monotonic()
        if request is None:
            continue
        if number == chat.stopping and chat.is_stopped(texts):
            # If it was stopped before it began again after a kill, the model is asked once more.
            chat.stopping = None
            del model.unanswered[number]
        elif request.disconnected.is_set():
            continue
        elif now - asked_s.get(number, 0.0) > AGAIN_S:
            asked_s[number] = now
            chat.stops.append(await chat.write("/stop"))


def _questions(shown: Sequence[Shown]) -> dict[int, Shown]:
    """Return the last question for each number."""
    return {
        int(found[1]): message for message in shown if (found := _QUESTION.search(message.text))
    }


async def _allow(chat: Chat, question: Shown) -> None:
    """Let the owner answer, in a group after a guest has tried to."""
    people = [chat.platform.bert, chat.platform.anna] if chat.is_group else [chat.platform.anna]
    for person in people:
        if "Allow" in question.buttons:
            await chat.platform.press(question, "Allow", sender=person)
        elif found := _APPROVE.search(question.text):
            await chat.platform.say(
                f"/approve {found[1]}",
                sender=person,
                chat=chat.id if chat.is_group else "",
                mention=chat.is_group,
            )
