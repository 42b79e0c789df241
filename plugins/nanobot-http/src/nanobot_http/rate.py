"""How many requests one client may make."""

from __future__ import annotations

import ipaddress
from collections import OrderedDict
from dataclasses import dataclass

from nanobot_core import Clock

MAX_CLIENTS = 4096
_MINUTE_S = 60.0


@dataclass(slots=True)
class _Bucket:
    tokens: float
    filled_at_s: float


class ClientRates:
    """A token bucket for each client and purpose; the longest unseen is forgotten when too many.

    Requests of one purpose use up nothing of another: what a browser sends for a foreign page
    comes from the same address as the programs of its machine.

    Args:
        per_minute: requests that a client may make a minute; as many at once after a pause.
        clock: source of time.
    """

    def __init__(self, per_minute: int, clock: Clock) -> None:
        self._per_minute = per_minute
        self._clock = clock
        self._buckets: OrderedDict[tuple[str, str], _Bucket] = OrderedDict()

    def __len__(self) -> int:
        return len(self._buckets)

    def wait_s(self, client: str, purpose: str) -> float:
        """Count a request; return 0 if it may go on, else the seconds until one may."""
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
        """Count a request no longer that was let on."""
        if bucket := self._buckets.get((_network(client), purpose)):
            bucket.tokens += 1


def _network(client: str) -> str:
    """Return what one client has for itself: an IPv4 address, a /64 of IPv6 (RFC 6177)."""
    try:
        address = ipaddress.ip_address(client.partition("%")[0])
    except ValueError:
        return client
    if address.version == 4:
        return str(address)
    return str(ipaddress.ip_network((int(address), 64), strict=False))
