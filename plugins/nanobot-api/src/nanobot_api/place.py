"""The sessions of programs: named ones, those of stored responses, and temporary ones."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from nanobot_api.database import Database
from nanobot_api.error import ApiError, refuse, unavailable
from nanobot_api.records import Records, StoredResponse
from nanobot_api.settings import ApiSettings
from nanobot_core import Message, NanobotError, SessionError, TextBlock

if TYPE_CHECKING:
    from nanobot_api.turn import Job
    from nanobot_core import PluginContext, SessionAccess

_DAY_S = 86_400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a turn is taken.

    Attributes:
        session: key of the session.
        name: its last part.
        is_temporary: the session is deleted after the turn.
    """

    session: str
    name: str
    is_temporary: bool = False


class Places:
    """The sessions of one key.

    Args:
        ctx: knows the sessions.
        owner: name of the key; no other key reaches its sessions.
    """

    def __init__(self, ctx: PluginContext, owner: str) -> None:
        self._ctx = ctx
        self._owner = owner
        self._records = ctx.shared(Records)
        self._database = ctx.shared(Database)

    @asynccontextmanager
    async def open(self, job: Job, run_id: str, earlier: Sequence[Message]) -> AsyncIterator[Place]:
        """Find or create the session of a request; a temporary one is deleted after the block.

        A session that will be kept is temporary until `keep`, so that what fails leaves nothing.

        Args:
            job: the request.
            run_id: names new sessions.
            earlier: the messages before the one to answer; ignored in an existing session.

        Raises:
            ApiError: the response to continue does not exist.
            SessionError: the session cannot be created.
            StoreUnusable: the plugin's file cannot be used.
        """
        if job.session:
            yield self._place(f"session-{job.session}")
            return
        previous = await self._previous(job)
        if previous and job.ask.store and await self._goes_on(previous):
            yield Place(session=previous.session, name=previous.session.rpartition(":")[2])
            return
        kind = "response" if job.ask.store else "once"
        place = replace(self._place(f"{kind}-{run_id}"), is_temporary=not job.ask.store)
        await self._database.finish(lambda: self._records.add_temporary(place.session))
        try:
            if previous:
                sessions = sessions_of(self._ctx)
                if not await sessions.branch(previous.session, previous.until, place.session):
                    raise _unknown_response()
            elif earlier:
                history = [_storable(message) for message in earlier]
                await sessions_of(self._ctx).create(place.session, history)
            yield place
        finally:
            # Only a stored response is kept.
            if place.is_temporary or await self._is_temporary(place.session):
                await delete_session(self._ctx, place.session)

    async def keep(self, job: Job, run_id: str, place: Place) -> None:
        """Store a response, if that was asked for, so that a later request can continue it."""
        if job.session or not job.ask.store:
            return
        page = await sessions_of(self._ctx).page(place.session, limit=1)
        response = StoredResponse(
            id=run_id,
            name=self._owner,
            session=place.session,
            until=page.total if page else 0,
        )
        at_s = self._ctx.clock.now().timestamp()
        await self._database.finish(lambda: self._records.keep(response, at_s=at_s))

    def _place(self, name: str) -> Place:
        return Place(session=f"{self._ctx.id}:{self._owner}:{name}", name=name)

    async def _previous(self, job: Job) -> StoredResponse | None:
        wanted = job.ask.previous
        if not wanted:
            return None
        found = await self._database.finish(lambda: self._records.response(self._owner, wanted))
        if found is None:
            raise _unknown_response()
        return found

    async def _goes_on(self, previous: StoredResponse) -> bool:
        return await self._database.finish(lambda: self._records.go_on(previous.id))

    async def _is_temporary(self, session: str) -> bool:
        return await self._database.finish(lambda: self._records.is_temporary(session))


def sessions_of(ctx: PluginContext) -> SessionAccess:
    """Return the sessions of the gateway.

    Raises:
        ApiError: the plugin runs outside a gateway.
    """
    if ctx.gateway is None:
        raise unavailable("the API works in a gateway only")
    return ctx.gateway.client.sessions


async def delete_session(ctx: PluginContext, session: str) -> None:
    """Delete a temporary session; what cannot be deleted now is deleted later."""
    records, database, bound = ctx.shared(Records), ctx.shared(Database), ctx.logger
    try:
        await sessions_of(ctx).delete(session)
        await database.finish(lambda: records.forget_temporary(session))
    except SessionError as error:
        bound.warning("a temporary session is deleted later: {}", error)


async def clean_up(ctx: PluginContext, works_on: Callable[[str], bool]) -> None:
    """Delete the sessions of old responses, and those that a crash has left.

    Args:
        ctx: of the plugin.
        works_on: whether the request with an id is under way, which deletes its session itself.
    """
    records, database, bound = ctx.shared(Records), ctx.shared(Database), ctx.logger
    before_s = ctx.clock.now().timestamp() - ctx.settings(ApiSettings).keep_responses_days * _DAY_S
    try:
        await database.finish(lambda: records.expire(before_s))
        for session in await database.finish(records.temporary):
            if not works_on(session.rpartition("-")[2]):
                await delete_session(ctx, session)
    except NanobotError as error:
        bound.warning("old sessions are deleted later: {}", error)


def _storable(message: Message) -> Message:
    # Earlier pictures are not shown to the model again, as in the sessions of every channel.
    if isinstance(message.content, str):
        return message
    texts = [
        block.text if isinstance(block, TextBlock) else "[a picture that is no longer shown]"
        for block in message.content
    ]
    return replace(message, content="\n".join(texts))


def _unknown_response() -> ApiError:
    message = "previous_response_id: this key has no stored response of that id"
    return refuse(message, param="previous_response_id", code="previous_response_not_found")
