"""Who makes a request, as far as it is proven, and whether they ask too often."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from starlette.exceptions import HTTPException
from starlette.responses import PlainTextResponse

if TYPE_CHECKING:
    from starlette.types import Message, Scope

    from nanobot_http.rate import ClientRates

EXTENSION = "nanobot.caller"
"""Key in ``scope["extensions"]`` of what a mounted application may call; see the README."""
_TOO_MANY = "too many requests"
_ANYONE = "anyone"


class Caller:
    """The client of one request.

    Only an open mount knows who has signed a request. So a client that has used up the allowance of
    anyone is still heard there, and gets 429 for every answer but that to a proven request.

    Args:
        rates: how often clients may ask.
        client: address of the client.
        mount: path of the open mount that is asked; empty where none is.
    """

    def __init__(self, rates: ClientRates, client: str, mount: str) -> None:
        self._rates = rates
        self._client = client
        self._mount = mount
        self._wait_s = rates.wait_s(client, _ANYONE)
        self._is_proven = False
        self._is_replaced = False

    @property
    def refusal(self) -> PlainTextResponse | None:
        """The answer to a request that nothing can prove any more, else ``None``."""
        if self._wait_s > 0 and not self._mount:
            return too_many(self._wait_s)
        return None

    def extended(self, scope: Scope) -> Scope:
        """Return `scope` with what an open mount may call."""
        if not self._mount:
            return scope
        extensions = {**(scope.get("extensions") or {}), EXTENSION: {"proven": self.proven}}
        return {**scope, "extensions": extensions}

    def proven(self) -> None:
        """Count the request as that of a client whose signature or secret was right.

        Raises:
            HTTPException: such a client asks too often; the answer is 429.
        """
        if self._is_proven:
            return
        self._is_proven = True
        if self._wait_s == 0:
            self._rates.give_back(self._client, _ANYONE)
        wait_s = self._rates.wait_s(self._client, f"proven {self._mount}")
        if wait_s > 0:
            raise HTTPException(429, _TOO_MANY, _after(wait_s))

    def answered(self, message: Message) -> Message:
        """Return a part of the answer, or of the 429 that takes its place."""
        if message["type"] == "http.response.start":
            self._is_replaced = self._wait_s > 0 and not self._is_proven
            if not self._is_replaced:
                return message
            after = _after(self._wait_s)["retry-after"].encode()
            headers = [(b"retry-after", after), (b"content-length", b"0")]
            return {"type": message["type"], "status": 429, "headers": headers}
        if self._is_replaced and message["type"] == "http.response.body":
            return {**message, "body": b""}
        return message


def too_many(wait_s: float) -> PlainTextResponse:
    """Return the answer to a client that asks too often."""
    return PlainTextResponse(_TOO_MANY, 429, _after(wait_s))


def _after(wait_s: float) -> dict[str, str]:
    return {"retry-after": str(math.ceil(wait_s))}
