"""ChatApprovals: asks about tool calls in the chat; questions survive restarts."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, field, replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from loguru import logger
from pydantic import AwareDatetime, StrictBool, TypeAdapter

from nanobot_core.agent.approval import NO_ANSWER
from nanobot_core.contracts.operation import OpenQuestion
from nanobot_core.contracts.plugin import Ticket
from nanobot_core.disk import replace_file
from nanobot_core.errors import BusError
from nanobot_core.hooks import specs as on
from nanobot_core.messages import Button, OutboundMessage
from nanobot_core.record import dataclass
from nanobot_core.tasks import finish_in_thread

if TYPE_CHECKING:
    from nanobot_core.app.owner import OwnerNotices
    from nanobot_core.channels.outbox import Outbox
    from nanobot_core.clock import Clock
    from nanobot_core.events import ApprovalRequested
    from nanobot_core.messages import ToolCall
    from nanobot_core.turns.running import RunningTurns

LONGEST_MARGIN_S = 1.0
"""Seconds by which a question expires before the time limit of its call, so that it is closed
properly; at most a tenth of the limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """An open question about one call.

    Attributes:
        id: identifies the question in the answer.
        call_id: id of the call, unique only within one response of a model.
        content: hash of tool and arguments, so that an answer never applies to another call with
            the same id.
        expires_at: afterwards the call is denied.
        allowed: the answer, or ``None`` while the question is open.
        by: who gave it.
        tool: name of the tool.
        arguments: of the call.
        text: the question in one line.
    """

    id: str
    session_key: str
    call_id: str
    content: str
    expires_at: AwareDatetime
    allowed: StrictBool | None = None
    by: str = ""
    tool: str = ""
    arguments: dict[str, Any] = field(default_factory=dict)
    text: str = ""


class ChatApprovals:
    """A plugin of the gateway that asks the owner in the chat of the turn.

    Args:
        file: stores open questions.
        outbox: sends the questions.
        clock: source of time.
        timeout_s: returns the seconds until a question without an answer counts as denied; a
            reload may change them.
        owner: only the owner may answer; questions about calls of guests go to the owner's chat.
        turns: the running turns; others may run while one waits for its answer.
    """

    def __init__(
        self,
        file: Path,
        outbox: Outbox,
        clock: Clock,
        *,
        timeout_s: Callable[[], float],
        owner: OwnerNotices,
        turns: RunningTurns,
    ) -> None:
        self._file = file
        self._outbox = outbox
        self._clock = clock
        self._timeout_s = timeout_s
        self._owner = owner
        self._turns = turns
        self._open: dict[str, Question] = _read(file)
        self._answered: dict[str, asyncio.Event] = {}
        self._writing = asyncio.Lock()

    def awaits(self, session_key: str, call_id: str) -> bool:
        """Whether a call waits for an answer, so that it has not started."""
        return any(
            (question.session_key, question.call_id) == (session_key, call_id)
            for question in self._open.values()
        )

    def is_pending(self, session_key: str) -> bool:
        """Whether a call of a session waits for an answer."""
        return any(
            question.session_key == session_key and question.allowed is None
            for question in self._open.values()
        )

    def questions(self) -> Sequence[OpenQuestion]:
        """Return the open questions, the oldest first."""
        return [
            OpenQuestion(
                id=item.id,
                session_key=item.session_key,
                tool=item.tool,
                arguments=item.arguments,
                question=item.text,
                digest=item.content,
                expires_at=item.expires_at,
            )
            for item in self._open.values()
            if item.allowed is None and self._left_s(item) > 0
        ]

    async def close(self, session_key: str) -> None:
        """Close the questions of a session whose turn was stopped; their answers no longer count.

        Raises:
            BusError: this cannot be stored.
        """
        ids = [item.id for item in self._open.values() if item.session_key == session_key]
        if ids:
            await self._forget(*ids)

    async def resolve(self, question_id: str, *, allowed: bool, by: str) -> bool:
        """Answer a question; False if none with this id is open.

        Raises:
            BusError: the answer cannot be stored and does not count.
        """
        question = self._open.get(question_id)
        if question is None or question.allowed is not None or self._left_s(question) <= 0:
            return False
        try:
            await self._keep(replace(question, allowed=allowed, by=by))
        except BusError:
            self._open[question_id] = question
            raise
        if event := self._answered.get(question_id):
            event.set()
        return True

    @on.choose_approval
    async def choose_approval(self, event: ApprovalRequested) -> Ticket | None:
        """Ask in the chat and wait; after a restart, wait for the answer to the same question.

        Cancellation:
            The question stays open for the next process, which continues the turn; `close` ends it
            if the turn was stopped. No process continues work in another turn, `AgentAccess.work`.
        """
        if event.turn.source not in {"chat", "api"} and event.turn.assignment is None:
            return None
        if not self._owner.is_configured:
            return Ticket(False, "nobody, because no owner is configured")
        question = await self._question(event)
        for message in self._messages(event, question):
            await self._outbox.publish(message)
        is_continued = self._turns.has(event.turn.session_key)
        try:
            async with self._turns.without_slot(event.turn.session_key):
                answer = await self._answer(question)
        except asyncio.CancelledError:
            if not is_continued:
                await self._forget(question.id)
            raise
        await self._forget(question.id)
        ticket = Ticket(answer.allowed is True, answer.by or NO_ANSWER)
        logger.bind(session=event.turn.session_key, turn=event.turn.id).info(
            "question {} about {}: {} by {}",
            question.id,
            event.call.name,
            "allowed" if ticket.allowed else "refused",
            ticket.by,
        )
        return ticket

    def _messages(self, event: ApprovalRequested, question: Question) -> Sequence[OutboundMessage]:
        """Return the question to the owner, and a notice if it goes to another chat."""
        turn = event.turn
        here = (turn.channel, turn.chat_id)
        if turn.source == "api":  # its program has no chat
            return (_asked(event, question, chat),) if (chat := self._owner.chat) else ()
        there = here if turn.is_owner else self._owner.chat or here
        asked = _asked(event, question, there)
        if there == here:
            return (asked,)
        waiting = OutboundMessage(
            channel=turn.channel,
            chat_id=turn.chat_id,
            content="This needs the owner's approval; the owner has been asked.",
            kind="notice",
            idempotency_key=f"approval:{question.id}:guest",
        )
        return (asked, waiting)

    async def _question(self, event: ApprovalRequested) -> Question:
        """Return the question about a call: that of a previous process, or a new one."""
        content = _content(event.call)
        wanted = (event.turn.session_key, event.call.id, content)
        for item in self._open.values():
            if (item.session_key, item.call_id, item.content) == wanted:
                return item
        timeout_s = self._timeout_s()
        waits_s = timeout_s - min(LONGEST_MARGIN_S, timeout_s / 10)
        question = Question(
            id=event.id,
            session_key=event.turn.session_key,
            call_id=event.call.id,
            content=content,
            expires_at=self._clock.now() + timedelta(seconds=waits_s),
            tool=event.call.name,
            arguments=event.call.arguments,
            text=_text_of(event),
        )
        await self._keep(question)
        return question

    async def _answer(self, question: Question) -> Question:
        """Wait for the answer, or until the question expires."""
        answered = self._answered.setdefault(question.id, asyncio.Event())
        try:
            if self._open.get(question.id, question).allowed is None:
                async with asyncio.TaskGroup() as group:
                    expiry = group.create_task(self._clock.sleep(self._left_s(question)))
                    answer = group.create_task(answered.wait())
                    await asyncio.wait({expiry, answer}, return_when=asyncio.FIRST_COMPLETED)
                    expiry.cancel()
                    answer.cancel()
            return self._open.get(question.id, question)
        finally:
            self._answered.pop(question.id, None)

    def _left_s(self, question: Question) -> float:
        return (question.expires_at - self._clock.now()).total_seconds()

    async def _keep(self, question: Question) -> None:
        self._open[question.id] = question
        await self._write()

    async def _forget(self, *question_ids: str) -> None:
        for question_id in question_ids:
            self._open.pop(question_id, None)
        await self._write()

    async def _write(self) -> None:
        """Write the open questions, without expired ones that no turn waits for."""
        async with self._writing:
            for question in list(self._open.values()):
                if (
                    self._left_s(question) < -self._timeout_s()
                    and question.id not in self._answered
                ):
                    del self._open[question.id]
            content = [asdict(question) for question in self._open.values()]
            try:
                await finish_in_thread(
                    lambda: replace_file(self._file, json.dumps(content, default=str))
                )
            except OSError as error:
                # If an approval is lost, its call could run without one.
                msg = f"cannot store the question to the owner: {error}"
                raise BusError(msg) from error


def _content(call: ToolCall) -> str:
    arguments = json.dumps(call.arguments, sort_keys=True, default=str)
    return hashlib.sha256(f"{call.name} {arguments}".encode(errors="surrogatepass")).hexdigest()


def _visible(text: str) -> str:
    """Return `text` with invisible and bidirectional control characters escaped."""
    return "".join(
        char if char.isprintable() or char == "\n" else f"\\u{ord(char):04x}" for char in text
    )


def _text_of(event: ApprovalRequested) -> str:
    turn, lead = event.turn, ""
    if not turn.is_owner:
        lead = f"Guest {turn.sender_id} on {turn.channel}: "
    elif turn.source == "api":
        lead = f"{turn.sender_id} by {turn.channel}: "
    if turn.assignment is not None:
        lead += f"'{turn.assignment.label}' ({turn.source}): "
    return _visible(lead + event.question)


def _asked(event: ApprovalRequested, question: Question, chat: tuple[str, str]) -> OutboundMessage:
    arguments = _visible(json.dumps(event.call.arguments, indent=2, ensure_ascii=False))
    fence = "```"
    while fence in arguments:
        fence += "`"
    text = (
        f"**{_text_of(event)}**\n\n"
        f"`{event.call.name}`\n{fence}json\n{arguments}\n{fence}\n\n"
        f"The owner answers with /approve {question.id} or /deny {question.id}."
    )
    return OutboundMessage(
        channel=chat[0],
        chat_id=chat[1],
        content=text,
        kind="notice",
        idempotency_key=f"approval:{question.id}",
        buttons=(
            (
                Button("Allow", f"/approve {question.id}"),
                Button("Deny", f"/deny {question.id}"),
            ),
        ),
    )


def _read(file: Path) -> dict[str, Question]:
    """Return the open questions; those of a damaged file count as denied."""
    try:
        content = json.loads(file.read_text("utf-8"))
        found = TypeAdapter(list[Question]).validate_python(content)
    except FileNotFoundError:
        return {}
    except (ValueError, RecursionError) as error:
        aside = file.with_suffix(".damaged")
        file.replace(aside)
        logger.error("the file of open questions is damaged and kept as {}: {}", aside, error)
        return {}
    return {question.id: question for question in found}
