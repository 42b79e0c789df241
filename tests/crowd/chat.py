"""A chat of a crowd: what people did in it, and what they must see."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from nanobot_core.testing import Person, StandIn
from nanobot_core.testing.stand_in import answers
from tests.crowd.model import ANSWER, STORY_LINE, VOICE_HEARD

STATUS: Final = "Session:"
STOPPED: Final = "Stopped."
NOT_RUNNING: Final = "Nothing is running"  # killed between the stop and its answer


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
        stops: ids of the ``/stop`` that stop it.
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
    stops: list[str] = field(default_factory=list)
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
        return numbers_in(self.texts())

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
        found = set(numbers_in(texts))
        if lost := sorted(set(self.expected()) - found):
            yield f"not answered: {[(number, self.verbs.get(number, '')) for number in lost]}"
        for what, keys in ((VOICE_HEARD, self.voices), (STATUS, self.commands)):
            seen = sum(what in text for text in texts)
            if seen < self._arrived(keys):
                yield f"{seen} of {self._arrived(keys)} times {what!r}"
        if self.stopping is not None:
            yield f"not stopped: {self.stopping}"

    def is_stopped(self, texts: Sequence[str]) -> bool:
        """Return whether each ``/stop`` is answered: a late one would stop the next turn.

        Args:
            texts: what the chat shows.
        """
        seen = stops_in(texts) - self.stops_before
        return seen >= max(1, self._arrived(self.stops))

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
            for line, story in STORY_LINE.findall(text):
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
                count = sent[content_of(number)]
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


def numbers_in(texts: Sequence[str]) -> list[int]:
    return [int(found) for text in texts for found in ANSWER.findall(text)]


def stops_in(texts: Sequence[str]) -> int:
    return sum(STOPPED in text or NOT_RUNNING in text for text in texts)


def content_of(number: int) -> bytes:
    return f"milk {number}\n".encode()
