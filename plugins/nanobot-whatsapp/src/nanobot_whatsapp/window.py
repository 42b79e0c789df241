"""After 24 hours without a message of the person, WhatsApp accepts only templates."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from nanobot_core.chat import CallFailed, Cause
from nanobot_whatsapp import outgoing
from nanobot_whatsapp.codes import WINDOW_CLOSED, meaning_of

if TYPE_CHECKING:
    from nanobot_core import JsonObject, PluginContext
    from nanobot_core.chat import Piece
    from nanobot_whatsapp.graph import GraphApi
    from nanobot_whatsapp.memory import Memory
    from nanobot_whatsapp.settings import TemplateSettings

_WINDOW_S = 24 * 3600.0
_CLOSED = meaning_of(WINDOW_CLOSED)[1]


class ReplyWindow:
    """The window of each chat, and what is sent when it is closed."""

    def __init__(
        self, ctx: PluginContext, api: GraphApi, template: TemplateSettings, memory: Memory
    ) -> None:
        self._ctx = ctx
        self._api = api
        self._template = template
        self._memory = memory

    async def is_closed(self, chat_id: str) -> bool:
        """Whether the person's last message is known and too old."""
        heard = await self._memory.last_heard(chat_id)
        return heard is not None and self._ctx.clock.now().timestamp() - heard > _WINDOW_S

    async def send_template(self, to: JsonObject, chat_id: str, piece: Piece) -> str:
        """Send a template instead of a message that WhatsApp does not accept now.

        Returns:
            The id of the template, if it contains the whole message.

        Raises:
            CallFailed: the message is not sent. If this is final, the owner is notified.
        """
        heard = await self._memory.last_heard(chat_id) or 0.0
        try:
            sent, outcome = await self._try_template(to, chat_id, piece, heard)
        except CallFailed as error:
            if error.cause not in {Cause.REFUSED, Cause.FORBIDDEN}:
                raise
            sent, outcome = "", f"the template '{self._template.name}' was refused: {error.reason}"
        if sent:
            return sent
        reason = f"{_CLOSED}; {outcome}"
        if self._ctx.gateway is not None:
            text = f"A message to {chat_id} on WhatsApp was not sent: {reason}. "
            kept = "See `nanobot deadletters list`; `retry` sends it after the person has written."
            await self._ctx.gateway.notify_owner(text + kept, f"whatsapp:{chat_id}:{heard:.0f}")
        raise CallFailed(Cause.FORBIDDEN, reason)

    async def _try_template(
        self, to: JsonObject, chat_id: str, piece: Piece, heard: float
    ) -> tuple[str, str]:
        """Return the id of a template with the message, or else what was done."""
        template = self._template
        if not template.name:
            return "", "set channels.whatsapp.template to a template that asks people to write"
        if template.with_text:
            is_text = not piece.files and not piece.buttons
            body = outgoing.template_body(template, piece.text.text) if is_text else None
            if body is None:
                return "", f"it does not fit into the template '{template.name}'"
            return await self._api.send({**to, **body}), ""
        if await self._memory.templates.get(chat_id) == heard:
            return "", f"the template '{template.name}' was sent before, and has no answer yet"
        await self._api.send({**to, **outgoing.request_body(template)})
        with suppress(OSError):
            await self._memory.templates.put(chat_id, heard)
        return "", f"the template '{template.name}' was sent, which asks the person to write"
