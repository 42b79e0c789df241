"""From a host name to addresses that may be connected to."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from ipaddress import ip_address
from typing import TypeAlias

from nanobot_core.net.policy import Address, NetworkPolicy, TargetRefused

Resolver: TypeAlias = Callable[[str, int], Awaitable[tuple[Address, ...]]]
"""Gives the addresses of a host in the order in which to try them; raises `OSError` for none."""


async def resolve_checked(
    host: str, port: int, policy: NetworkPolicy, *, resolver: Resolver | None = None
) -> tuple[Address, ...]:
    """Return the addresses of `host`, all of which `policy` allows.

    Whoever connects must connect to one of these addresses and keep `host` for the ``Host`` header
    and the TLS server name; to resolve the name once more would let another answer in.

    Args:
        host: name or address in any spelling that the system understands (``0x7f.1``).
        port: port that will be connected to.
        policy: what may be reached.
        resolver: how names become addresses; the system's resolver where it is not given.

    Raises:
        TargetRefused: one of the addresses is not allowed. A name with a public and a private
            address is refused as a whole.
        OSError: the name has no address, or cannot be looked up now.

    Cancellation:
        Is passed on at once; a look-up under way ends by itself in its thread.
    """
    if not host:
        raise TargetRefused(host, "it is no host")
    addresses = await (resolver or _system_resolver)(host, port)
    for address in addresses:
        if not policy.is_allowed(address):
            raise TargetRefused.at(host, address)
    return addresses


async def _system_resolver(host: str, port: int) -> tuple[Address, ...]:
    loop = asyncio.get_running_loop()
    try:
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except ValueError as error:  # no host name: a label too long, NUL, half a character
        raise socket.gaierror(socket.EAI_NONAME, "it is no host name") from error
    return tuple(dict.fromkeys(ip_address(item[4][0]) for item in found))
