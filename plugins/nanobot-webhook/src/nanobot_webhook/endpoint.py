"""What the ASGI applications for messages and for events have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send


class Endpoint(ABC):
    """Answers each request by one response."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, unless its sender has gone."""
        try:
            response = await self.answer(Request(scope, receive))
        except ClientDisconnect:
            return
        await response(scope, receive, send)

    @abstractmethod
    async def answer(self, request: Request) -> Response:
        """Return the response to one request."""


def count_as_proven(scope: Scope) -> None:
    """Report to nanobot-http that the sender is proven; the request then does not count."""
    caller = (scope.get("extensions") or {}).get("nanobot.caller")
    if caller is not None:
        caller["proven"]()


def refuse(status: int, reason: str, headers: dict[str, str] | None = None) -> Response:
    """Return an error whose reason the sender may read."""
    return JSONResponse({"error": reason}, status, headers)
