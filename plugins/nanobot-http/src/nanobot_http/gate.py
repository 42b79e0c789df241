"""The checks that every request passes first."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.responses import PlainTextResponse, Response

from nanobot_http.caller import Caller, ClientRates, too_many
from nanobot_http.connection import MAX_HEAD_BYTES

if TYPE_CHECKING:
    from loguru import Logger
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from nanobot_core import Mount, PluginContext
    from nanobot_http.caller import Access
    from nanobot_http.health import RequestCounts
    from nanobot_http.settings import HttpSettings

_ENCODED_SLASH, _ENCODED_BACKSLASH = b"%2f", b"%5c"
_FOREIGN = (
    "pages of other sites may not call this server; if the page is the server's own, behind a "
    "proxy that changes Host, add its address, such as https://bot.example.org, to "
    "gateway.http.allowed_origins"
)
_UNKNOWN_HOST = (
    "invalid Host header: the server is not known by that name; add the name, without a port, to "
    "gateway.http.allowed_hosts"
)


class Gate:
    """Bounds rate and time, refuses ambiguous paths and foreign pages, counts and logs.

    Args:
        app: the application behind the gate.
        counts: learns each answer's status.
        access: knows whose requests carry the secret.
        mount_of: returns the mount that a path falls under, or ``None``.
    """

    def __init__(
        self,
        app: ASGIApp,
        ctx: PluginContext,
        settings: HttpSettings,
        counts: RequestCounts,
        access: Access,
        mount_of: Callable[[str], Mount | None],
    ) -> None:
        self._app = app
        self._access = access
        self._mount_of = mount_of
        self._clock = ctx.clock
        self._log: Logger = ctx.logger
        self._rates = ClientRates(settings.requests_per_minute, ctx.clock)
        self._origins = frozenset(origin.lower() for origin in settings.allowed_origins)
        self._limit_s = settings.request_timeout_s
        self._counts = counts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request within the time limit."""
        status, started_s = 0, self._clock.monotonic_s()

        async def watched_send(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                # An answer that has begun may last: server-sent events have no end.
                limit.reschedule(None)
            await send(message)
            # uvicorn drops what is sent to a peer that has gone, without waiting: an application
            # that produces without end would block the loop, and never learn that the peer is gone.
            await asyncio.sleep(0)

        mount = self._mount_of(scope["path"])
        limit = asyncio.timeout((mount and mount.start_limit_s) or self._limit_s)
        try:
            async with limit:
                await self._admit(scope, receive, watched_send, mount)
        except TimeoutError:
            if status == 0:
                answer = PlainTextResponse("no answer in time", 503, {"connection": "close"})
                status = answer.status_code
                await answer(scope, receive, send)
        finally:
            self._counts.add(status)
            self._log.debug(
                "{} {} {} in {:.3f} s for {}",
                scope["method"],
                scope["path"],
                status or "ended without an answer",
                self._clock.monotonic_s() - started_s,
                _client(scope),
            )

    async def _admit(self, scope: Scope, receive: Receive, send: Send, mount: Mount | None) -> None:
        """Answer a request, unless its client has sent too many for the same purpose."""
        client = _client(scope)
        if (refusal := self._refusal(scope, mount)) is not None:
            wait_s = self._rates.wait_s(client, "refused")
            await (too_many(wait_s) if wait_s > 0 else refusal)(scope, receive, send)
        elif self._access.knows_secret(scope):
            wait_s = self._rates.wait_s(client, "secret")
            await (too_many(wait_s) if wait_s > 0 else self._app)(scope, receive, send)
        else:
            is_open = mount is not None and mount.access == "open"
            caller = Caller(self._rates, client, mount.path if mount and is_open else "")

            async def answer(message: Message) -> None:
                await send(caller.answered(message))

            await (caller.refusal or self._app)(caller.extended(scope), receive, answer)

    def _refusal(self, scope: Scope, mount: Mount | None) -> Response | None:
        if _head_bytes(scope) > MAX_HEAD_BYTES:
            return PlainTextResponse("the head is too large", 431, {"connection": "close"})
        encoded_slash = mount is not None and mount.encoded_slash
        if not is_plain_path(scope["path"], scope["raw_path"], encoded_slash=encoded_slash):
            return PlainTextResponse("the path is ambiguous", 400)
        headers = Headers(scope=scope)
        if "transfer-encoding" in headers and "content-length" in headers:
            # Two lengths are how requests are smuggled past a proxy (RFC 9112, section 6.3).
            return PlainTextResponse("the length is ambiguous", 400, {"connection": "close"})
        if is_foreign_page(headers, self._origins):
            return PlainTextResponse(_FOREIGN, 403)
        return None


class KnownHosts:
    """Refuses requests for names that are not the server's, as pages of attackers make them.

    Such a page points its own name at this machine (DNS rebinding).

    Args:
        app: answers the others.
        names: as for Starlette's middleware, whose own refusal does not say what to do.
    """

    def __init__(self, app: ASGIApp, names: Sequence[str]) -> None:
        self._app = app
        self._names = names

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        answer: ASGIApp = PlainTextResponse(_UNKNOWN_HOST, 400)

        async def admit(*_: object) -> None:
            nonlocal answer
            answer = self._app

        async def drop(_: Message) -> None:
            pass

        check = TrustedHostMiddleware(admit, allowed_hosts=self._names, www_redirect=False)
        await check(scope, receive, drop)
        await answer(scope, receive, send)


def is_plain_path(path: str, raw_path: bytes, *, encoded_slash: bool = False) -> bool:
    """Whether every reader understands a path in the same way.

    Args:
        path: decoded.
        raw_path: as it was sent.
        encoded_slash: it may have a slash in this form.
    """
    segments, sent = path.split("/"), raw_path.lower()
    return (
        path.startswith("/")
        and path.isprintable()
        and "\\" not in path
        and "" not in segments[1:-1]
        and not {".", ".."} & set(segments)
        and _ENCODED_BACKSLASH not in sent
        and (encoded_slash or _ENCODED_SLASH not in sent)
    )


def is_foreign_page(headers: Headers, allowed_origins: Collection[str]) -> bool:
    """Whether a browser sends this for a page of another site.

    Browsers name the page's origin with every request that may change something (Fetch standard,
    "Origin header"), and the relation of the sites with nearly all (Fetch Metadata). Following a
    link from another site is not a call of its page.
    """
    origin = headers.get("origin")
    if origin is None:
        is_elsewhere = headers.get("sec-fetch-site") in ("cross-site", "same-site")
        return is_elsewhere and headers.get("sec-fetch-mode") != "navigate"
    if origin.lower() in allowed_origins:
        return False
    try:
        place = urlsplit(origin.lower())
    except ValueError:
        return True
    return place.scheme not in ("http", "https") or place.netloc != headers.get("host", "").lower()


def _head_bytes(scope: Scope) -> int:
    """Return the size of a head; h11 bounds only those that come in several parts."""
    fields = sum(len(name) + len(value) for name, value in scope["headers"])
    return len(scope["raw_path"]) + len(scope["query_string"]) + fields


def _client(scope: Scope) -> str:
    client: tuple[str, int] | None = scope.get("client")
    return client[0] if client else ""
