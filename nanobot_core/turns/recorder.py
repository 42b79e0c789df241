"""TurnRecorder: stores a turn while it runs, and makes it valid if it is interrupted."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from nanobot_core.contracts.client import EventSink
from nanobot_core.contracts.store import Checkpoint
from nanobot_core.errors import SessionError
from nanobot_core.events import RunEvent, StreamRestarted, TextStreamed, TurnInfo
from nanobot_core.messages import JsonObject, Message, ToolCall
from nanobot_core.sessions.history import align, storable, unknown_outcome
from nanobot_core.sessions.session import SUMMARY

if TYPE_CHECKING:
    from nanobot_core.agent.run import Compaction
    from nanobot_core.sessions.session import Session, Sessions

FOLDER = "folder"
"""Where the metadata of a session names the working folder of its newest turn with one."""
STORED_RESULT_CHARS = 4_000
INTERRUPTED = "[The turn was stopped here.]"


class TurnRecorder:
    """Stores a turn's messages as they arrive, with a checkpoint that survives a crash.

    Args:
        sessions: stores them.
        session: the session of the turn.
        turn: the turn.
        on_event: receives every event that `watch` receives.
        redact: removes secrets from what the model says.
    """

    def __init__(
        self,
        sessions: Sessions,
        session: Session,
        turn: TurnInfo,
        on_event: EventSink,
        redact: Callable[[str], str] = str,
    ) -> None:
        self._sessions = sessions
        self._session = session
        self._folder = turn.folder
        self._checkpoint = Checkpoint(turn_id=turn.id)
        self._on_event = on_event
        self._redact = redact
        self._unstored: tuple[Message, ...] = ()
        self._waits_for_room = False
        self._open: dict[str, ToolCall] = {}
        self._said: list[str] = []

    async def begin(self, message: Message, *, is_queued: bool = False) -> None:
        """Store the user's message with a checkpoint that survives a crash.

        Args:
            message: the message.
            is_queued: the message queue keeps it until the turn has ended. It is then stored with
                the next messages, because a crash before them loses nothing; on a full disk the
                turn waits for room.
        """
        self._checkpoint = replace(self._checkpoint, inbound_id=message.inbound_id)
        self._unstored = (message,)
        self._waits_for_room = is_queued
        if not is_queued:
            await self._store((), self._checkpoint)

    async def go_on(self, inbound_id: str | None, interrupted: Sequence[Message]) -> None:
        """Continue a turn that is stored in part; `interrupted` are results to add."""
        former = self._session.state.checkpoint
        iteration = former.iteration if former else 0
        self._checkpoint = replace(self._checkpoint, inbound_id=inbound_id, iteration=iteration)
        await self._sessions.append(self._session, *interrupted, checkpoint=self._checkpoint)

    async def watch(self, event: RunEvent) -> None:
        """Pass `event` on, and remember the part of the answer that the user has seen."""
        if isinstance(event, TextStreamed):
            self._said.append(event.text)
        elif isinstance(event, StreamRestarted):
            self._said.clear()
        await self._on_event(event)

    async def record(self, messages: Sequence[Message], running: Sequence[ToolCall]) -> None:
        """Store `messages`; `running` are calls that come next."""
        self._said.clear()
        self._open.update({call.id: call for call in running})
        for message in messages:
            if message.tool_call_id:
                self._open.pop(message.tool_call_id, None)
        iteration = self._checkpoint.iteration + (1 if running else 0)
        self._checkpoint = replace(self._checkpoint, iteration=iteration, running=tuple(self._open))
        await self._store(messages, self._checkpoint)

    async def end(self, answer: Message) -> None:
        """Store the final answer, and end the checkpoint."""
        await self._store((answer,), None)

    async def break_off(self, *, stopped: bool) -> None:
        """Make the history valid for the next turn; if that fails, the checkpoint remains.

        Args:
            stopped: by the user, so that the task must not be continued.
        """
        if self._session.state.checkpoint is None and not self._unstored:
            return  # not begun, or ended by a step that was stored before it was cancelled
        results = [unknown_outcome(call) for call in self._open.values()]
        if stopped:
            self._waits_for_room = False
            said = "\n\n".join(part for part in ("".join(self._said).strip(), INTERRUPTED) if part)
            results.append(Message(role="assistant", content=said))
        try:
            await self._store(results, None)
        except SessionError as error:
            from loguru import logger

            logger.bind(session=self._session.key).warning(
                "cannot store the end of the turn: {}", error
            )

    async def _store(self, messages: Sequence[Message], checkpoint: Checkpoint | None) -> None:
        """Store `messages` after those not yet stored, in one step."""
        before = self._session.stored
        stored = (storable(self._redacted(each), STORED_RESULT_CHARS) for each in messages)
        try:
            await self._sessions.append(
                self._session,
                *self._unstored,
                *stored,
                checkpoint=checkpoint,
                metadata=self._with_folder(),
                # The queue forgets the message when the turn has ended, also when it failed.
                wait_for_room=self._waits_for_room and bool(self._unstored),
            )
        finally:
            if self._session.stored is not before:  # also if it was stored and then cancelled
                self._unstored = ()

    def _with_folder(self) -> JsonObject | None:
        """Return the metadata with the turn's folder; ``None`` if there is nothing to change."""
        metadata = self._session.state.metadata
        if not self._folder or metadata.get(FOLDER) == self._folder:
            return None
        return {**metadata, FOLDER: self._folder}

    def _redacted(self, message: Message) -> Message:
        # Results of tools and messages of users are redacted before the model reads them.
        if message.role != "assistant" or not isinstance(message.content, str):
            return message
        return replace(message, content=self._redact(message.content))


async def keep_compaction(
    sessions: Sessions,
    session: Session,
    compaction: Compaction | None,
    history: Sequence[Message],
    since: Sequence[Message],
    archive: Callable[[Sequence[Message], str], Awaitable[bool]],
) -> None:
    """Store the summary of a run, so that the next turn need not make it again.

    Memory gets the messages first; without its consent they stay in the session.

    The run counts the messages of its request, which may begin with a previous summary and lacks
    messages that repair removed. Both sides contain the user's messages, so the remaining ones
    are counted from the end.

    Args:
        sessions: stores them.
        session: the session of the turn.
        compaction: how the run shortened its request; ``None`` if it did not.
        history: the messages before the turn that the run received.
        since: the messages of the turn after its first one.
        archive: passes messages with their summary to memory; False if it could not keep them.
    """
    if compaction is None:
        return
    gone = max(compaction.messages - bool(session.state.metadata.get(SUMMARY)), 0)
    remaining = 1 + sum(message.role == "user" for message in (*history[gone:], *since))
    places = [
        index
        for index, message in enumerate(session.messages)
        if message.role == "user" and align([message])
    ]
    if len(places) < remaining:
        return
    cut = places[-remaining]
    if not await archive(session.messages[:cut], compaction.summary):
        return
    try:
        until = session.stored.first_index + cut
        await sessions.mark_consolidated(session, until, summary=compaction.summary)
    except SessionError as error:
        # The reply is stored; the next turn makes its own summary.
        from loguru import logger

        logger.bind(session=session.key).warning("cannot store the summary: {}", error)
