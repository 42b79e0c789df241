"""Where answers go: the webhook of the newest message of each chat, and who is pushed to."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from nanobot_core.chat import Recent, Records

if TYPE_CHECKING:
    from nanobot_core import JsonObject, PluginContext
    from nanobot_dingtalk.wire import BotMessage

_MARGIN_S = 60.0
"""A webhook counts as expired this long before it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """How a chat is answered.

    Attributes:
        webhook: accepts replies until `expires_s`; empty if DingTalk gave none.
        expires_s: seconds since 1970.
        robot: code of the robot in that chat.
        takes_pushes: DingTalk named the person by the id that a push needs.
    """

    webhook: str = ""
    expires_s: float = 0.0
    robot: str = ""
    takes_pushes: bool = True

    def is_open(self, now_s: float) -> bool:
        """Whether the webhook is still valid."""
        return bool(self.webhook) and now_s < self.expires_s - _MARGIN_S


def route_of(message: BotMessage) -> Route:
    """Return how the chat of a message is answered."""
    return Route(
        webhook=message.session_webhook,
        expires_s=(message.session_webhook_expired_time or 0) / 1000,
        robot=message.robot_code,
        takes_pushes=message.conversation_type == "2" or bool(message.sender_staff_id),
    )


class Routes:
    """The route of each chat; those of admitted senders outlive the process.

    Args:
        records: on disk, readable by the owner only, because a webhook is a secret.
    """

    def __init__(self, records: Records) -> None:
        self._records = records
        self._recent: Recent[str, Route] = Recent()

    def note(self, chat_id: str, route: Route) -> None:
        """Use `route` for a chat from now on."""
        self._recent.put(chat_id, route)

    async def keep(self, chat_id: str) -> None:
        """Store the route of a chat on disk; without it, answers are pushed after a restart."""
        route = self._recent.get(chat_id)
        if route is not None:
            with suppress(OSError):
                await self._records.put(chat_id, _to_json(route))

    async def find(self, chat_id: str) -> Route:
        """Return the route of a chat; for an unknown chat, one without a webhook."""
        route = self._recent.get(chat_id)
        if route is None:
            stored = await self._records.get(chat_id)
            route = _from_json(stored) if isinstance(stored, dict) else Route()
        return route


def build_routes(ctx: PluginContext) -> Routes:
    """Return the routes of the plugin's channel, for ``ctx.shared``."""
    return Routes(Records(ctx.data_dir / "reply-routes.json"))


def _to_json(route: Route) -> JsonObject:
    return {
        "webhook": route.webhook,
        "expires_s": route.expires_s,
        "robot": route.robot,
        "takes_pushes": route.takes_pushes,
    }


def _from_json(stored: JsonObject) -> Route:
    webhook, robot, expires_s = stored.get("webhook"), stored.get("robot"), stored.get("expires_s")
    return Route(
        webhook=webhook if isinstance(webhook, str) else "",
        expires_s=expires_s if isinstance(expires_s, int | float) else 0.0,
        robot=robot if isinstance(robot, str) else "",
        takes_pushes=stored.get("takes_pushes") is not False,
    )
