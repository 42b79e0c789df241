"""The pages on which people sign in and out."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from pydantic import BaseModel, ConfigDict, ValidationError
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from nanobot_page.access import (
    Login,
    Logins,
    read_body,
    read_form,
    require_login,
    set_cookie,
)
from nanobot_page.codes import Codes, TooManyTries
from nanobot_page.pages import render
from nanobot_page.settings import WebSettings

if TYPE_CHECKING:
    from starlette.requests import Request

    from nanobot_core import PluginContext

_MAX_PROOF_BYTES: Final = 4096


class _Proof(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    code: str = ""
    name: str = ""
    password: str = ""


class Signing:
    """Signs browsers in and out."""

    def __init__(self, ctx: PluginContext) -> None:
        self._log = ctx.logger
        self._codes = ctx.shared(Codes)
        self._logins = ctx.shared(Logins)
        self._days = ctx.settings(WebSettings).login_days

    def routes(self) -> list[Route]:
        """Return its routes."""
        return [
            Route("/login", self.show, methods=["GET"]),
            Route("/login", self.sign_in, methods=["POST"]),
            Route("/logout", self.sign_out, methods=["POST"]),
            Route("/logins", self.show_logins, methods=["GET"]),
            Route("/logins", self.revoke, methods=["POST"]),
        ]

    async def show(self, request: Request) -> Response:
        """Show the form. A code in the fragment of the address is sent by its script."""
        return render(
            request,
            "login.html",
            has_password=self._codes.has_password,
            has_guests=self._codes.has_guests,
        )

    async def sign_in(self, request: Request) -> Response:
        """Check a code or the password, given as JSON, and set the cookie."""
        if request.headers.get("content-type", "").partition(";")[0] != "application/json":
            raise HTTPException(415, "expected JSON")
        if request.headers.get("sec-fetch-site", "same-origin") != "same-origin":
            raise HTTPException(403, "the request comes from another site")
        try:
            proof = _Proof.model_validate_json(await read_body(request, _MAX_PROOF_BYTES))
        except ValidationError:
            raise HTTPException(400, "expected a code or a password") from None
        # A code is the owner's, whatever the name.
        guest = "" if proof.code else proof.name.strip().lower()
        try:
            is_proven = (
                self._codes.redeem(proof.code)
                if proof.code
                else self._codes.accepts_password(proof.password, guest)
            )
        except TooManyTries as error:
            wait_s = math.ceil(error.wait_s)
            reason = f"too many wrong attempts; try again in {wait_s} s"
            return JSONResponse({"error": reason}, 429, {"retry-after": str(wait_s)})
        if not is_proven:
            self._log.warning("a sign-in failed: the code or the password was wrong")
            wrong = "the link is used up or older than a minute; run nanobot web again"
            if not proof.code:
                wrong = "wrong name or password" if guest else "wrong password"
            return JSONResponse({"error": wrong}, 401)
        previous: Login | None = getattr(request.state, "login", None)
        if previous is not None:
            await self._logins.revoke(previous.id)
        cookie = await self._logins.add(request.headers.get("user-agent", ""), guest)
        response = JSONResponse({"ok": True})
        set_cookie(request, response, cookie, self._days)
        return response

    async def sign_out(self, request: Request) -> Response:
        """End the login of this browser."""
        await read_form(request)
        await self._logins.revoke(require_login(request).id)
        return RedirectResponse("/login", 303)

    async def show_logins(self, request: Request) -> Response:
        """List the browsers that are signed in."""
        return render(request, "logins.html", logins=self._logins.current())

    async def revoke(self, request: Request) -> Response:
        """End a login."""
        fields = await read_form(request)
        if not await self._logins.revoke(next(iter(fields.get("id", [])), "")):
            raise HTTPException(404, "this login does not exist any more")
        return RedirectResponse("/logins", 303)
