"""The cards of tool calls that wait for an approval."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from nanobot_page.events import Events
from nanobot_page.transcript import Transcript

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nanobot_core import JsonObject, OpenQuestion, PluginContext


class Cards:
    """Tells the pages which questions are open; get it with ``ctx.shared(Cards)``.

    A question is shown in the session of its call, and in the session of the page in which the
    owner was asked, which differs for calls of guests.
    """

    def __init__(self, ctx: PluginContext) -> None:
        self._ctx = ctx
        self._events = ctx.shared(Events)
        self._transcript = ctx.shared(Transcript)
        self._asked_in: dict[str, str] = {}
        self._shown: dict[str, set[str]] = {}
        self._updating = asyncio.Lock()

    async def ask(self, question_id: str, session: str) -> bool:
        """Show a question in the session in which the owner was asked; False if it is not open."""
        if all(each.id != question_id for each in self._questions()):
            return False
        self._asked_in[question_id] = session
        await self.update()
        return True

    async def update(self) -> None:
        """Show the questions that have come since the last call, and remove those that went."""
        async with self._updating:
            for question in self._questions():
                if self._sessions(question) - self._shown.get(question.id, set()):
                    card = await asyncio.to_thread(self._transcript.question, question)
                    self._show(question, card)
            is_open = {question.id for question in self._questions()}
            for gone in self._shown.keys() - is_open:
                self._asked_in.pop(gone, None)
                for key in self._shown.pop(gone):
                    self._events.add({"s": key, "put": [], "drop": [f"a-{gone}"]}, is_private=True)

    def of(self, session: str) -> Sequence[JsonObject]:
        """Return the cards of a session. It awaits nothing, so that no event is lost."""
        found = [each for each in self._questions() if session in self._sessions(each)]
        for each in found:
            self._shown.setdefault(each.id, set()).add(session)
        return [self._transcript.question(each) for each in found]

    def _show(self, question: OpenQuestion, card: JsonObject) -> None:
        shown = self._shown.setdefault(question.id, set())
        for key in self._sessions(question) - shown:
            shown.add(key)
            self._events.add({"s": key, "put": [card], "drop": []}, is_private=True)

    def _sessions(self, question: OpenQuestion) -> set[str]:
        return {question.session_key, self._asked_in.get(question.id, question.session_key)}

    def _questions(self) -> Sequence[OpenQuestion]:
        gateway = self._ctx.gateway
        return gateway.operations.questions() if gateway else ()
