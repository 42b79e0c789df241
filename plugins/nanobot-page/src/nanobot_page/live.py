"""The live part of a chat: waiting messages, answers being written, and open questions."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Final

from markupsafe import Markup

from nanobot_core import shorten
from nanobot_page.cards import Cards
from nanobot_page.events import Events
from nanobot_page.files import Files, attachments
from nanobot_page.keys import guest_of
from nanobot_page.markdown import to_blocks
from nanobot_page.notices import Notice, Notices, parts_of
from nanobot_page.settings import CHANNEL
from nanobot_page.transcript import LIVE, ToolLine, Transcript, shortened, shown_json

if TYPE_CHECKING:
    from nanobot_core import (
        GatewayAccess,
        IterationStarted,
        JsonObject,
        JsonValue,
        Message,
        OutboundMessage,
        PluginContext,
        TextStreamed,
        ToolBatchStarted,
        ToolCallFinished,
        TurnOutcome,
        TurnStarted,
    )

INBOUND: Final = "web-"
"""Begins the id of a message from the page; the UUID of the page follows."""
FINAL: Final = ":final"
APPROVAL: Final = "approval:"
_PAGE: Final = 200
_PER_ITERATION: Final = 10_000
_TOOLS_AT: Final = 5_000
MAX_WAITING: Final = 1_000
MAX_TITLE_CHARS: Final = 60
WATCH_S: Final = 0.5
CLOSING_TRIES: Final = 10


@dataclass(slots=True, kw_only=True)
class _Answer:
    """What one model call of a turn has written, and how much of it the pages have."""

    text: str = ""
    thoughts: str = ""
    shown: list[Markup] = field(default_factory=list)
    is_behind: bool = False


@dataclass(slots=True, kw_only=True)
class _Turn:
    """A turn under way.

    Attributes:
        start: number of stored messages at its beginning.
        calls: number of its tool calls.
        elements: by id, in the order in which they first came.
    """

    id: str
    start: int
    said: str
    place: int
    calls: int = 0
    answers: dict[int, _Answer] = field(default_factory=dict)
    lines: dict[str, ToolLine] = field(default_factory=dict)
    elements: dict[str, JsonObject] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Said:
    uuid: str
    session: str
    text: str
    element: JsonObject
    is_waiting: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """The part of a session that is not stored yet.

    Attributes:
        event: id of the last event that it contains.
        start: number of stored messages before it; ``None`` for all.
        elements: in order.
        is_busy: a turn is under way.
    """

    event: str
    start: int | None
    elements: Sequence[JsonObject]
    is_busy: bool


class Live:
    """Follows the turns of all sessions, and tells the pages; get it with ``ctx.shared(Live)``.

    An event replaces whole elements by their ids: applying it twice changes nothing. A stored
    answer replaces the elements of its turn.

    Attributes:
        cards: of the questions that are open.
    """

    def __init__(self, ctx: PluginContext) -> None:
        self._ctx = ctx
        self.cards: Cards = ctx.shared(Cards)
        self._events = ctx.shared(Events)
        self._transcript = ctx.shared(Transcript)
        self._notices = ctx.shared(Notices)
        self._files = ctx.shared(Files)
        self._turns: dict[str, _Turn] = {}
        self._said: dict[str, _Said] = {}
        self._places = itertools.count(LIVE)
        # Rendering happens in threads; the events of one session must not overtake each other.
        self._order = asyncio.Lock()

    async def expect(self, uuid: str, session: str, text: str) -> bool:
        """Show a message that is about to be stored; False if it is shown already."""
        async with self._order:
            if uuid in self._said:
                return False
            element = await asyncio.to_thread(
                self._transcript.said, uuid, next(self._places), text, "waiting"
            )
            while len(self._said) >= MAX_WAITING:
                del self._said[next(iter(self._said))]
            self._said[uuid] = _Said(uuid, session, text, element, is_waiting=True)
            self._tell(session, [element])
            return True

    def withdraw(self, uuid: str) -> None:
        """Remove a message that was not stored."""
        if said := self._said.pop(uuid, None):
            self._tell(said.session, drop=[f"u-{uuid}"])

    async def begin(self, event: TurnStarted) -> None:
        """Show that a message is being answered."""
        key = event.turn.session_key
        async with self._order:
            page = await self._gateway.client.sessions.page(key, limit=1)
            inbound = event.message.inbound_id or ""
            uuid = inbound.removeprefix(INBOUND) if inbound.startswith(INBOUND) else event.turn.id
            turn = _Turn(
                id=event.turn.id,
                start=page.total if page else 0,
                said=uuid,
                place=next(self._places),
            )
            known = self._said.get(uuid)
            place = int(str(known.element["place"])) if known else turn.place
            turn.place = next(self._places)
            text = event.message.text
            said = await asyncio.to_thread(
                self._transcript.said, uuid, place, text, "being answered"
            )
            self._said[uuid] = _Said(uuid, key, text, said, is_waiting=False)
            live = await asyncio.to_thread(self._transcript.live, turn.id, turn.place)
            turn.elements[str(live["id"])] = live
            self._turns[key] = turn
            self._tell(key, [said, live], busy=True, sessions=True)

    async def join(self, event: IterationStarted) -> None:
        """Show which waiting messages the turn has taken over: the agent reads them now."""
        key = event.turn.session_key
        waiting = [one for one in self._said.values() if one.session == key and one.is_waiting]
        if not waiting or self._turn(key, event.turn.id) is None:
            return
        async with self._order:
            page = await self._gateway.client.sessions.page(key, limit=_PAGE)
            taken = {message.inbound_id for message in page.messages} if page else set()
            for one in waiting:
                if f"{INBOUND}{one.uuid}" not in taken or one.uuid not in self._said:
                    continue
                place = int(str(one.element["place"]))
                element = await asyncio.to_thread(
                    self._transcript.said, one.uuid, place, one.text, "added to this answer"
                )
                self._said[one.uuid] = replace(one, element=element, is_waiting=False)
                self._tell(key, [element])

    async def write(self, event: TextStreamed) -> None:
        """Add text to the answer of a turn."""
        turn = self._turn(event.turn.session_key, event.turn.id)
        if turn is None:
            return
        answer = turn.answers.setdefault(event.iteration, _Answer())
        answer.text += event.text
        answer.thoughts += event.reasoning
        answer.is_behind = True
        async with self._order:
            # What came while this waited has been shown by the first who waited.
            if answer.is_behind and self._turn(event.turn.session_key, turn.id):
                answer.is_behind = False
                await self._paint(event.turn.session_key, turn, event.iteration, answer)

    async def _paint(self, key: str, turn: _Turn, iteration: int, answer: _Answer) -> None:
        parent, base = f"t-{turn.id}", iteration * _PER_ITERATION
        name = f"{parent}-{iteration}"
        blocks = await asyncio.to_thread(to_blocks, answer.text)
        put: list[JsonObject] = []
        if answer.thoughts:
            thoughts = partial(
                self._transcript.thoughts, f"{name}-th", parent, base, shortened(answer.thoughts)
            )
            put.append(await asyncio.to_thread(thoughts))
        for number, html in enumerate(blocks[: _TOOLS_AT - 1], 1):
            if number > len(answer.shown) or answer.shown[number - 1] != html:
                key_of = f"{name}-b{number}"
                put.append(self._transcript.block(key_of, parent, base + number, html))
        drop = [f"{name}-b{number}" for number in range(len(blocks) + 1, len(answer.shown) + 1)]
        answer.shown = list(blocks)
        for gone in drop:
            turn.elements.pop(gone, None)
        turn.elements |= {str(each["id"]): each for each in put}
        self._tell(key, put, drop)

    async def call(self, event: ToolBatchStarted) -> None:
        """Show tool calls that begin."""
        turn = self._turn(event.turn.session_key, event.turn.id)
        if turn is None:
            return
        for call in event.calls:
            number, turn.calls = turn.calls, turn.calls + 1
            turn.lines[call.id] = ToolLine(
                id=f"t-{turn.id}-c{number}",
                place=event.iteration * _PER_ITERATION + _TOOLS_AT + number,
                name=call.name,
                arguments=shown_json(call.arguments, call.unparsed),
            )
        async with self._order:
            lines = [turn.lines[call.id] for call in event.calls if call.id in turn.lines]
            self._show_lines(event.turn.session_key, turn, lines)
        if event.turn.channel != CHANNEL:
            watch = self._watch(event.turn.session_key, turn)
            self._ctx.spawn(watch, name=f"questions:{turn.id}")

    async def _watch(self, key: str, turn: _Turn) -> None:
        """Show questions about calls while these run.

        Questions in a chat of the page are messages to it. No hook reports those in other chats,
        which their channels may not be able to deliver.
        """
        while self._turns.get(key) is turn and any(
            line.result is None for line in turn.lines.values()
        ):
            await self.cards.update()
            await self._ctx.clock.sleep(WATCH_S)

    async def finish_call(self, event: ToolCallFinished) -> None:
        """Show the result of a tool call."""
        turn = self._turn(event.turn.session_key, event.turn.id)
        if turn is None or (line := turn.lines.get(event.call.id)) is None:
            return
        turn.lines[event.call.id] = line = replace(
            line,
            result=shortened(event.result.text),
            is_error=event.result.is_error,
            origin=event.result.origin or "",
            seconds=event.duration_s,
        )
        async with self._order:
            if self._turn(event.turn.session_key, turn.id):
                self._show_lines(event.turn.session_key, turn, [line])

    def _show_lines(self, key: str, turn: _Turn, lines: Sequence[ToolLine]) -> None:
        put = [self._transcript.tool(line, f"t-{turn.id}") for line in lines]
        turn.elements |= {str(each["id"]): each for each in put}
        self._tell(key, put)

    async def end(self, outcome: TurnOutcome) -> None:
        """Replace the elements of a turn by its stored messages."""
        key = outcome.turn.session_key
        async with self._order:
            turn = self._turn(key, outcome.turn.id)
            if turn is None:
                return
            page = await self._gateway.client.sessions.page(key, limit=_PAGE)
            messages = list(page.messages) if page else []
            first = page.first_index if page else 0
            new = messages[max(0, turn.start - first) :]
            put = await asyncio.to_thread(self._transcript.stored, max(first, turn.start), new)
            del self._turns[key]
            drop = [f"t-{turn.id}", *self._stored(turn, new)]
            self._tell(key, put, drop, busy=False, sessions=True)
        await self.cards.update()
        if self.cards.of(key):
            self._ctx.spawn(self._close_cards(), name=f"cards:{turn.id}")
        if not turn.start and new and outcome.turn.channel == CHANNEL:
            # By itself, because it waits until no turn of the session is under way.
            self._ctx.spawn(self._entitle(key, new[0].text), name=f"title:{key}")

    async def _close_cards(self) -> None:
        """Remove the cards of a stopped turn, whose questions are closed after its end."""
        for _ in range(CLOSING_TRIES):
            await self._ctx.clock.sleep(WATCH_S)
            await self.cards.update()

    async def _entitle(self, key: str, text: str) -> None:
        """Call a new session by the first message, or by its files if it has no text."""
        text, files = await asyncio.to_thread(self._files.split, text)
        words = text.split() or [file.name for file in files]
        title = shorten(" ".join(words), MAX_TITLE_CHARS)
        if title and await self._gateway.client.sessions.set_title(key, title):
            self.announce_sessions()

    def _stored(self, turn: _Turn, messages: Sequence[Message]) -> list[str]:
        """Forget the messages that are stored now, and return the ids of their elements."""
        uuids = [turn.said] + [
            message.inbound_id.removeprefix(INBOUND)
            for message in messages
            if message.inbound_id and message.inbound_id.startswith(INBOUND)
        ]
        for uuid in uuids:
            self._said.pop(uuid, None)
        return [f"u-{uuid}" for uuid in uuids]

    async def show(self, message: OutboundMessage) -> None:
        """Show what is sent to a chat of the page; what is in the history is shown from there.

        Raises:
            sqlite3.Error: it cannot be kept.
            SessionError: the history cannot be read.
            OSError: a guest cannot be given its files.
        """
        key, name = f"{CHANNEL}:{message.chat_id}", message.idempotency_key
        if message.kind in ("progress", "tool_hint"):
            return  # the page shows the work itself
        if name.startswith(APPROVAL) and await self.cards.ask(name[len(APPROVAL) :], key):
            return
        page = await self._gateway.client.sessions.page(key, limit=_PAGE)
        inbound = name.removesuffix(FINAL) if name.endswith(FINAL) else ""
        if page and inbound and _is_answered(page.messages, inbound) and not message.media:
            return
        uuid, text = inbound.removeprefix(INBOUND), message.content
        said = self._said.get(uuid)
        if said and said.text.startswith("/"):
            text = f"`{said.text.splitlines()[0].replace('`', '')}`\n\n{text}"
        notice = Notice(
            id=name or f"{key} {self._ctx.clock.now().isoformat()}",
            session=key,
            after=page.total if page else 0,
            text=text,
            media=message.media,
        )
        if message.media and (guest := guest_of(key)):
            files = await asyncio.to_thread(attachments, self._files, message.media)
            await asyncio.to_thread(self._files.share, guest, *(file.id for file in files))
        kept = await self._notices.add(*await asyncio.to_thread(parts_of, notice))
        async with self._order:
            elements = await asyncio.to_thread(lambda: [*map(self._transcript.notice, kept)])
            is_over = said is not None and not self._is_in_turn(uuid)
            if is_over:
                del self._said[uuid]
            self._tell(key, elements, [f"u-{uuid}"] if is_over else [], sessions=True)

    def picture(self, key: str, *, has_cards: bool = True) -> Picture:
        """Return the live part of a session. It awaits nothing, so that no event is lost.

        Args:
            key: of the session.
            has_cards: with the questions about its tool calls, which are the owner's.
        """
        cards = self.cards.of(key) if has_cards else ()
        turn = self._turns.get(key)
        said = [each.element for each in self._said.values() if each.session == key]
        return Picture(
            event=self._events.last,
            start=turn.start if turn else None,
            elements=[*said, *(turn.elements.values() if turn else ()), *cards],
            is_busy=turn is not None,
        )

    def announce_sessions(self) -> None:
        """Tell the pages that the list of sessions has changed."""
        self._events.add({"sessions": True})

    @property
    def _gateway(self) -> GatewayAccess:
        gateway = self._ctx.gateway
        if gateway is None:
            msg = "the page runs in a gateway only"
            raise RuntimeError(msg)
        return gateway

    def _turn(self, key: str, turn_id: str) -> _Turn | None:
        turn = self._turns.get(key)
        return turn if turn and turn.id == turn_id else None

    def _is_in_turn(self, uuid: str) -> bool:
        return any(turn.said == uuid for turn in self._turns.values())

    def _tell(
        self,
        key: str,
        put: Sequence[JsonObject] = (),
        drop: Sequence[str] = (),
        *,
        busy: bool | None = None,
        sessions: bool = False,
    ) -> None:
        data: dict[str, JsonValue] = {"s": key, "put": list(put), "drop": list(drop)}
        if busy is not None:
            data["busy"] = busy
        if sessions:
            data["sessions"] = True
        self._events.add(data)


def _is_answered(messages: Sequence[Message], inbound_id: str) -> bool:
    """Whether a message and its answer are in the history."""
    is_after = False
    for message in messages:
        is_after = is_after or message.inbound_id == inbound_id
        if is_after and message.role == "assistant" and not message.tool_calls:
            return True
    return False
