"""Socket.IO, which only reports that there is something new; messages are always read by polling.

It needs python-socketio, which the extra ``socket`` installs. With it, panels are read at once
instead of at an interval.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nanobot_core import PluginContext
    from nanobot_mochat.settings import MochatSettings

_CONNECT_LIMIT_S = 10
_PAUSE_S = 5.0
_LONGEST_PAUSE_S = 300.0


async def watch_socket(ctx: PluginContext, settings: MochatSettings, news: asyncio.Event) -> None:
    """Set `news` for each event until cancelled; return at once without python-socketio.

    A connection that cannot be made is tried again, because polling works without it.
    """
    try:
        import socketio
    except ImportError:
        return
    journal, pause_s = ctx.logger, _PAUSE_S
    while True:
        client = socketio.AsyncClient(reconnection=False)

        async def report(*_: Any) -> None:
            news.set()

        client.on("*", report)
        try:
            await client.connect(
                settings.socket_url or settings.base_url,
                transports=["websocket"],
                socketio_path=settings.socket_path.strip("/"),
                auth={"token": settings.claw_token.get_secret_value()},
                wait_timeout=_CONNECT_LIMIT_S,
            )
            await client.call(
                "com.claw.im.subscribePanels",
                {"panelIds": [each for each in settings.panels if each != "*"]},
                timeout=_CONNECT_LIMIT_S,
            )
            pause_s = _PAUSE_S
            await client.wait()
        except socketio.exceptions.SocketIOError as error:
            journal.debug("no socket of Mochat: {}", type(error).__name__)
        finally:
            await client.disconnect()
        await ctx.clock.sleep(pause_s)
        pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
