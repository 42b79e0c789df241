"""Who makes a request, what they may see, and whether they send too many."""

from __future__ import annotations

import hmac
import ipaddress
import math
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.responses import PlainTextResponse

from nanobot_core import Clock

if TYPE_CHECKING:
    from starlette.types import Message, Scope

    from nanobot_core import GatewayAccess


MAX_CLIENTS = 4096
_MINUTE_S = 60.0


@dataclass(slots=True)
class _Bucket:
    tokens: float
    filled_at_s: float


class ClientRates:
    """A token bucket for each client and purpose; the least recent ones are dropped.

    Each purpose has an allowance of its own: what a browser sends for a foreign page
    comes from the same address as the programs of its machine.

    Args:
        per_minute: requests that a client may make a minute; as many at once after a pause.
    """

    def __init__(self, per_minute: int, clock: Clock) -> None:
        self._per_minute = per_minute
        self._clock = clock
        self._buckets: OrderedDict[tuple[str, str], _Bucket] = OrderedDict()

    def __len__(self) -> int:
        return len(self._buckets)

    def wait_s(self, client: str, purpose: str) -> float:
        """Count a request; return 0 if it is allowed, else the seconds until one is."""
        key, now_s = (_network(client), purpose), self._clock.monotonic_s()
        bucket = self._buckets.setdefault(key, _Bucket(float(self._per_minute), now_s))
        self._buckets.move_to_end(key)
        if len(self._buckets) > MAX_CLIENTS:
            self._buckets.popitem(last=False)
        gained = (now_s - bucket.filled_at_s) * self._per_minute / _MINUTE_S
        bucket.tokens = min(bucket.tokens + gained, float(self._per_minute))
        bucket.filled_at_s = now_s
        if bucket.tokens < 1:
            return (1 - bucket.tokens) * _MINUTE_S / self._per_minute
        bucket.tokens -= 1
        return 0.0

    def give_back(self, client: str, purpose: str) -> None:
        """Stop counting a request that was allowed."""
        if bucket := self._buckets.get((_network(client), purpose)):
            bucket.tokens += 1


def _network(client: str) -> str:
    """Return the network of one client: an IPv4 address, a /64 of IPv6 (RFC 6177)."""
    try:
        address = ipaddress.ip_address(client.partition("%")[0])
    except ValueError:
        return client
    if address.version == 4:
        return str(address)
    return str(ipaddress.ip_network((int(address), 64), strict=False))


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
        mount: path of the open mount; empty if there is none.
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
        """The response for a caller that can no longer authenticate, else ``None``."""
        if self._wait_s > 0 and not self._mount:
            return too_many(self._wait_s)
        return None

    def extended(self, scope: Scope) -> Scope:
        """Return `scope` with the functions that an open mount may call."""
        if not self._mount:
            return scope
        extensions = {**(scope.get("extensions") or {}), EXTENSION: {"proven": self.proven}}
        return {**scope, "extensions": extensions}

    def proven(self) -> None:
        """Count the request as one with a correct signature or secret.

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
        """Return a part of the response, or of the 429 that replaces it."""
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
    """Return the response for a client that sends too many requests."""
    return PlainTextResponse(_TOO_MANY, 429, _after(wait_s))


def _after(wait_s: float) -> dict[str, str]:
    return {"retry-after": str(math.ceil(wait_s))}


_FORWARDED = ("forwarded", "x-forwarded-for")


class Access:
    """Decides by the owner's secret, which may change while the server runs.

    Args:
        gateway: knows the secret.
        is_private: only this machine can connect, and no proxy of the owner connects for others.
    """

    def __init__(self, gateway: GatewayAccess, *, is_private: bool) -> None:
        self._gateway = gateway
        self._is_private = is_private

    def knows_secret(self, scope: Scope) -> bool:
        """Whether the request has the secret (``Authorization: Bearer``, RFC 6750)."""
        secret = self._gateway.secret
        scheme, _, token = Headers(scope=scope).get("authorization", "").partition(" ")
        if secret is None or scheme.lower() != "bearer":
            return False
        return hmac.compare_digest(token.strip().encode(), secret.get_secret_value().encode())

    def may_look(self, scope: Scope) -> bool:
        """Whether the request may see the gateway's state in detail."""
        headers = Headers(scope=scope)
        is_direct = not any(name in headers for name in _FORWARDED)
        return (self._is_private and is_direct) or self.knows_secret(scope)
