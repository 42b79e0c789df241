"""The socket that the server listens on, and its limits."""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import socket

from pydantic import SecretStr

from nanobot_core import ConfigInvalid, ConfigProblem, NanobotError

MIN_SECRET_CHARS = 16
"""Shortest secret with which the server is opened to a network: 80 bits of base32."""
_BACKLOG = 128


class CannotListen(NanobotError):
    """The address that the owner has set cannot be used now."""

    def __init__(self, host: str, port: int, reason: str) -> None:
        self.host: str = host
        self.port: int = port
        self.reason: str = reason
        super().__init__(
            f"cannot serve HTTP on {host}:{port}: {reason}; "
            "end the program that has it, or set gateway.host and gateway.port"
        )


async def open_listener(host: str, port: int, secret: SecretStr | None) -> socket.socket:
    """Return a socket that listens on `host`.

    A name means its first address, IPv4 before IPv6.

    Raises:
        ConfigInvalid: other machines could connect, and the secret is missing or too short.
        CannotListen: the address is in use, unknown or not allowed.
    """
    try:
        found = await asyncio.get_running_loop().getaddrinfo(
            # An empty name means every address, as with the socket functions of C.
            host or None,
            port,
            type=socket.SOCK_STREAM,
            flags=socket.AI_PASSIVE,
        )
    except OSError as error:
        raise CannotListen(host, port, str(error)) from error
    family, _, _, _, address = min(found, key=lambda entry: entry[0] != socket.AF_INET)
    if not is_loopback(str(address[0])):
        _demand_secret(host, secret)
    try:
        # The address is literal, so that nothing is looked up here and the loop does not wait.
        return socket.create_server(
            (str(address[0]), port),
            family=family,
            backlog=_BACKLOG,
            dualstack_ipv6=address[0] == "::" and socket.has_dualstack_ipv6(),
        )
    except OSError as error:
        is_used = error.errno == errno.EADDRINUSE
        reason = "the address is in use" if is_used else error.strerror or str(error)
        raise CannotListen(host, port, reason) from error


def is_loopback(address: str) -> bool:
    """Whether only this machine can reach the IP address `address`."""
    return ipaddress.ip_address(address.partition("%")[0]).is_loopback


def listener_url(listener: socket.socket) -> str:
    """Return the base URL of a listening socket, with its actual port."""
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _demand_secret(host: str, secret: SecretStr | None) -> None:
    if secret is not None and len(secret.get_secret_value()) >= MIN_SECRET_CHARS:
        return
    problem = ConfigProblem(
        path="gateway.secret",
        expected=f"a secret of at least {MIN_SECRET_CHARS} characters, because gateway.host "
        f"'{host}' lets other machines connect",
        remedy="set gateway.secret, or set gateway.host to 127.0.0.1",
    )
    raise ConfigInvalid([problem])
