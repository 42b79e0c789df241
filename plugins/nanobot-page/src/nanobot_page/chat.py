"""The routes of the chat."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Final, Literal, TypeVar
from urllib.parse import quote

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError
from starlette.exceptions import HTTPException
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route

from nanobot_core import BusError, BusFull, InboundMessage
from nanobot_page.access import (
    TOKEN_HEADER,
    check_token,
    read_body,
    require_login,
    require_owner,
    require_readable,
)
from nanobot_page.channel import Door
from nanobot_page.events import Events
from nanobot_page.files import Files
from nanobot_page.history import History
from nanobot_page.keys import make_key
from nanobot_page.live import INBOUND, Live
from nanobot_page.pages import Pages, render
from nanobot_page.settings import CHANNEL, OWNER, sender_id
from nanobot_page.stream import Streams, shown_to

if TYPE_CHECKING:
    from starlette.requests import Request

    from nanobot_core import GatewayAccess, PluginContext
    from nanobot_page.history import View

MAX_JSON_BYTES: Final = 512 * 1024
_Uuid = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$")]
_Key = Annotated[str, StringConstraints(min_length=1, max_length=512)]
_BodyT = TypeVar("_BodyT", bound=BaseModel)


class _Body(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)


class _Message(_Body):
    id: _Uuid
    session: _Key
    text: Annotated[str, StringConstraints(max_length=200_000)] = ""
    files: Annotated[tuple[str, ...], Field(max_length=20)] = ()


class _Session(_Body):
    session: _Key


class _Answer(_Body):
    question: str
    digest: str
    allowed: bool


class _Change(_Body):
    session: _Key
    do: Literal["rename", "delete", "branch", "retry"]
    title: Annotated[str, StringConstraints(max_length=500)] = ""
    index: Annotated[int, Field(ge=0, le=10**9)] = 0


class Chat:
    """Answers the requests of the chat."""

    def __init__(self, ctx: PluginContext) -> None:
        self._ctx = ctx
        self._log = ctx.logger
        self._door = ctx.shared(Door)
        self._live = ctx.shared(Live)
        self._events = ctx.shared(Events)
        self._files = ctx.shared(Files)
        self._pages = ctx.shared(Pages)
        self._history = History(ctx)
        self._streams = Streams(ctx)

    def routes(self) -> list[Route]:
        """Return its routes."""
        return [
            Route("/", self.show, methods=["GET"]),
            Route("/chat", self.show, methods=["GET"]),
            Route("/web/events", self._streams.follow, methods=["GET"]),
            Route("/web/since", self.since, methods=["GET"]),
            Route("/web/snapshot", self.snapshot, methods=["GET"]),
            Route("/web/history", self.older, methods=["GET"]),
            Route("/web/sessions", self.sessions, methods=["GET"]),
            Route("/web/sessions", self.change_session, methods=["POST"]),
            Route("/web/export", self.export, methods=["GET"]),
            Route("/web/messages", self.send, methods=["POST"]),
            Route("/web/stop", self.stop, methods=["POST"]),
            Route("/web/approvals", self.answer, methods=["POST"]),
            Route("/web/files", self._files.download, methods=["GET"]),
            Route("/web/files", self._files.upload, methods=["POST"]),
        ]

    async def show(self, request: Request) -> Response:
        """Show a chat, or a new one. It can be read before any script runs."""
        login, key = require_login(request), request.query_params.get("s", "")[:512]
        key = require_readable(request, key) if key else ""
        view = await self._history.view(key or make_key(login.guest), login)
        names = () if login.guest else await self._history.client.models()
        return render(
            request,
            "chat.html",
            view=view,
            is_new=not key,
            found=await self._history.found("", login),
            commands=self._gateway.commands(),
            models=names,
            is_offline=not login.guest and await self._is_offline(),
        )

    async def snapshot(self, request: Request) -> Response:
        """Return what `show` shows of a chat, for a page that has missed events."""
        login = require_login(request)
        return JSONResponse((await self._history.view(_key(request), login)).as_json())

    async def older(self, request: Request) -> Response:
        """Return the messages before a number."""
        before = request.query_params.get("before", "")
        if not before.isdecimal() or len(before) > 9:
            raise HTTPException(400, "expected the number of a message in 'before'")
        view: View = await self._history.older(_key(request), int(before))
        return JSONResponse(view.as_json())

    async def since(self, request: Request) -> Response:
        """Return the events after an id at once, for a page that another page gives its events."""
        events = self._events.after(request.query_params.get("after", ""))
        if events is None:
            return JSONResponse({"reset": True, "id": self._events.last})
        return JSONResponse(
            {
                "id": self._events.last,
                "events": [
                    {"id": self._events.id_of(event.number), "data": json.loads(event.data)}
                    for event in shown_to(require_login(request), events)
                ],
            }
        )

    async def sessions(self, request: Request) -> Response:
        """Return the list of sessions, or those that contain ``q``."""
        text = request.query_params.get("q", "").strip()[:200]
        html = self._pages.html(
            "sessions.html",
            found=await self._history.found(text, require_login(request)),
            current=request.query_params.get("s", ""),
            searched=text,
        )
        return HTMLResponse(html)

    async def change_session(self, request: Request) -> Response:
        """Rename, delete or branch a session, or repeat from one of its messages."""
        change = await _read(request, _Change)
        login = require_login(request)
        require_readable(request, change.session)
        if change.do == "branch":
            key = await self._history.branch(change.session, change.index + 1, login)
            return JSONResponse({"s": key})
        if change.do == "retry":
            text, files = await self._history.said(change.session, change.index)
            key = await self._history.branch(change.session, change.index, login)
            return JSONResponse({"s": key, "text": text, "files": files})
        is_done = (
            await self._history.rename(change.session, change.title)
            if change.do == "rename"
            else await self._history.delete(change.session)
        )
        if not is_done:
            raise HTTPException(404, "this chat does not exist")
        return JSONResponse({"ok": True})

    async def export(self, request: Request) -> Response:
        """Return a session as a Markdown file."""
        key = _key(request)
        text = await self._history.export(key)
        if not text:
            raise HTTPException(404, "this chat does not exist")
        name = quote(f"{key.replace(':', '-')}.md", safe="")
        return Response(
            text,
            media_type="text/markdown; charset=utf-8",
            headers={
                "content-disposition": f"attachment; filename*=utf-8''{name}",
                "content-security-policy": "default-src 'none'; sandbox",
            },
        )

    async def send(self, request: Request) -> Response:
        """Store a message; 202 says that it is on disk. A repeated one is stored once."""
        message = await _read(request, _Message)
        login = require_login(request)
        if not login.may_write(message.session):
            raise HTTPException(404, "the page cannot write in this chat; branch it")
        paths = [await self._files.find(each, login) for each in message.files]
        if None in paths:
            raise HTTPException(404, "a file does not exist any more; attach it again")
        if not message.text.strip() and not paths:
            raise HTTPException(400, "the message is empty")
        inbox = self._door.inbox
        if inbox is None:
            raise HTTPException(503, "messages are not accepted at the moment")
        media = tuple(str(path) for path in paths)
        shown = "\n\n".join(
            [*([message.text] if message.text else []), *(f"Attached file: {p}" for p in media)]
        )
        is_repeated = not await self._live.expect(message.id, message.session, shown)
        is_stored = False
        try:
            is_stored = await inbox.publish(
                InboundMessage(
                    channel=CHANNEL,
                    sender_id=sender_id(login.guest),
                    chat_id=message.session.partition(":")[2],
                    content=message.text,
                    id=f"{INBOUND}{message.id}",
                    media=media,
                    dedupe_key=message.id,
                )
            )
        except BusFull as error:
            raise HTTPException(429, str(error), {"retry-after": "30"}) from error
        except BusError as error:
            self._log.warning("message {} is not stored: {}", message.id, error)
            raise HTTPException(503, "the message is not stored", {"retry-after": "5"}) from error
        finally:
            if not is_stored and not is_repeated:
                self._live.withdraw(message.id)
        return JSONResponse({"id": message.id, "stored": is_stored}, 202)

    async def stop(self, request: Request) -> Response:
        """Stop the turn of a session and the work for it."""
        wanted = await _read(request, _Session)
        require_readable(request, wanted.session)
        is_stopped = await self._gateway.operations.stop_turn(wanted.session)
        return JSONResponse({"stopped": is_stopped}, 202)

    async def answer(self, request: Request) -> Response:
        """Answer the question about a tool call whose arguments the page has shown."""
        require_owner(request)
        answer = await _read(request, _Answer)
        operations = self._gateway.operations
        question = next(
            (each for each in operations.questions() if each.id == answer.question), None
        )
        if question is None:
            raise HTTPException(404, "this question is answered or has expired")
        if question.digest != answer.digest:
            raise HTTPException(409, "the arguments are not those that the page has shown")
        is_counted = await operations.answer_question(
            answer.question, allowed=answer.allowed, by=f"{CHANNEL}:{OWNER}"
        )
        if not is_counted:
            raise HTTPException(404, "this question is answered or has expired")
        return JSONResponse({"allowed": answer.allowed}, 202)

    async def _is_offline(self) -> bool:
        """Whether no model is configured, so that the offline provider answers."""
        configuration = await self._gateway.operations.configuration()
        agents = next((form for form in configuration.forms if form.path == "agents"), None)
        defaults = agents.values.get("defaults") if agents else None
        model = defaults.get("model") if isinstance(defaults, dict) else None
        return not model or str(model).startswith("offline")

    @property
    def _gateway(self) -> GatewayAccess:
        if self._ctx.gateway is None:
            msg = "the page runs in a gateway only"
            raise RuntimeError(msg)
        return self._ctx.gateway


def _key(request: Request) -> str:
    key = request.query_params.get("s", "")
    if not key or len(key) > 512:
        raise HTTPException(400, "expected the key of a session in 's'")
    return require_readable(request, key)


async def _read(request: Request, model: type[_BodyT]) -> _BodyT:
    """Return the JSON of a request that comes from a page of this server.

    Raises:
        HTTPException: it does not, or does not fit `model`.
    """
    check_token(request, request.headers.get(TOKEN_HEADER, ""))
    if request.headers.get("content-type", "").partition(";")[0] != "application/json":
        raise HTTPException(415, "expected JSON")
    try:
        return model.model_validate_json(await read_body(request, MAX_JSON_BYTES))
    except ValidationError as error:
        found = error.errors(include_url=False, include_context=False, include_input=False)
        places = [f"{'.'.join(map(str, one['loc'])) or 'body'}: {one['msg']}" for one in found[:5]]
        raise HTTPException(400, "; ".join(places)) from None
