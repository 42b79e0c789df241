"""Logins: which browsers have signed in, and what they may read."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import secrets
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Final

from pydantic import AwareDatetime, BaseModel, ConfigDict, ValidationError
from starlette.exceptions import HTTPException

from nanobot_core import PrivateFile, PrivateFileRefused
from nanobot_page.keys import is_of
from nanobot_page.settings import WebSettings

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from nanobot_core import PluginContext

MAX_LOGINS: Final = 50
MAX_FORM_BYTES: Final = 1024 * 1024
TOKEN_FIELD: Final = "token"  # noqa: S105 - the name of a field
TOKEN_HEADER: Final = "x-nanobot-token"  # noqa: S105 - the name of a header
_SEEN_EVERY: Final = timedelta(hours=1)


class _Stored(BaseModel):
    model_config = ConfigDict(frozen=True)

    since: AwareDatetime
    seen: AwareDatetime
    browser: str = ""
    guest: str = ""


class _File(BaseModel):
    model_config = ConfigDict(frozen=True)

    logins: dict[str, _Stored] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Login:
    """A browser that has signed in.

    Attributes:
        id: hash of its cookie.
        token: proves that a request comes from a page of this server.
        since: when it signed in, aware.
        seen: when it was last used, to the hour, aware.
        browser: how it names itself.
        guest: name of the guest who has signed in; empty for the owner.
        ended: set when it is revoked or the server stops; its streams end then.
    """

    id: str
    token: str
    since: datetime
    seen: datetime
    browser: str = ""
    guest: str = ""
    ended: asyncio.Event = field(default_factory=asyncio.Event, compare=False)

    def may_read(self, key: str) -> bool:
        """Whether it may read a session: guests their own ones, the owner all."""
        return not self.guest or is_of(key, self.guest)

    def may_write(self, key: str) -> bool:
        """Whether it may write in a session: everyone in their own ones."""
        return is_of(key, self.guest)


class Logins:
    """The logins of the owner and of guests. The file has hashes of the cookies, not the cookies.

    Get it with ``ctx.shared(Logins)``; `open` reads the file.
    """

    def __init__(self, ctx: PluginContext) -> None:
        self._log = ctx.logger
        self._clock = ctx.clock
        settings = ctx.settings(WebSettings)
        self._life = timedelta(days=settings.login_days)
        self._guests = frozenset(settings.guests)
        self._file = PrivateFile(ctx.data_dir / "logins.json")
        self._logins: dict[str, Login] = {}
        self._writing = asyncio.Lock()
        self._is_open = False
        # What a removed guest has open ends with the settings that named them.
        ctx.on_dispose(self.end_streams)

    async def open(self) -> None:
        """Read the file; the logins of one that cannot be used have ended."""
        if self._is_open:
            return
        try:
            found = _File.model_validate(await asyncio.to_thread(self._file.read) or {})
        except (PrivateFileRefused, ValidationError, OSError) as error:
            self._log.warning("browsers have to sign in again: {}", error)
            found = _File()
        for key, stored in found.logins.items():
            self._logins[key] = Login(
                id=key,
                token=_token(key),
                since=stored.since,
                seen=stored.seen,
                browser=stored.browser,
                guest=stored.guest,
            )
        self._is_open = True

    def current(self) -> list[Login]:
        """Return the logins that count, the latest used first."""
        found = [login for login in self._logins.values() if self._counts(login)]
        return sorted(found, key=lambda login: login.seen, reverse=True)

    async def add(self, browser: str, guest: str = "") -> str:
        """Create a login and return its cookie; the oldest ones end if there are too many.

        Those of guests do not end those of the owner, and the reverse.

        Raises:
            OSError: it cannot be stored.
        """
        cookie, now = secrets.token_urlsafe(32), self._clock.now()
        key = _hashed(cookie)
        self._logins[key] = Login(
            id=key, token=_token(key), since=now, seen=now, browser=browser[:200], guest=guest
        )
        alike = [each for each in self.current() if bool(each.guest) == bool(guest)]
        for extra in alike[MAX_LOGINS:]:
            self._logins.pop(extra.id).ended.set()
        await self._write()
        return cookie

    async def find(self, cookie: str) -> Login | None:
        """Return the login of a cookie, or ``None``."""
        await self.open()
        login = self._logins.get(_hashed(cookie))
        if login is None or not self._counts(login):
            return None
        if self._clock.now() - login.seen > _SEEN_EVERY:
            login = self._logins[login.id] = replace(login, seen=self._clock.now())
            try:
                await self._write()
            except OSError as error:
                self._log.warning("cannot store when a login was last used: {}", error)
        return login

    async def revoke(self, login_id: str) -> bool:
        """End a login and its streams; False if it does not exist.

        Raises:
            OSError: this cannot be stored; it counts until the gateway restarts.
        """
        login = self._logins.pop(login_id, None)
        if login is None:
            return False
        login.ended.set()
        await self._write()
        return True

    def end_streams(self) -> None:
        """End the streams of all logins, which themselves continue to count."""
        for key, login in self._logins.items():
            login.ended.set()
            self._logins[key] = replace(login, ended=asyncio.Event())

    def _counts(self, login: Login) -> bool:
        is_known = not login.guest or login.guest in self._guests
        return is_known and self._clock.now() - login.seen < self._life

    async def _write(self) -> None:
        async with self._writing:
            content = _File(
                logins={
                    login.id: _Stored(
                        since=login.since,
                        seen=login.seen,
                        browser=login.browser,
                        guest=login.guest,
                    )
                    for login in self.current()
                }
            )
            record = content.model_dump(mode="json")
            await asyncio.to_thread(partial(self._file.replace, record))


def cookie_name(request: Request) -> str:
    """Return the name of the cookie; cookies ignore ports, so the port is part of the name."""
    name = f"nanobot_{request.url.port or (443 if _is_secure(request) else 80)}"
    return f"__Host-{name}" if _is_secure(request) else name


def set_cookie(request: Request, response: Response, cookie: str, days: int) -> None:
    """Set the cookie of a login."""
    response.set_cookie(
        cookie_name(request),
        cookie,
        max_age=days * 86_400,
        path="/",
        secure=_is_secure(request),
        httponly=True,
        samesite="strict",
    )


def require_login(request: Request) -> Login:
    """Return the login of a request, of the owner or of a guest.

    Raises:
        HTTPException: 401, it has none.
    """
    login = getattr(request.state, "login", None)
    if not isinstance(login, Login):
        raise HTTPException(401, "sign in first: run nanobot web")
    return login


def require_owner(request: Request) -> Login:
    """Return the login of a request of the owner.

    Raises:
        HTTPException: 401, it has none; 403, it is a guest's.
    """
    login = require_login(request)
    if login.guest:
        raise HTTPException(403, "only the owner may do this")
    return login


def require_readable(request: Request, key: str) -> str:
    """Return the key of a session that the login of a request may read.

    Raises:
        HTTPException: 404, it may not.
    """
    if not require_login(request).may_read(key):
        raise HTTPException(404, "this chat does not exist")
    return key


def check_token(request: Request, given: str) -> None:
    """Check that a request that changes something comes from a page of this server.

    Raises:
        HTTPException: 403, it does not.
    """
    expected = require_login(request).token
    if not hmac.compare_digest(given.encode(errors="replace"), expected.encode()):
        raise HTTPException(403, "the form is out of date; load the page again")


async def read_form(request: Request) -> dict[str, list[str]]:
    """Return the fields of a form, its token checked and left out.

    Raises:
        HTTPException: it is not a form, too large, or not from a page of this server.
    """
    from urllib.parse import parse_qs

    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/x-www-form-urlencoded":
        raise HTTPException(415, "expected a form")
    try:
        text = (await read_body(request, MAX_FORM_BYTES)).decode()
        fields = parse_qs(text, keep_blank_values=True, max_num_fields=2_000)
    except ValueError as error:
        raise HTTPException(400, "the form cannot be read") from error
    check_token(request, next(iter(fields.pop(TOKEN_FIELD, [])), ""))
    return fields


async def read_body(request: Request, max_bytes: int) -> bytes:
    """Return the body.

    Raises:
        HTTPException: 413, it is larger than `max_bytes`.
    """
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if len(body) > max_bytes:
            raise HTTPException(413, f"at most {max_bytes:,} bytes")
    return bytes(body)


def _is_secure(request: Request) -> bool:
    return request.url.scheme == "https"


def _hashed(cookie: str) -> str:
    return hashlib.sha256(cookie.encode(errors="replace")).hexdigest()


def _token(login_id: str) -> str:
    return hashlib.sha256(f"form {login_id}".encode()).hexdigest()
