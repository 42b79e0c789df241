"""Pages on which the owner signs in to the platform of a channel."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, Literal, TypeAlias
from urllib.parse import urlencode

from starlette.exceptions import HTTPException
from starlette.responses import RedirectResponse
from starlette.routing import Route

from nanobot_core import NanobotError
from nanobot_page.access import read_form, require_owner
from nanobot_page.desk.frame import one
from nanobot_page.desk.prompt import MAX_PASTED_CHARS, PagePrompt
from nanobot_page.desk.work import Work, parts_answer
from nanobot_page.pages import token_field
from nanobot_page.settings import CHANNEL

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from nanobot_core import Operations, PluginContext
    from nanobot_page.desk.frame import Frame

Phase: TypeAlias = Literal["idle", "waiting", "done", "failed"]
PATH: Final = "/desk/sign-in"
LIMIT_S: Final = 600.0
"""How long a sign-in may take, whatever its channel waits for."""
UNSEEN_S: Final = 90.0
"""When a sign-in that no page asks about ends; browsers let hidden pages ask once a minute."""
LEFT_S: Final = 5.0
"""The same once a page was left, so that loading it again does not end the sign-in."""
_CHECK_S: Final = 1.0
_PARTS: Final = {
    "sign-in-says": "sign_in_says.html",
    "sign-in-code": "sign_in_code.html",
    "sign-in-entry": "sign_in_entry.html",
}
_BUSY: Final = "Another sign-in is in progress; cancel it first."
_LEFT: Final = "It was cancelled, because its page was closed."
_CANCELLED: Final = "It was cancelled."
_LATE: Final = "It did not end within {:.0f} minutes; begin again."
_LOST: Final = "It ended without a result; the log says why."


class SignIn:
    """The sign-in of this gateway, one at a time; get it with ``ctx.shared(SignIn)``.

    Attributes:
        channel: whose it is, also after its end; empty before the first one.
        phase: ``failed`` has the reason in `note`, and ``done`` who the agent is.
        note: see `phase`.
        prompt: what it shows.
    """

    def __init__(self, ctx: PluginContext) -> None:
        self._clock = ctx.clock
        self._work = Work(ctx, "sign-in")
        self._ends_s = 0.0
        self.channel: str = ""
        self.phase: Phase = "idle"
        self.note: str = ""
        self.prompt: PagePrompt = PagePrompt()

    async def begin(self, operations: Operations, channel: str) -> bool:
        """Begin to sign in; False if a sign-in is under way."""
        if self._work.is_running:
            return False
        self.channel, self.phase, self.note = channel, "waiting", ""
        self.prompt = PagePrompt()
        self.keep()
        await self._work.start(self._sign_in(operations))
        return True

    def keep(self) -> None:
        """Continue: a page shows it."""
        self._ends_s = self._clock.monotonic_s() + UNSEEN_S

    def leave(self) -> None:
        """End soon, unless another page shows it."""
        self._ends_s = min(self._ends_s, self._clock.monotonic_s() + LEFT_S)

    def cancel(self) -> None:
        """End it, or forget its result."""
        if self._work.is_running:
            self.note = _CANCELLED
            self._work.cancel()
        else:
            self.phase = "idle"

    async def _sign_in(self, operations: Operations) -> None:
        account = ""
        try:
            async with asyncio.TaskGroup() as group:
                watching = group.create_task(self._end_unseen(), name="sign-in is watched")
                try:
                    account = await operations.sign_in(self.channel, self.prompt) or self.channel
                except NanobotError as error:
                    self.note = str(error)
                watching.cancel()
        finally:
            # One that ends without account and reason is cancelled, or has a fault.
            self.phase = "done" if account else "failed"
            self.note = account or self.note or _LOST

    async def _end_unseen(self) -> None:
        begun_s = self._clock.monotonic_s()
        while (now_s := self._clock.monotonic_s()) < self._ends_s:
            if now_s - begun_s > LIMIT_S:
                self.note = _LATE.format(LIMIT_S / 60)
                break
            await self._clock.sleep(_CHECK_S)
        else:
            self.note = _LEFT
        self._work.cancel()


class ChannelPages:
    """The pages of one application.

    Args:
        frame: menu, notices and questions.
        ctx: the context of the plugin.
    """

    def __init__(self, frame: Frame, ctx: PluginContext) -> None:
        self._frame = frame
        self._sign_in = ctx.shared(SignIn)

    def routes(self) -> list[Route]:
        """Return the routes."""
        return [
            Route(PATH, self.show, methods=["GET"]),
            Route(PATH, self.act, methods=["POST"]),
            Route(f"{PATH}/state", self.parts, methods=["GET"]),
        ]

    async def show(self, request: Request) -> Response:
        """Show the sign-in of a channel."""
        values = self._values(request.query_params.get("channel", ""))
        return await self._frame.page(request, "sign_in.html", status=200, **values)

    async def parts(self, request: Request) -> Response:
        """Return the parts of the page that change."""
        values = self._values(request.query_params.get("channel", ""))
        values["token_field"] = token_field(require_owner(request))
        is_busy = values["phase"] == "waiting"
        return parts_answer(request, _PARTS, is_busy=is_busy, **values)

    async def act(self, request: Request) -> Response:
        """Begin, answer, leave or cancel."""
        form, sign_in = await read_form(request), self._sign_in
        do, channel = one(form, "do"), self._checked(one(form, "channel"))
        back = f"{PATH}?{urlencode({'channel': channel})}"
        if do == "begin":
            if not await sign_in.begin(self._frame.gateway.operations, channel):
                return self._frame.lead_back(request, _BUSY, back, failed=True)
        elif do not in ("answer", "leave", "cancel"):
            raise HTTPException(400, "expected begin, answer, leave or cancel")
        elif sign_in.channel != channel:
            return self._frame.lead_back(request, "This sign-in has ended.", back, failed=True)
        elif do == "leave":
            sign_in.leave()
        elif do == "cancel":
            sign_in.cancel()
        elif not sign_in.prompt.paste(one(form, "text").strip()[:MAX_PASTED_CHARS]):
            return self._frame.lead_back(request, "It does not wait for this.", back, failed=True)
        return RedirectResponse(back, 303)

    def _checked(self, channel: str) -> str:
        if channel not in sign_in_channels(self._frame.gateway.operations):
            raise HTTPException(404, "there is no such channel; its plugin may be disabled")
        return channel

    def _values(self, channel: str) -> dict[str, object]:
        """Return what templates show of a channel, whose page is looked at now."""
        sign_in, is_shown = self._sign_in, self._sign_in.channel == self._checked(channel)
        if is_shown:
            sign_in.keep()
        return {
            "channel": channel,
            "phase": sign_in.phase if is_shown else "idle",
            "note": sign_in.note if is_shown else "",
            "prompt": sign_in.prompt,
            "other": sign_in.channel if not is_shown and sign_in.phase == "waiting" else "",
        }


def sign_in_channels(operations: Operations) -> list[str]:
    """Return the channels of all plugins that run, by name, without the page's own."""
    lines = (line.partition(": ") for each in operations.plugins() for line in each.gives)
    names = {name for kind, _, listed in lines if kind == "channels" for name in listed.split(", ")}
    return sorted(names - {CHANNEL})
