"""Pages of the gateway's work: overview, approvals, plugins, dead letters and the log."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final, get_args

from starlette.exceptions import HTTPException
from starlette.routing import Route

from nanobot_core import InboundMessage, PluginChange
from nanobot_page.access import read_form
from nanobot_page.desk.channels import sign_in_channels
from nanobot_page.desk.frame import CONFIRMED, one

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from nanobot_core import DeadLetter
    from nanobot_page.desk.frame import Frame

LOG_LINES: Final = 500
MAX_SHOWN: Final = 500
MAX_TEXT_CHARS: Final = 2_000
_ANSWERED: Final = "It was answered already, has expired, or is not the call that was shown."


class OperatingPages:
    """The pages of one application.

    Args:
        frame: menu, notices and questions.
    """

    def __init__(self, frame: Frame) -> None:
        self._frame = frame

    def routes(self) -> list[Route]:
        """Return the routes."""
        return [
            Route("/desk", self.overview, methods=["GET"]),
            Route("/desk/approvals", self.approvals, methods=["GET"]),
            Route("/desk/approvals", self.answer, methods=["POST"]),
            Route("/desk/plugins", self.plugins, methods=["GET"]),
            Route("/desk/plugins", self.change_plugin, methods=["POST"]),
            Route("/desk/letters", self.letters, methods=["GET"]),
            Route("/desk/letters", self.change_letter, methods=["POST"]),
            Route("/desk/log", self.log, methods=["GET"]),
        ]

    async def overview(self, request: Request) -> Response:
        """Show the state of the gateway, of channels and of services."""
        gateway = self._frame.gateway
        status = await gateway.status()
        channels = sign_in_channels(gateway.operations)
        running = {each.name for each in status.running if each.kind == "channel"}
        return await self._frame.page(
            request,
            "overview.html",
            status_of=status,
            questions=len(gateway.operations.questions()),
            channels=channels,
            idle=[name for name in channels if name not in running],
        )

    async def approvals(self, request: Request) -> Response:
        """Show the tool calls that wait for an approval."""
        questions = [
            (each, json.dumps(each.arguments, indent=2, ensure_ascii=False))
            for each in self._frame.gateway.operations.questions()
        ]
        return await self._frame.page(request, "approvals.html", questions=questions)

    async def answer(self, request: Request) -> Response:
        """Answer one question, if it is the one that was shown."""
        form, operations = await read_form(request), self._frame.gateway.operations
        wanted, answer = one(form, "id"), one(form, "answer")
        if answer not in ("allow", "deny"):
            raise HTTPException(400, "expected allow or deny")
        shown = next((each for each in operations.questions() if each.id == wanted), None)
        back = "/desk/approvals"
        if shown is None or shown.digest != one(form, "digest"):
            return self._frame.lead_back(request, _ANSWERED, back, failed=True)

        async def work() -> str:
            allowed = answer == "allow"
            if not await operations.answer_question(shown.id, allowed=allowed, by="web"):
                return _ANSWERED
            return f"{'Allowed' if allowed else 'Denied'}: {shown.question}"

        return await self._frame.done(request, work(), back)

    async def plugins(self, request: Request) -> Response:
        """Show the plugins."""
        entries = sorted(
            self._frame.gateway.operations.plugins(), key=lambda each: (each.is_quiet, each.id)
        )
        return await self._frame.page(request, "plugins.html", entries=entries)

    async def change_plugin(self, request: Request) -> Response:
        """Enable, disable or reload a plugin."""
        form, operations = await read_form(request), self._frame.gateway.operations
        plugin_id, wanted = one(form, "id"), one(form, "change")
        change: PluginChange | None = next(
            (each for each in get_args(PluginChange) if each == wanted), None
        )
        if change is None or plugin_id not in {each.id for each in operations.plugins()}:
            raise HTTPException(400, "there is no such plugin or change; load the page again")
        if change.startswith("disable") and CONFIRMED not in form:
            others = " and the plugins that require it" if change == "disable-cascade" else ""
            own = " This page ends with it." if plugin_id in ("page", "http") else ""
            question = f"Disable the plugin '{plugin_id}'{others}?{own}"
            return await self._frame.ask(request, form, question, "/desk/plugins")
        work = operations.change_plugin(plugin_id, change)
        return await self._frame.done(request, work, "/desk/plugins")

    async def letters(self, request: Request) -> Response:
        """Show the messages that were given up, the newest first."""
        found = list(await self._frame.gateway.operations.dead_letters())[::-1]
        return await self._frame.page(
            request,
            "letters.html",
            letters=[(each, _chat_of(each), _text_of(each)) for each in found[:MAX_SHOWN]],
            left=len(found) - MAX_SHOWN,
        )

    async def change_letter(self, request: Request) -> Response:
        """Retry or drop a dead letter."""
        form, operations = await read_form(request), self._frame.gateway.operations
        letter_id, do, back = one(form, "id"), one(form, "do"), "/desk/letters"
        if do not in ("retry", "drop"):
            raise HTTPException(400, "expected retry or drop")
        if do == "drop" and CONFIRMED not in form:
            question = "Delete this message for good?"
            return await self._frame.ask(request, form, question, back)

        async def work() -> str:
            change = operations.retry if do == "retry" else operations.drop
            if not await change(letter_id):
                return "This message is not here any more."
            return "It is tried again." if do == "retry" else "The message was deleted."

        return await self._frame.done(request, work(), back)

    async def log(self, request: Request) -> Response:
        """Show the end of the log."""
        lines = await self._frame.gateway.operations.log(LOG_LINES)
        return await self._frame.page(request, "log.html", lines="\n".join(lines))


def _chat_of(letter: DeadLetter) -> str:
    message = letter.message
    way = "from" if isinstance(message, InboundMessage) else "to"
    return f"{way} {message.channel}:{message.chat_id}"


def _text_of(letter: DeadLetter) -> str:
    return letter.message.content[:MAX_TEXT_CHARS]
