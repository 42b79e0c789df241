"""What a page shows of a session, and what can be done with sessions."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from markupsafe import Markup

from nanobot_core import SessionError
from nanobot_page.files import Files
from nanobot_page.keys import make_key
from nanobot_page.live import Live
from nanobot_page.notices import Notices
from nanobot_page.transcript import Transcript

if TYPE_CHECKING:
    from nanobot_core import AgentClient, JsonObject, Message, PluginContext, SessionEntry
    from nanobot_page.access import Login

PAGE: Final = 50
LISTED: Final = 100
MAX_LOOKED_AT: Final = 5_000
"""Sessions among which those of a guest are looked for, the latest first."""
SEARCHED_FOR_GUESTS: Final = 1_000
EXPORTED_PAGE: Final = 200
MAX_EXPORTED: Final = 20_000


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """A part of a session as a page shows it.

    Attributes:
        event: id of the last event that it contains; empty for older messages.
        html: the elements.
        first: number of the first message; 0 if there are no older ones.
        is_writable: the login can write in it; chats of others can be read.
    """

    key: str
    html: Markup
    first: int
    event: str = ""
    title: str = ""
    model: str = ""
    is_busy: bool = False
    is_writable: bool = False

    def as_json(self) -> JsonObject:
        """Return it for scripts."""
        return {
            "key": self.key,
            "html": str(self.html),
            "first": self.first,
            "event": self.event,
            "title": self.title,
            "model": self.model,
            "busy": self.is_busy,
        }


class History:
    """Reads and changes sessions, for logins that may do so.

    All methods raise `SessionError` as `SessionAccess`.
    """

    def __init__(self, ctx: PluginContext) -> None:
        self._ctx = ctx
        self._live = ctx.shared(Live)
        self._notices = ctx.shared(Notices)
        self._transcript = ctx.shared(Transcript)
        self._files = ctx.shared(Files)

    @property
    def client(self) -> AgentClient:
        """The agent."""
        if self._ctx.gateway is None:
            msg = "the page runs in a gateway only"
            raise RuntimeError(msg)
        return self._ctx.gateway.client

    async def view(self, key: str, login: Login) -> View:
        """Return the end of a session, unstored messages included; empty if it is new.

        The unstored part comes first: an event that happens while the stored one is read is
        applied to both, which does no harm, but one that is in neither would be lost.
        """
        picture = self._live.picture(key, has_cards=not login.guest)
        page = await self.client.sessions.page(key, before=picture.start, limit=PAGE)
        first = page.first_index if page else 0
        elements = await self._stored(key, first, page.messages if page else (), None)
        return View(
            key=key,
            html=_joined([*elements, *picture.elements]),
            first=first,
            event=picture.event,
            title=page.entry.title if page else "",
            model=page.model if page else "",
            is_busy=picture.is_busy,
            is_writable=login.may_write(key),
        )

    async def older(self, key: str, before: int) -> View:
        """Return the messages before a number."""
        page = await self.client.sessions.page(key, before=before, limit=PAGE)
        first = page.first_index if page else 0
        elements = await self._stored(key, first, page.messages if page else (), before)
        return View(key=key, html=_joined(elements), first=first)

    async def _stored(
        self, key: str, first: int, messages: Sequence[Message], end: int | None
    ) -> list[JsonObject]:
        elements = await asyncio.to_thread(self._transcript.stored, first, messages)
        notices = await self._notices.of(key, first, end)
        elements += await asyncio.to_thread(lambda: [*map(self._transcript.notice, notices)])
        return elements

    async def found(self, text: str, login: Login) -> Sequence[tuple[SessionEntry, str]]:
        """Return sessions with the passage that was found, or the latest ones without a search."""
        entries = await self._entries(login)
        if not text:
            return [(entry, "") for entry in entries]
        known = {entry.key: entry for entry in entries}
        passages: dict[str, str] = {
            entry.key: "" for entry in entries if text.casefold() in entry.title.casefold()
        }
        # Those of others count for the limit, too, and guests have few among many.
        limit = SEARCHED_FOR_GUESTS if login.guest else 50
        for hit in await self.client.sessions.search(text, limit=limit):
            if hit.key in known and not passages.get(hit.key):
                passages[hit.key] = _passage(hit.message.text, text)
        return [(known[key], passage) for key, passage in passages.items()]

    async def _entries(self, login: Login) -> Sequence[SessionEntry]:
        """Return the latest sessions that a login may read."""
        if not login.guest:
            return await self.client.sessions.entries(limit=LISTED)
        found: list[SessionEntry] = []
        for offset in range(0, MAX_LOOKED_AT, LISTED):
            entries = await self.client.sessions.entries(offset=offset, limit=LISTED)
            found += [entry for entry in entries if login.may_read(entry.key)]
            if len(entries) < LISTED or len(found) >= LISTED:
                break
        return found[:LISTED]

    async def delete(self, key: str) -> bool:
        """Delete a session and its notices; False if it does not exist."""
        is_deleted = await self.client.sessions.delete(key)
        await self._notices.forget(key)
        self._live.announce_sessions()
        return is_deleted

    async def rename(self, key: str, title: str) -> bool:
        """Give a session a title; False if it does not exist."""
        is_renamed = await self.client.sessions.set_title(key, title)
        self._live.announce_sessions()
        return is_renamed

    async def branch(self, key: str, until: int, login: Login) -> str:
        """Create a session of the login with the messages before a number; return its key.

        Raises:
            SessionError: the session does not exist.
        """
        new_key = make_key(login.guest)
        if until <= 0:
            return new_key
        if not await self.client.sessions.branch(key, until, new_key):
            raise SessionError(key, "it does not exist")
        self._live.announce_sessions()
        return new_key

    async def said(self, key: str, index: int) -> tuple[str, list[str]]:
        """Return the text of a message, and the ids of its files.

        Raises:
            SessionError: it does not exist.
        """
        page = await self.client.sessions.page(key, before=index + 1, limit=1)
        if page is None or not page.messages or page.first_index != index:
            raise SessionError(key, f"it has no message {index}")
        text, files = await asyncio.to_thread(self._files.split, page.messages[0].text)
        return text, [file.id for file in files]

    async def export(self, key: str) -> str:
        """Return a session as Markdown; empty if it does not exist."""
        found: list[Message] = []
        before: int | None = None
        while len(found) < MAX_EXPORTED:
            page = await self.client.sessions.page(key, before=before, limit=EXPORTED_PAGE)
            if page is None or not page.messages:
                break
            found = [*page.messages, *found]
            before = page.first_index
            if not before:
                break
        return await asyncio.to_thread(_exported, found)


def _joined(elements: Sequence[JsonObject]) -> Markup:
    ordered = sorted(elements, key=lambda each: int(str(each["place"])))
    outer = [each for each in ordered if "in" not in each]
    html = []
    for each in outer:
        inner = [part for part in ordered if part.get("in") == each["id"]]
        text = str(each["html"])
        if inner:
            head, end, tail = text.rpartition("</article>")
            text = "".join([head, *(str(part["html"]) for part in inner), end, tail])
        html.append(text)
    return Markup("".join(html))  # noqa: S704 - templates have escaped all of it


def _passage(text: str, wanted: str) -> str:
    at = max(0, text.casefold().find(wanted.casefold()) - 30)
    return " ".join(f"{'…' if at else ''}{text[at : at + 120]}".split())


def _exported(messages: Sequence[Message]) -> str:
    parts: list[str] = []
    for message in messages:
        if message.role == "system":
            continue
        who = {"user": "You", "assistant": "nanobot"}.get(message.role, f"Tool {message.name}")
        at = f", {message.timestamp:%Y-%m-%d %H:%M}" if message.timestamp else ""
        calls = [
            f"`{call.name}` {json.dumps(call.arguments, ensure_ascii=False)}"
            for call in message.tool_calls
        ]
        parts += [f"## {who}{at}", *([message.text] if message.text else []), *calls]
    return "\n\n".join(parts) + ("\n" if parts else "")
