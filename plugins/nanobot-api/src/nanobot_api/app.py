"""The ASGI application: who calls, what they ask, and whether they may."""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse

from nanobot_api.chat import ChatForm, parse_chat
from nanobot_api.error import INTERNAL, ApiError, Failure, failed, refuse, too_many, unknown_model
from nanobot_api.keys import AGENT, PLAIN, Allowances, demand_tokens, identify
from nanobot_api.responses import ResponseForm, parse_response
from nanobot_api.run import Run, Runs
from nanobot_api.sending import (
    refusal,
    send_stream,
    unless_gone,
    wait_for_end,
    wait_for_start,
    with_request_id,
)
from nanobot_api.settings import ApiSettings
from nanobot_api.turn import Job, answer
from nanobot_core import NanobotError

if TYPE_CHECKING:
    from starlette.datastructures import Headers
    from starlette.types import Receive, Scope, Send

    from nanobot_api.answer import Answer
    from nanobot_api.ask import Ask
    from nanobot_api.keys import ApiKey, Caller
    from nanobot_api.sending import MakeForm
    from nanobot_core import AsgiApp, JsonObject, JsonValue, PluginContext

SESSION_HEADER: Final = "X-Nanobot-Session"
_SESSION: Final = re.compile(r"[A-Za-z0-9._@+-]{1,128}")
_IDEMPOTENCY_KEY: Final = re.compile(r"[\x21-\x7e]{1,255}")
_INLINE_BYTES: Final = 65_536
"""A larger body is parsed in a thread, because that would delay every chat."""
_ENDPOINTS: Final[dict[str, tuple[Callable[[bytes], Ask], MakeForm]]] = {
    "/chat/completions": (parse_chat, ChatForm),
    "/responses": (parse_response, ResponseForm),
}


def build_app(ctx: PluginContext) -> AsgiApp:
    """Return the application for the mount."""
    return Api(ctx)


class Api:
    """Answers each request; every error has the form of OpenAI's API.

    Args:
        ctx: the plugin's context.
    """

    def __init__(self, ctx: PluginContext) -> None:
        self._ctx = ctx
        self._log = ctx.logger
        self._settings = ctx.settings(ApiSettings)
        self._runs = ctx.shared(Runs)
        self._allowances = ctx.shared(Allowances)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        request_id = Run.new_id()
        send = with_request_id(send, request_id)
        try:
            failure = await self._answer(Request(scope, receive), request_id, send)
        except ClientDisconnect:
            return
        except ApiError as error:
            failure = error.failure
        except NanobotError as error:
            self._log.error("request {} failed: {}", request_id, error)
            failure = failed(f"{INTERNAL} (request {request_id})")
        if failure is not None:
            await refusal(failure)(scope, receive, send)

    async def _answer(self, request: Request, request_id: str, send: Send) -> Failure | None:
        """Answer one request, or return why it has no answer."""
        path = request.scope["path"].removeprefix(request.scope.get("root_path", ""))
        # Strangers learn nothing about paths, and nothing that they send is read.
        caller, spent = await identify(self._ctx, request.headers.get("authorization", ""))
        _count_as_proven(request.scope)
        self._allowances.take(caller.key)
        if path == "/models" or path.startswith("/models/"):
            _demand_method(request, "GET")
            wanted = path.removeprefix("/models").removeprefix("/")
            content = await self._models(caller.key, wanted)
            await JSONResponse(content)(request.scope, request.receive, send)
            return None
        if path not in _ENDPOINTS:
            message = f"there is no {path}; use /chat/completions, /responses or /models"
            raise ApiError(Failure(status=404, message=message, code="not_found"))
        _demand_method(request, "POST")
        demand_tokens(caller.key, spent)
        body = await self._read_body(request)
        read, form = _ENDPOINTS[path]
        is_small = len(body) <= _INLINE_BYTES
        ask = read(body) if is_small else await asyncio.to_thread(read, body)
        job = _job_of(ask, caller.key, request.headers)
        run = self._begin(job, caller, request_id, path.encode() + body, request.headers)
        run.join()
        try:
            return await unless_gone(request.receive, _respond(run, ask, form, send))
        finally:
            run.leave()

    async def _models(self, key: ApiKey, wanted: str) -> JsonObject:
        """Return the models that a key may use, or the one that is wanted."""
        names, own = [AGENT, PLAIN], {AGENT, PLAIN}
        if self._ctx.gateway is not None and not own.issuperset(key.models):
            names += await self._ctx.gateway.client.models()
        created = int(key.created_at.timestamp())
        found: list[JsonObject] = [
            {"id": name, "object": "model", "created": created, "owned_by": "nanobot"}
            for name in dict.fromkeys(names)
            if key.may_use(name)
        ]
        if not wanted:
            data: list[JsonValue] = [*found]
            return {"object": "list", "data": data}
        for model in found:
            if model["id"] == wanted:
                return model
        raise unknown_model(wanted)

    async def _read_body(self, request: Request) -> bytes:
        limit, body = self._settings.max_body_bytes, bytearray()
        async for piece in request.stream():
            body += piece
            if len(body) > limit:
                message = f"the body is larger than {limit:,} bytes"
                raise ApiError(Failure(status=413, message=message, code="request_too_large"))
        return bytes(body)

    def _begin(
        self, job: Job, caller: Caller, request_id: str, asked: bytes, headers: Headers
    ) -> Run:
        """Start to work on a request, or find the work on the same one.

        Raises:
            ApiError: too many requests are under way, or the idempotency key cannot be used.
        """
        digest = hashlib.sha256(f"{job.session}\n".encode() + asked).hexdigest()
        created_s = int(self._ctx.clock.now().timestamp())
        run = Run(request_id, created_s, digest=digest, caller=caller.digest)

        async def work(run: Run) -> Answer:
            return await answer(self._ctx, job, run)

        idempotency_key = headers.get("idempotency-key")
        if idempotency_key is None:
            return self._runs.begin(run, work)
        if not _IDEMPOTENCY_KEY.fullmatch(idempotency_key):
            raise refuse("Idempotency-Key: 1 to 255 visible ASCII characters are needed")
        return self._runs.begin_once(run, (caller.key.name, idempotency_key), work)


async def _respond(run: Run, ask: Ask, make_form: MakeForm, send: Send) -> Failure | None:
    """Send the answer, or return the error to answer with."""
    if ask.stream:
        if (failure := await wait_for_start(run)) is not None:
            return failure
        await send_stream(run, make_form(run.id, run.created_s, ask), send)
        return None
    result = await wait_for_end(run)
    if isinstance(result, Failure):
        return result
    content = make_form(run.id, run.created_s, ask).whole(result)
    response = JSONResponse(content, headers={"cache-control": "no-store"})
    await send({"type": "http.response.start", "status": 200, "headers": response.raw_headers})
    await send({"type": "http.response.body", "body": response.body})
    return None


def _job_of(ask: Ask, key: ApiKey, headers: Headers) -> Job:
    """Return the job of a request.

    Raises:
        ApiError: the key does not allow it, or the request contradicts itself.
    """
    if not key.may_use(ask.model):
        raise unknown_model(ask.model)
    if ask.model != AGENT:
        _check_plain(ask)
        return Job(ask=ask, key=key)
    if ask.tools:
        message = (
            f"tools: the model '{AGENT}' uses tools of its own; to pass yours, name a model of a "
            "provider, or set tool_choice to 'none'"
        )
        raise refuse(message, param="tools", code="unsupported_parameter")
    last = ask.messages[-1]
    if last.role != "user" or not last.content:
        message = f"messages: the last one must be of the user, with content, for '{AGENT}'"
        raise refuse(message, param="messages")
    session = _session_of(ask, key, headers)
    if session and ask.previous:
        message = "previous_response_id: a session is named too; use one of the two"
        raise refuse(message, param="previous_response_id")
    return Job(ask=ask, key=key, session=session)


def _check_plain(ask: Ask) -> None:
    if ask.previous:
        message = f"previous_response_id: only responses of '{AGENT}' are stored"
        raise refuse(message, param="previous_response_id", code="unsupported_parameter")
    if ask.tools and ask.model == PLAIN:
        message = f"tools: '{PLAIN}' has no tools; name a model of a provider"
        raise refuse(message, param="tools", code="unsupported_parameter")


def _session_of(ask: Ask, key: ApiKey, headers: Headers) -> str:
    """Return the name of the session of a request, or an empty string.

    Raises:
        ApiError: the name cannot be used, or two different ones are given.
    """
    header = headers.get(SESSION_HEADER, "")
    given = [(SESSION_HEADER, header), ("user", ask.user if key.user_names_session else "")]
    for param, name in given:
        if name and not _SESSION.fullmatch(name):
            message = (
                f"{param}: a session is named by 1 to 128 letters, digits and characters of ._@+-"
            )
            raise refuse(message, param=param, code="invalid_session")
    names = {name for _, name in given if name}
    if len(names) > 1:
        message = f"user: the header {SESSION_HEADER} names another session"
        raise refuse(message, param="user", code="invalid_session")
    return names.pop() if names else ""


def _count_as_proven(scope: Scope) -> None:
    """Report to nanobot-http that the caller has a key.

    Raises:
        ApiError: the address of the caller sends too many requests.
    """
    known = (scope.get("extensions") or {}).get("nanobot.caller")
    if known is None:
        return
    try:
        known["proven"]()
    except HTTPException as error:
        wait_s = float((error.headers or {}).get("retry-after", "1"))
        raise too_many("your address sends too many requests", wait_s) from error


def _demand_method(request: Request, method: str) -> None:
    if request.method != method:
        message = f"use {method} for this address"
        raise ApiError(Failure(status=405, message=message, code="method_not_allowed"))
