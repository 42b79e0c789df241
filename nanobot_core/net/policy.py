"""NetworkPolicy: which addresses a model's requests may reach, and resolving names to them."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from dataclasses import field
from ipaddress import (
    IPv4Address,
    IPv4Network,
    IPv6Address,
    IPv6Network,
    ip_address,
    ip_network,
)
from typing import TypeAlias

from nanobot_core.errors import ToolDenied
from nanobot_core.record import dataclass

Address: TypeAlias = IPv4Address | IPv6Address
_Network: TypeAlias = IPv4Network | IPv6Network

# Our own tables, because those of `ipaddress` changed between patch releases of Python. Sources:
# the IANA registries of special-purpose addresses for IPv4 and IPv6, state of 2026.
_REFUSED_V4 = tuple(
    IPv4Network(text)
    for text in (
        "0.0.0.0/8",  # this network
        "10.0.0.0/8",  # private
        "100.64.0.0/10",  # shared by carriers
        "127.0.0.0/8",  # loopback
        "169.254.0.0/16",  # link-local
        "172.16.0.0/12",  # private
        "192.0.0.0/24",  # protocol assignments
        "192.0.2.0/24",  # documentation
        "192.31.196.0/24",  # AS112
        "192.52.193.0/24",  # multicast tunnels
        "192.88.99.0/24",  # 6to4 relays
        "192.168.0.0/16",  # private
        "192.175.48.0/24",  # AS112
        "198.18.0.0/15",  # benchmarks
        "198.51.100.0/24",  # documentation
        "203.0.113.0/24",  # documentation
        "224.0.0.0/4",  # multicast
        "240.0.0.0/4",  # reserved and broadcast
    )
)
_GLOBAL_V6 = IPv6Network("2000::/3")
"""The only IPv6 space from which addresses are given out; the rest is special or not in use."""

_REFUSED_V6 = tuple(
    IPv6Network(text)
    for text in (
        "2001::/23",  # protocol assignments: Teredo, benchmarks, ORCHID, multicast tunnels
        "2001:db8::/32",  # documentation
        "2620:4f:8000::/48",  # AS112
        "3ffe::/16",  # the former 6bone
        "3fff::/20",  # documentation
    )
)
_METADATA = frozenset(
    ip_address(text)
    for text in (
        "100.100.100.200",  # Alibaba Cloud
        "168.63.129.16",  # Azure's wire server, in public space
        "169.254.169.254",  # AWS, Azure, Google Cloud, OpenStack, …
        "169.254.170.2",  # AWS ECS task credentials
        "169.254.170.23",  # AWS EKS pod identity
        "192.0.0.192",  # Oracle Cloud
        "fd00:42::42",  # Scaleway
        "fd00:ec2::23",  # AWS EKS pod identity
        "fd00:ec2::254",  # AWS
        "fd20:ce::254",  # Google Cloud
    )
)
_SHOWN_CHARS = 200
_NAT64 = IPv6Network("64:ff9b::/96")
_ISATAP = frozenset({0x00005EFE, 0x02005EFE})
"""Begins the interface part of an address that ends in an IPv4 address (RFC 5214, section 6.1)."""


Resolver: TypeAlias = Callable[[str, int], Awaitable[tuple[Address, ...]]]
"""Returns the addresses of a host in the order in which to try them; `OSError` if it has none."""


class TargetRefused(ToolDenied):
    """A request would have left the public network, or is of a refused kind.

    Attributes:
        target: the host, or the URL if no host was examined.
        address: the refused address, or ``None`` if another rule refused the target.
        reason: why.
    """

    def __init__(self, target: str, reason: str, *, address: str | None = None) -> None:
        self.target: str = target
        self.address: str | None = address
        self.reason: str = reason
        super().__init__(f"'{target[:_SHOWN_CHARS]}' is out of reach: {reason}")

    @classmethod
    def at(cls, host: str, address: Address) -> TargetRefused:
        """Return the refusal of an address that the policy does not allow."""
        return cls(
            host,
            f"its address {address} is not public; the owner can open networks "
            "with tools.ssrf_whitelist",
            address=str(address),
        )


@dataclass(frozen=True, slots=True)
class PluginHosts:
    """The hosts that a plugin may reach with `plugin_client`.

    Attributes:
        declared: host names and patterns such as ``*.example.org``, from its manifest.
        configured: hosts of addresses that the owner has written into its settings.
    """

    declared: tuple[str, ...] = ()
    configured: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class NetworkPolicy:
    """The targets of guarded requests: public unicast addresses, and those that the owner opened.

    Refused are loopback, private, link-local, carrier, multicast, reserved, benchmark,
    documentation, unspecified and broadcast addresses, and the metadata services of clouds. An
    address that contains an IPv4 address (IPv4-mapped, 6to4, NAT64's ``64:ff9b::/96``, ISATAP) is
    judged by that one; forms without use in the public network (IPv4-compatible, Teredo, NAT64's
    local prefix, site-local) are always refused.

    Attributes:
        allowed: networks in CIDR form that the owner opened although they are not public. A
            metadata service is opened only by its own address, not by a network around it.

    Raises:
        ValueError: an entry of `allowed` is not a network.
    """

    allowed: tuple[str, ...] = ()
    _networks: tuple[_Network, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_networks", tuple(_parse_network(text) for text in self.allowed))

    def is_allowed(self, address: Address | str) -> bool:
        """Whether a connection to `address` may be made; false for text that is not an address."""
        try:
            found = ip_address(address) if isinstance(address, str) else address
        except ValueError:
            return False
        # Without the zone, so that an address in a table is found with any interface.
        plain = IPv6Address(int(found)) if isinstance(found, IPv6Address) else found
        return self._is_open(plain) or self._is_public(plain)

    def _is_open(self, address: Address) -> bool:
        return any(
            address in network
            for network in self._networks
            if address not in _METADATA or network.num_addresses == 1
        )

    def _is_public(self, address: Address) -> bool:
        if isinstance(address, IPv4Address):
            return address not in _METADATA and not any(address in part for part in _REFUSED_V4)
        if (carried := _judged_by(address)) is not None:
            return self.is_allowed(carried)
        if address not in _GLOBAL_V6 or any(address in part for part in _REFUSED_V6):
            return False
        inner = int(address) >> 32 & 0xFFFFFFFF
        return inner not in _ISATAP or self.is_allowed(_last_32_bits(address))


def _judged_by(address: IPv6Address) -> IPv4Address | None:
    """Return the IPv4 address of a form that is only another way to write it."""
    if address in _NAT64:
        return _last_32_bits(address)
    return address.ipv4_mapped or address.sixtofour


def _last_32_bits(address: IPv6Address) -> IPv4Address:
    return IPv4Address(int(address) & 0xFFFFFFFF)


def _parse_network(text: str) -> _Network:
    try:
        return ip_network(text, strict=False)
    except ValueError as error:
        msg = f"'{text}' is not a network; write it as 10.1.0.0/16 or fd12::/32"
        raise ValueError(msg) from error


async def resolve_checked(
    host: str, port: int, policy: NetworkPolicy, *, resolver: Resolver | None = None
) -> tuple[Address, ...]:
    """Return the addresses of `host`, all of which `policy` allows.

    Connect to one of these addresses, and keep `host` for the ``Host`` header and the TLS server
    name: resolving the name again may give another answer.

    Args:
        host: name or address in any spelling that the system understands (``0x7f.1``).
        port: port to connect to.
        policy: the allowed addresses.
        resolver: ``None`` for the system's resolver.

    Raises:
        TargetRefused: one of the addresses is not allowed. A name with a public and a private
            address is refused as a whole.
        OSError: the name has no address, or cannot be looked up now.

    Cancellation:
        Passed on at once; a look-up under way ends by itself in its thread.
    """
    if not host:
        raise TargetRefused(host, "it is not a host")
    addresses = await (resolver or _system_resolver)(host, port)
    for address in addresses:
        if not policy.is_allowed(address):
            raise TargetRefused.at(host, address)
    return addresses


async def _system_resolver(host: str, port: int) -> tuple[Address, ...]:
    loop = asyncio.get_running_loop()
    try:
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except ValueError as error:  # not a host name: a long label, NUL, half a character
        raise socket.gaierror(socket.EAI_NONAME, "it is not a host name") from error
    return tuple(dict.fromkeys(ip_address(item[4][0]) for item in found))
