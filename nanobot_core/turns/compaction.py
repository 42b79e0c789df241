"""What a turn left of its history, kept so that the next one need not summarise it again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nanobot_core.errors import SessionError
from nanobot_core.sessions.history import align

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nanobot_core.agent.run import Compaction
    from nanobot_core.messages import Message
    from nanobot_core.sessions.session import Session, Sessions


async def keep_compaction(
    sessions: Sessions,
    session: Session,
    compaction: Compaction | None,
    history: Sequence[Message],
    since: Sequence[Message],
) -> None:
    """Store the summary of a run, and count what it stands for as taken up.

    The run counted in its own request, which begins with a former summary, if there was one, and
    from which repair has left things out. What both sides have in common are the user's messages,
    so those that remain are counted from the end.

    Args:
        sessions: where to store.
        session: the session of the turn.
        compaction: how the run shortened its request; ``None`` when it did not.
        history: what the run was given of the time before the turn.
        since: what the turn has come to after its message.
    """
    if compaction is None:
        return
    metadata = session.state.metadata
    gone = max(compaction.messages - bool(metadata.get("summary")), 0)
    remaining = 1 + sum(message.role == "user" for message in (*history[gone:], *since))
    places = [
        index
        for index, message in enumerate(session.messages)
        if message.role == "user" and align([message])
    ]
    try:
        await sessions.append(session, metadata={**metadata, "summary": compaction.summary})
        if len(places) >= remaining:
            await sessions.mark_consolidated(session, places[-remaining])
    except SessionError as error:
        # The reply is stored; the next turn makes a summary of its own.
        from loguru import logger

        logger.bind(session=session.key).warning("summary not kept: {}", error)
