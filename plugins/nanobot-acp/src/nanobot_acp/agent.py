"""EditorAgent: answers the requests of one editor."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any, Final, TypeAlias
from uuid import uuid4

from acp import schema
from acp.connection import Connection
from acp.exceptions import RequestError
from acp.meta import AGENT_METHODS, CLIENT_METHODS, PROTOCOL_VERSION
from loguru import logger
from pydantic import BaseModel, ValidationError

from nanobot_acp.attachment import Keep
from nanobot_acp.prompt import INVALID_PARAMS, read_prompt
from nanobot_acp.session import EditorSession, is_session_id, key_of
from nanobot_acp.transport import INVALID_REQUEST, LineTransport
from nanobot_acp.updates import Update
from nanobot_core import AgentClient, NanobotError, TurnOutcome

METHOD_NOT_FOUND: Final = -32601
INTERNAL_ERROR: Final = -32603
NOT_FOUND: Final = -32002
"""A resource is missing, in the protocol's own range."""
MAX_REQUESTS: Final = 64
"""Requests of the editor that are answered at once."""
LISTED: Final = 50
"""Sessions in one page of a list."""
SCANNED: Final = 100
MAX_SCANNED: Final = 500
"""Sessions of all channels that are read for one page."""
STOP_REASONS: Final[dict[str, schema.StopReason]] = {
    "iteration_limit": "max_turn_requests",
    "token_limit": "max_tokens",
    "cancelled": "cancelled",
}

Spawn: TypeAlias = Callable[[Coroutine[Any, Any, None]], object]
Handler: TypeAlias = Callable[[Any], Awaitable[BaseModel | None]]


class EditorAgent:
    """An agent as the Agent Client Protocol, version 1, describes it.

    Args:
        client: the agent that answers.
        keep: keeps the files of prompts.
        spawn: starts tasks that end with the connection.
    """

    def __init__(self, client: AgentClient, keep: Keep, spawn: Spawn) -> None:
        self._client = client
        self._keep = keep
        self._spawn = spawn
        self._connection: Connection | None = None
        self._sessions: dict[str, EditorSession] = {}
        self._is_initialized = False
        self._requests = 0
        self._handlers: dict[str, tuple[type[BaseModel], Handler]] = {
            AGENT_METHODS[name]: (model, handler)
            for name, model, handler in (
                ("initialize", schema.InitializeRequest, self._initialize),
                ("session_new", schema.NewSessionRequest, self._new),
                ("session_load", schema.LoadSessionRequest, self._load),
                ("session_resume", schema.ResumeSessionRequest, self._resume),
                ("session_list", schema.ListSessionsRequest, self._list),
                ("session_close", schema.CloseSessionRequest, self._close),
                ("session_delete", schema.DeleteSessionRequest, self._delete),
                ("session_prompt", schema.PromptRequest, self._prompt),
                (
                    "session_set_config_option",
                    schema.SetSessionConfigOptionSelectRequest,
                    self._set_option,
                ),
                ("session_cancel", schema.CancelNotification, self._cancel),
            )
        }

    async def serve(self, transport: LineTransport) -> None:
        """Answer until the editor closes its side; turns under way are then stopped."""
        self._connection = connection = Connection(self.handle, transport, listening=False)
        try:
            await connection.main_loop()
        finally:
            await connection.close()

    async def handle(self, method: str, params: object, is_notification: bool) -> BaseModel | None:
        """Answer one request.

        Raises:
            RequestError: it cannot be answered; the editor gets the reason, but no details of an
                unexpected error.
        """
        if self._requests >= MAX_REQUESTS and not is_notification:
            raise RequestError(INVALID_REQUEST, f"more than {MAX_REQUESTS} requests at once")
        self._requests += 1
        try:
            return await self._answer(method, params)
        except ValidationError as error:
            raise RequestError(INVALID_PARAMS, _described(error)) from error
        except NanobotError as error:
            raise RequestError(INTERNAL_ERROR, str(error)) from error
        except RequestError:
            raise
        except Exception as error:
            number = uuid4().hex[:8]
            logger.opt(exception=error).error("request {} failed ({})", method, number)
            text = f"nanobot failed; standard error of nanobot acp has the details under {number}"
            raise RequestError(INTERNAL_ERROR, text) from error
        finally:
            self._requests -= 1

    async def _answer(self, method: str, params: object) -> BaseModel | None:
        if method not in self._handlers:
            raise RequestError(METHOD_NOT_FOUND, "nanobot does not support this method")
        model, handler = self._handlers[method]
        if not self._is_initialized and model is not schema.InitializeRequest:
            raise RequestError(INVALID_REQUEST, "the first request is initialize")
        return await handler(model.model_validate({} if params is None else params))

    async def _initialize(self, _: schema.InitializeRequest) -> schema.InitializeResponse:
        self._is_initialized = True
        return schema.InitializeResponse(
            # An editor that does not know this version disconnects.
            protocol_version=PROTOCOL_VERSION,
            agent_info=schema.Implementation(name="nanobot", title="nanobot", version=_version()),
            agent_capabilities=schema.AgentCapabilities(
                load_session=True,
                prompt_capabilities=schema.PromptCapabilities(
                    image=True, audio=False, embedded_context=True
                ),
                session_capabilities=schema.SessionCapabilities(
                    list=schema.SessionListCapabilities(),
                    resume=schema.SessionResumeCapabilities(),
                    close=schema.SessionCloseCapabilities(),
                    delete=schema.SessionDeleteCapabilities(),
                ),
            ),
            auth_methods=[],
        )

    async def _new(self, asked: schema.NewSessionRequest) -> schema.NewSessionResponse:
        session = await self._opened(uuid4().hex, asked.cwd, asked.mcp_servers)
        options = await session.options()
        self._announce(session)
        return schema.NewSessionResponse(session_id=session.id, config_options=options)

    async def _load(self, asked: schema.LoadSessionRequest) -> schema.LoadSessionResponse:
        session = await self._found(asked.session_id, asked.cwd, asked.mcp_servers)
        await session.replay()
        options = await session.options()
        self._announce(session)
        return schema.LoadSessionResponse(config_options=options)

    async def _resume(self, asked: schema.ResumeSessionRequest) -> schema.ResumeSessionResponse:
        session = await self._found(asked.session_id, asked.cwd, asked.mcp_servers or [])
        options = await session.options()
        self._announce(session)
        return schema.ResumeSessionResponse(config_options=options)

    async def _list(self, asked: schema.ListSessionsRequest) -> schema.ListSessionsResponse:
        """Return the sessions of editors, the latest first; a page can have few or none."""
        start = asked.cursor or "0"
        if not (start.isascii() and start.isdigit() and len(start) < 10):
            raise RequestError(INVALID_PARAMS, "unknown cursor")
        offset, end = int(start), int(start) + MAX_SCANNED
        found: list[schema.SessionInfo] = []
        while offset < end and len(found) < LISTED:
            entries = await self._client.sessions.entries(offset=offset, limit=SCANNED)
            for entry in entries:
                offset += 1
                name = entry.key.removeprefix(key_of(""))
                if not (entry.key == key_of(name) and is_session_id(name) and entry.folder):
                    continue
                if asked.cwd is not None and asked.cwd != entry.folder:
                    continue
                updated = entry.updated_at.isoformat()
                found.append(
                    schema.SessionInfo(
                        session_id=name, cwd=entry.folder, title=entry.title, updated_at=updated
                    )
                )
                if len(found) == LISTED:
                    break
            if len(entries) < SCANNED and len(found) < LISTED:
                return schema.ListSessionsResponse(sessions=found)
        return schema.ListSessionsResponse(sessions=found, next_cursor=str(offset))

    async def _close(self, asked: schema.CloseSessionRequest) -> schema.CloseSessionResponse:
        await self._session(asked.session_id).stop()
        self._sessions.pop(asked.session_id, None)
        return schema.CloseSessionResponse()

    async def _delete(self, asked: schema.DeleteSessionRequest) -> schema.DeleteSessionResponse:
        if session := self._sessions.pop(asked.session_id, None):
            await session.stop()
        if is_session_id(asked.session_id):
            await self._client.sessions.delete(key_of(asked.session_id))
        return schema.DeleteSessionResponse()  # one that does not exist is deleted, too

    async def _prompt(self, asked: schema.PromptRequest) -> schema.PromptResponse:
        session = self._session(asked.session_id)
        prompt = read_prompt(asked.prompt)
        outcome = await session.take_turn(prompt.text, lambda: self._keep(prompt.files))
        if outcome is None:
            return schema.PromptResponse(stop_reason="cancelled")
        if outcome.error is not None:
            raise RequestError(INTERNAL_ERROR, _failure(outcome))
        reason = STOP_REASONS.get(outcome.stop_reason, "end_turn")
        return schema.PromptResponse(stop_reason=reason)

    async def _cancel(self, asked: schema.CancelNotification) -> None:
        if session := self._sessions.get(asked.session_id):
            await session.stop()

    async def _set_option(
        self, asked: schema.SetSessionConfigOptionSelectRequest
    ) -> schema.SetSessionConfigOptionResponse:
        session = self._session(asked.session_id)
        await session.set_option(asked.config_id, asked.value)
        return schema.SetSessionConfigOptionResponse(config_options=await session.options())

    def _session(self, session_id: str) -> EditorSession:
        if session := self._sessions.get(session_id):
            return session
        raise RequestError(NOT_FOUND, "this session is not open; open it with session/load")

    async def _found(self, session_id: str, cwd: str, servers: list[Any]) -> EditorSession:
        """Open a session that exists."""
        if session_id not in self._sessions:
            is_stored = is_session_id(session_id) and await self._client.sessions.page(
                key_of(session_id), limit=1
            )
            if not is_stored:
                raise RequestError(NOT_FOUND, "there is no such session")
        return await self._opened(session_id, cwd, servers)

    async def _opened(self, session_id: str, cwd: str, servers: list[Any]) -> EditorSession:
        is_folder = Path(cwd).is_absolute() and "\0" not in cwd
        if not (is_folder and await asyncio.to_thread(Path(cwd).is_dir)):
            raise RequestError(INVALID_PARAMS, "cwd is the absolute path of an existing folder")
        if (known := self._sessions.get(session_id)) is not None and known.is_busy:
            raise RequestError(INVALID_REQUEST, "a prompt of this session is under way")
        if servers:
            logger.warning("MCP servers of the editor are not used; see tools.mcp_servers")

        async def report(update: Update) -> None:
            await self._notify(session_id, update)

        async def ask(request: BaseModel) -> schema.RequestPermissionResponse:
            method = CLIENT_METHODS["session_request_permission"]
            answer = await self._connected().send_request(method, _dumped(request))
            return schema.RequestPermissionResponse.model_validate(answer)

        session = EditorSession(session_id, cwd, self._client, report, ask)
        self._sessions[session_id] = session
        return session

    def _announce(self, session: EditorSession) -> None:
        """Send the commands of a session, after the response that names it."""

        async def announce() -> None:
            try:
                await session.announce()
            except (NanobotError, ConnectionError) as error:
                logger.warning("the editor does not know the commands: {}", error)

        self._spawn(announce())

    async def _notify(self, session_id: str, update: Update) -> None:
        notification = schema.SessionNotification(session_id=session_id, update=update)
        method = CLIENT_METHODS["session_update"]
        await self._connected().send_notification(method, _dumped(notification))

    def _connected(self) -> Connection:
        if self._connection is None:
            msg = "the editor is not connected"
            raise ConnectionError(msg)
        return self._connection


def _dumped(model: BaseModel) -> dict[str, Any]:
    return model.model_dump(mode="json", by_alias=True, exclude_none=True)


def _described(error: ValidationError) -> str:
    """Return what is wrong with a request, without what the editor sent."""
    found = error.errors(include_url=False, include_context=False, include_input=False)
    lines = [f"{'.'.join(map(str, each['loc'])) or 'params'}: {each['msg']}" for each in found[:5]]
    return "; ".join(lines)


def _failure(outcome: TurnOutcome) -> str:
    number = f" (error {outcome.error_id})" if outcome.error_id else ""
    return f"{outcome.error}{number}"


def _version() -> str:
    from nanobot_core import __version__

    return __version__
