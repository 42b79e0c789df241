"""Where the route and the channel of one application meet."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nanobot_core import Inbox, PluginContext


class Door:
    """Open while the channel receives.

    Attributes:
        inbox: where messages go; ``None`` while none are taken.
    """

    def __init__(self, ctx: PluginContext) -> None:
        self.inbox: Inbox | None = None

    def close(self, inbox: Inbox) -> None:
        """Take no more messages for `inbox`; one that was opened since stays open."""
        if self.inbox is inbox:
            self.inbox = None
