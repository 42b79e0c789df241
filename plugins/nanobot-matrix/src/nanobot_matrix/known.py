"""Known: what outlives a connection."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nanobot_core.chat import Recent, Records

if TYPE_CHECKING:
    from nanobot_core import PluginContext


class Known:
    """What outlives a connection.

    Attributes:
        tokens: on disk: user id to the token of the last sync whose messages are stored.
        invites: on disk: rooms to join, with the number of failed attempts.
        noticed: on disk: encrypted rooms in which the notice about them was sent.
        people: room to its number of members.
        encrypted: room to whether it is encrypted.
        unread: encrypted room to its number of messages that could not be read.
    """

    def __init__(self, ctx: PluginContext) -> None:
        self.tokens: Records = Records(ctx.data_dir / "sync.json")
        self.invites: Records = Records(ctx.data_dir / "invites.json")
        self.noticed: Records = Records(ctx.data_dir / "encrypted.json", size=2_000)
        self.people: Recent[str, int] = Recent(2_000)
        self.encrypted: Recent[str, bool] = Recent(2_000)
        self.unread: dict[str, int] = {}
