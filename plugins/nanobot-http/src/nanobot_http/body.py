"""How large a request body may be."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.responses import PlainTextResponse

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

_TOO_LARGE = "the body is too large"


class BodyLimit:
    """Answers 413 to a body that says it is too large, and to one that turns out to be.

    Starlette's middleware of this kind ends the application's answer with an exception of its own
    private class, which `PluginMounts` could not tell from a fault of the plugin.

    Args:
        app: reads the body, if it wants to.
        max_bytes: largest body.
    """

    def __init__(self, app: ASGIApp, max_bytes: int) -> None:
        self._app = app
        self._max_bytes = max_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        size = 0

        async def counted_receive() -> Message:
            nonlocal size
            message = await receive()
            size += len(message.get("body", b""))
            if size > self._max_bytes:
                raise HTTPException(413, _TOO_LARGE)
            return message

        # That the length is a number, and not a long one, has been checked by h11.
        if int(Headers(scope=scope).get("content-length", "0")) > self._max_bytes:
            await PlainTextResponse(_TOO_LARGE, 413)(scope, receive, send)
        else:
            await self._app(scope, counted_receive, send)
