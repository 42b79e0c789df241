"""The application: routes, and who may use them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from nanobot_core import NanobotError
from nanobot_page.access import Logins, cookie_name
from nanobot_page.chat import Chat
from nanobot_page.desk import desk_routes
from nanobot_page.headers import SafeHeaders
from nanobot_page.pages import Pages, render
from nanobot_page.setup import Setup
from nanobot_page.signing import Signing

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

    from nanobot_core import PluginContext

OPEN: Final = ("/login", "/static/{digest}/{name}")
"""Routes that need no login."""
GUESTS: Final = frozenset(
    {
        "/",
        "/chat",
        "/logout",
        "/web/events",
        "/web/export",
        "/web/files",
        "/web/history",
        "/web/messages",
        "/web/sessions",
        "/web/since",
        "/web/snapshot",
        "/web/stop",
    }
)
"""Routes of guests, for their own chats; all others are the owner's."""
AGAIN: Final = (
    '<!doctype html><html lang="en"><title>nanobot</title>'
    '<meta http-equiv="refresh" content="0"><p>Opening nanobot…'
)
"""Loads itself again: the cookie comes only with requests that begin on a page of this server."""


def build_app(ctx: PluginContext) -> Starlette:
    """Return the application of the mount. Reads files, so it blocks for a moment."""
    pages = ctx.shared(Pages)
    app = Starlette(
        routes=[*routes(ctx), Route("/static/{digest}/{name}", pages.file, methods=["GET"])],
        middleware=[Middleware(SafeHeaders), Middleware(Site, ctx.shared(Logins))],
        exception_handlers={HTTPException: _refuse, NanobotError: _fail},
    )
    app.router.redirect_slashes = False
    app.state.pages = pages
    return app


def routes(ctx: PluginContext) -> list[Route]:
    """Return all routes but those of static files."""
    return [*Signing(ctx).routes(), *Chat(ctx).routes(), *Setup(ctx).routes(), *desk_routes(ctx)]


class Site:
    """Finds the login of a request, and refuses requests without one.

    Every route that neither `OPEN` nor `GUESTS` names is the owner's, so that a forgotten check
    closes a route instead of opening it.
    """

    def __init__(self, app: ASGIApp, logins: Logins) -> None:
        self._app = app
        self._logins = logins

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        request = Request(scope, receive)
        login = await self._logins.find(request.cookies.get(cookie_name(request), ""))
        scope.setdefault("state", {})["login"] = login
        if login is not None:
            caller = (scope.get("extensions") or {}).get("nanobot.caller")
            if caller is not None:
                caller["proven"]()
        elif not is_open(request.url.path):
            await _demand_login(request)(scope, receive, send)
            return
        if login is not None and login.guest and not _is_for_guests(request.url.path):
            refusal = _answer(request, 403, "only the owner may do this", {})
            await refusal(scope, receive, send)
            return
        await self._app(scope, receive, send)


def is_open(path: str) -> bool:
    """Whether a path needs no login."""
    return path == "/login" or path.startswith("/static/")


def _is_for_guests(path: str) -> bool:
    return path in GUESTS or is_open(path)


def _demand_login(request: Request) -> Response:
    if request.method != "GET" or request.url.path.startswith("/web/"):
        return JSONResponse({"error": "sign in first: run nanobot web"}, 401)
    if request.headers.get("sec-fetch-site") in ("cross-site", "same-site"):
        return HTMLResponse(AGAIN)
    return RedirectResponse("/login", 303)


async def _refuse(request: Request, error: Exception) -> Response:
    if not isinstance(error, HTTPException):
        raise error
    return _answer(request, error.status_code, error.detail, dict(error.headers or {}))


async def _fail(request: Request, error: Exception) -> Response:
    return _answer(request, 409, str(error), {})


def _answer(request: Request, status: int, reason: str, headers: dict[str, str]) -> Response:
    if request.url.path.startswith(("/web/", "/login")):
        return JSONResponse({"error": reason}, status, headers)
    return render(request, "error.html", status=status, headers=headers, reason=reason)
