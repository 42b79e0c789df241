"""What the plugin remembers, in files that outlive a connection."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from nanobot_core import shorten
from nanobot_core.chat import Recent, Records
from nanobot_whatsapp.mapping import Quoted

if TYPE_CHECKING:
    from nanobot_core import PluginContext

_SAID_CHARS = 200
_SAID = 400
_PEOPLE = 5_000


@dataclass(slots=True)
class Memory:
    """What outlives a connection.

    Attributes:
        windows: chat to the Unix time of the person's last message.
        templates: chat to the time of that message when the template was last sent.
        people: other id of a person to the phone number.
        said: message id to author and beginning of its text, because a quote contains only an id.
        latest: chat to the id of the person's newest message.
        undelivered: message id to the error code with which WhatsApp reported it.
        halves: keys of pieces whose text was sent before their file or their buttons.
    """

    windows: Records
    templates: Records
    people: Records
    said: Records
    latest: Recent[str, str] = field(default_factory=Recent)
    undelivered: Recent[str, int] = field(default_factory=Recent)
    halves: Recent[str, bool] = field(default_factory=Recent)

    async def note_said(self, message_id: str, author: str, text: str) -> None:
        """Remember a message. On a full disk, this process still knows it."""
        if message_id and text:
            with suppress(OSError):
                value = {"by": author, "text": shorten(text, _SAID_CHARS)}
                await self.said.put(message_id, value)  # type: ignore[arg-type]

    async def quoted(self, message_id: str) -> Quoted | None:
        """Return a message that is remembered."""
        known = await self.said.get(message_id) if message_id else None
        if not isinstance(known, dict):
            return None
        return Quoted(str(known.get("by", "")), str(known.get("text", "")))

    async def last_heard(self, chat_id: str) -> float | None:
        """Return when the person last wrote, or ``None`` if unknown."""
        known = await self.windows.get(chat_id)
        return float(known) if isinstance(known, int | float) else None

    async def heard(self, chat_id: str, unix_s: float) -> None:
        """Remember that the person wrote; older messages may come later."""
        before = await self.last_heard(chat_id)
        if before is None or unix_s > before:
            with suppress(OSError):
                await self.windows.put(chat_id, unix_s)

    async def learn_person(self, other_id: str, phone: str) -> None:
        """Remember the phone number of another id."""
        if await self.people.get(other_id) != phone:
            with suppress(OSError):
                await self.people.put(other_id, phone)

    async def phone_of(self, other_id: str) -> str | None:
        """Return the phone number of another id, if it is known."""
        known = await self.people.get(other_id)
        return known if isinstance(known, str) else None


def build_memory(ctx: PluginContext) -> Memory:
    """Return the memory of the plugin, for ``ctx.shared``."""
    folder = ctx.data_dir
    return Memory(
        windows=Records(folder / "windows.json", _PEOPLE),
        templates=Records(folder / "templates.json", _PEOPLE),
        people=Records(folder / "people.json", _PEOPLE),
        said=Records(folder / "said.json", _SAID),
    )
