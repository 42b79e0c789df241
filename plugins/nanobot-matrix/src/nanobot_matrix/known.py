"""Known: what outlives a connection."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nanobot_core.chat import CallFailed, Cause, Recent, Records

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from nanobot_core import PluginContext


class Known:
    """What outlives a connection.

    Attributes:
        tokens: on disk: user id to the token of the last sync whose messages are stored.
        invites: on disk: rooms to join, with the number of failed attempts.
        noticed: on disk: notices that were sent, each by its key.
        people: room to its number of members.
        encrypted: room to whether it is encrypted, as far as it is known without a vault.
        unread: encrypted room to its number of messages that could not be read without encryption.
    """

    def __init__(self, ctx: PluginContext) -> None:
        self._log = ctx.logger
        self.tokens: Records = Records(ctx.data_dir / "sync.json")
        self.invites: Records = Records(ctx.data_dir / "invites.json")
        self.noticed: Records = Records(ctx.data_dir / "encrypted.json", size=2_000)
        self.people: Recent[str, int] = Recent(2_000)
        self.encrypted: Recent[str, bool] = Recent(2_000)
        self.unread: dict[str, int] = {}

    async def tell_once(
        self, key: str, room: str, text: str, send: Callable[[str, str], Awaitable[None]]
    ) -> None:
        """Send a notice to a room, unless one with this key was sent.

        Raises:
            CallFailed: `send` raised it; not if the room does not accept the notice.
        """
        if await self.noticed.get(key) is not None:
            return
        try:
            await send(room, text)
        except CallFailed as error:
            if error.cause not in {Cause.FORBIDDEN, Cause.REFUSED}:
                raise
        await self.noticed.put(key, value=True)

    def report(self) -> None:
        """Log how many messages could not be read without encryption, if there are any."""
        for room, count in self.unread.items():
            if count > 1:
                self._log.info("room {}: {} encrypted messages could not be read", room, count)
