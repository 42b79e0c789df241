"""People who do everything at once in the chats of a platform, and what they must see at the end.

Each thing that a person does has a number, and the answer to it names that number.
"""

from __future__ import annotations

import asyncio
import base64
import itertools
import json
import random
import re
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeAlias

from nanobot_core.testing import ChatFile, Person, RecordedRequest, Reply, ScriptedCall, StandIn
from nanobot_core.testing.playing import what_was_written
from nanobot_core.testing.stand_in import Abilities, Shown, answers

WORDS: Final = re.compile(r"^(?:(?P<verb>[a-z]+) )?number (?P<number>\d+)$")
ANSWER: Final = re.compile(r"(?:You said:|Code|Table|Story|Done|Here is) number (\d+)\b")
VOICE_HEARD: Final = "I hear you"
STATUS: Final = "Session:"
STOPPED: Final = "Stopped."
NOT_RUNNING: Final = "Nothing is running"  # killed between the stop and its answer
_LINE: Final = "Line {} of story {}."
_LINES: Final = re.compile(r"Line (\d+) of story (\d+)\.")
_QUESTION: Final = re.compile(r"Run exec\?.*echo made (\d+)", re.DOTALL)
_APPROVE: Final = re.compile(r"/approve ([0-9a-f]{6,})")
ToolCalls: TypeAlias = Callable[[int], Sequence[tuple[str, dict[str, Any]]]]
"""Number of a message to the calls of a model that was asked for them: tool and arguments."""
TOOLS: Final[Mapping[str, ToolCalls]] = {
    "make": lambda number: [("exec", {"command": f"echo made {number}"})],
    "send": lambda number: [
        ("message", {"content": f"Here is number {number}", "media": [f"{number}.txt"]})
    ],
}
"""Verb of a message to what it makes the model call."""
_AGAIN_S: Final = 5.0
_BUSY_S: Final = 0.5
_AWAY_S: Final = 1.0
_POLL_S: Final = 0.5
_VOICE: Final = b"OggS" + bytes(60)
_PICTURE: Final = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR4nGP4z8AAAAMBAQDJ/pLvAAAAAElFTkSuQmCC"
)


class CrowdModel:
    """Answers each message of a person that has no answer yet.

    Attributes:
        unanswered: number to the last request of a turn that it does not answer.
        story_lines: lines of a story.
        tools: verb of a message to what it makes the model call.
    """

    def __init__(self, story_lines: int, tools: Mapping[str, ToolCalls] = TOOLS) -> None:
        self.unanswered: dict[int, RecordedRequest] = {}
        self.story_lines: int = story_lines
        self.tools: Mapping[str, ToolCalls] = tools

    def __call__(self, request: RecordedRequest) -> Reply:
        """Return the reply to a request."""
        messages: list[dict[str, Any]] = request.body["messages"]
        since = since_the_last_answer(messages)
        asked = [
            (what, attached)
            for message in since
            if message["role"] == "user"
            for what, attached in [self._heard(message["content"])]
        ]
        if calls := tuple(self._calls([words for words, _ in asked], since)):
            return Reply(calls=calls)
        if asked and (found := WORDS.match(asked[-1][0])) and found["verb"] == "wait":
            self.unanswered[int(found["number"])] = request
            return Reply(text="Hm", stop_after_bytes=0, stop="stall")
        return Reply(text="\n\n".join(self._answer(*each) for each in asked) or "Nothing to say.")

    def _heard(self, content: str | list[dict[str, Any]]) -> tuple[str, str]:
        """Return what a message asks for, and in words what is attached to it."""
        return what_was_written(content)

    def _answer(self, words: str, attached: str) -> str:
        found = WORDS.match(words)
        if found is None:
            return f"{VOICE_HEARD}{attached}" if not words else f"You said: {words}{attached}"
        number = found["number"]
        match found["verb"]:
            case "code":
                return f"Code number {number}:\n\n```python\nprint({number} < 2)\n```"
            case "table":
                return f"Table number {number}:\n\n| a | b |\n|---|---|\n| {number} | *two* |"
            case "story":
                lines = (_LINE.format(line, number) for line in range(1, self.story_lines + 1))
                return f"Story number {number}:\n\n" + "\n".join(lines)
            case "wait":  # stopped before
                return "Let us go on."
            case verb if verb in self.tools:
                return f"Done number {number}"  # not sent after a file, which came with a text
            case _:
                return f"You said: number {number}{attached}"

    def _calls(
        self, asked: Sequence[str], since: Sequence[dict[str, Any]]
    ) -> Iterator[ScriptedCall]:
        """Yield the calls that are still to be made, also those whose outcome is unknown."""
        results = {
            str(message["tool_call_id"]): str(message["content"])
            for message in since
            if message["role"] == "tool"
        }
        for words in asked:
            found = WORDS.match(words)
            if found is None or found["verb"] not in self.tools:
                continue
            number = found["number"]
            own = [text for key, text in results.items() if key.startswith(f"call_{number}_")]
            if own and "was interrupted" not in own[-1]:
                continue
            calls = self.tools[found["verb"]](int(number))
            for place, (name, arguments) in enumerate(calls, len(own)):
                key = f"call_{number}_{place}"
                yield ScriptedCall(name=name, arguments=json.dumps(arguments), id=key)


def since_the_last_answer(messages: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the messages of a request that have no answer yet."""

    def is_answer(message: dict[str, Any]) -> bool:
        return message["role"] == "assistant" and not message.get("tool_calls")

    return list(itertools.takewhile(lambda each: not is_answer(each), reversed(messages)))[::-1]


@dataclass
class Chat:
    """One chat of a platform, what people did in it, and what they still have to do.

    Attributes:
        workspace: folder of the files that the agent sends.
        said: number to the platform's id of the message, in the order of writing.
        verbs: number to what it asks for, of those that ask for more than an answer.
        unheard: numbers that do not mention the agent, in a group.
        voices: ids of voice messages.
        commands: ids of commands.
        edits: numbers of messages that are edited once they are answered.
        late: numbers whose answers may come after those of later ones: of edited messages, which a
            platform may offer again later.
        stopping: number of the turn that is being stopped.
        stops_before: how many answers to ``/stop`` there were before.
        in_order: held while a number is taken and written.
    """

    platform: StandIn
    id: str
    workspace: Path
    said: dict[int, str] = field(default_factory=dict)
    verbs: dict[int, str] = field(default_factory=dict)
    unheard: set[int] = field(default_factory=set)
    voices: list[str] = field(default_factory=list)
    commands: list[str] = field(default_factory=list)
    edits: list[int] = field(default_factory=list)
    late: set[int] = field(default_factory=set)
    stopping: int | None = None
    stops_before: int = 0
    in_order: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def is_group(self) -> bool:
        return self.id == self.platform.group

    @property
    def has_one_session(self) -> bool:
        return not (self.is_group and self.platform.abilities.group_threads)

    @property
    def is_berts(self) -> bool:
        return self.id == self.platform.private(self.platform.bert)

    @property
    def writer(self) -> Person:
        return self.platform.bert if self.is_berts else self.platform.anna

    async def write(self, text: str = "", **details: Any) -> str:
        return await self.platform.say(
            text,
            sender=self.writer,
            chat=self.id if self.is_group else "",
            mention=self.is_group,
            **details,
        )

    async def say(self, number: int, verb: str = "", **details: Any) -> None:
        if verb:
            self.verbs[number] = verb
        self.said[number] = await self.write(f"{verb} number {number}".strip(), **details)

    # --- what people see

    def texts(self) -> list[str]:
        return [message.text for message in answers(self.platform, self.id)]

    def answered(self) -> list[int]:
        return _numbers_in(self.texts())

    def stops(self) -> int:
        return _stops_in(self.texts())

    def _arrived(self, keys: Sequence[str]) -> int:
        """Return how many messages must be answered; if none is offered again, those taken."""
        if self.platform.abilities.resends:
            return len(keys)
        taken = set(self.platform.acknowledged)
        return sum(key in taken for key in keys)

    def expected(self) -> list[int]:
        """Return the numbers that must be answered."""
        return [
            number
            for number, key in self.said.items()
            if self.verbs.get(number) != "wait" and self._arrived([key])
        ]

    def is_settled(self) -> bool:
        return not any(self.missing())

    def missing(self) -> Iterator[str]:
        """Yield what people still wait for."""
        texts = self.texts()
        found = set(_numbers_in(texts))
        if lost := sorted(set(self.expected()) - found):
            yield f"not answered: {[(number, self.verbs.get(number, '')) for number in lost]}"
        for what, keys in ((VOICE_HEARD, self.voices), (STATUS, self.commands)):
            seen = sum(what in text for text in texts)
            if seen < self._arrived(keys):
                yield f"{seen} of {self._arrived(keys)} times {what!r}"
        if self.stopping is not None:
            yield f"not stopped: {self.stopping}"

    def doubled(self) -> list[int]:
        return [number for number, count in Counter(self.answered()).items() if count > 1]

    def findings(self, story_lines: int) -> Iterator[str]:
        """Yield what is wrong at the end."""
        yield from self.missing()
        found, once = self.answered(), self.platform.abilities.equal_keys_once
        if once and self.doubled():
            yield f"answered more than once: {self.doubled()}"
        if heard := self.unheard & set(found):
            yield f"answered without a mention: {sorted(heard)}"
        first = [number for number in dict.fromkeys(found) if number not in self.late]
        if first != sorted(first) and self.has_one_session:
            yield f"in another order: {found}"
        yield from self._story_findings(story_lines, once=once)
        yield from self._file_findings()

    def _story_findings(self, story_lines: int, *, once: bool) -> Iterator[str]:
        told: dict[int, list[int]] = {}
        # An answer that is too long for a platform comes as a file.
        files = (
            file.content.decode(errors="replace")
            for shown in answers(self.platform, self.id)
            for file in shown.files
        )
        for text in (*self.texts(), *files):
            for line, story in _LINES.findall(text):
                told.setdefault(int(story), []).append(int(line))
        whole = list(range(1, story_lines + 1))
        for number, verb in self.verbs.items():
            if verb != "story" or number not in self.expected():
                continue
            lines = told.get(number, [])
            if sorted(set(lines)) != whole or (once and lines != whole):
                yield f"story {number} has {len(lines)} of {story_lines} lines"

    def _file_findings(self) -> Iterator[str]:
        sent = Counter(
            file.content for shown in answers(self.platform, self.id) for file in shown.files
        )
        for number, verb in self.verbs.items():
            if verb == "send" and number in self.expected():
                count = sent[_content(number)]
                if not count:
                    yield f"file {number} was not sent"


def chats_of(platforms: Sequence[StandIn], workspace: Path) -> list[Chat]:
    """Return both private chats of each platform, and its group."""
    return [
        Chat(platform, place, workspace)
        for platform in platforms
        for place in (
            platform.private(platform.anna),
            platform.private(platform.bert),
            platform.group,
        )
        if place
    ]


def _numbers_in(texts: Sequence[str]) -> list[int]:
    return [int(found) for text in texts for found in ANSWER.findall(text)]


def _stops_in(texts: Sequence[str]) -> int:
    return sum(STOPPED in text or NOT_RUNNING in text for text in texts)


def _content(number: int) -> bytes:
    return f"milk {number}\n".encode()


# --- what people do

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
    await chat.say(number, files=[ChatFile(f"{number}.txt", _content(number))])


async def _voice(chat: Chat, _number: int) -> None:
    chat.voices.append(await chat.write(files=[ChatFile("voice.ogg", _VOICE, "voice")]))


async def _file_out(chat: Chat, number: int) -> None:
    await asyncio.to_thread((chat.workspace / f"{number}.txt").write_bytes, _content(number))
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
    chat.stopping, chat.stops_before = number, chat.stops()
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
        found = set(_numbers_in(texts))
        for number, question in _questions(shown).items():
            if number not in found and now - asked_s.get(number, 0.0) > _AGAIN_S:
                asked_s[number] = now
                await _allow(chat, question)
        for number in [number for number in chat.edits if number in found]:
            async with chat.in_order:
                new = next(numbers)
                chat.said[new] = chat.said[number]
                chat.late.add(new)
                await chat.platform.edit(chat.said[number], f"number {new}")
            chat.edits.remove(number)
        await _stop_turns(chat, model, asked_s, _stops_in(texts))


async def _stop_turns(chat: Chat, model: CrowdModel, asked_s: dict[int, float], stops: int) -> None:
    """Stop what runs, also a turn that was stopped too early and began again after a kill."""
    for number in [each for each, verb in chat.verbs.items() if verb == "wait"]:
        request, now = model.unanswered.get(number), time.monotonic()
        if request is None:
            continue
        if number == chat.stopping and stops > chat.stops_before:
            # If it was stopped before it began again after a kill, the model is asked once more.
            chat.stopping = None
            del model.unanswered[number]
        elif request.disconnected.is_set():
            continue
        elif now - asked_s.get(number, 0.0) > _AGAIN_S:
            asked_s[number] = now
            await chat.write("/stop")


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
