"""How connections are made: to addresses that were checked, or through the owner's proxy.

The check stands where connections are made (httpcore's network backend), not in front of the
request: the name is resolved once, every address is checked, and the connection goes to an address
that was checked, while httpx goes on using the name for the ``Host`` header and for TLS.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterable

import httpcore
import httpx

from nanobot_core.net.policy import NetworkPolicy
from nanobot_core.net.resolver import Resolver, resolve_checked

_CONNECTIONS = 20
_KEEPALIVE_S = 5.0


class _GuardedStream(httpcore.AsyncNetworkStream):
    """Closes its connection when work on it is cut off; httpcore leaves it open in some places."""

    def __init__(self, stream: httpcore.AsyncNetworkStream) -> None:
        self._stream = stream

    async def read(
        self,
        max_bytes: int,
        timeout: float | None = None,  # noqa: ASYNC109 - httpcore's signature
    ) -> bytes:
        try:
            return await self._stream.read(max_bytes, timeout)
        except BaseException:
            await self._stream.aclose()
            raise

    async def write(
        self,
        buffer: bytes,
        timeout: float | None = None,  # noqa: ASYNC109 - httpcore's signature
    ) -> None:
        try:
            await self._stream.write(buffer, timeout)
        except BaseException:
            await self._stream.aclose()
            raise

    async def aclose(self) -> None:
        await self._stream.aclose()

    async def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,  # noqa: ASYNC109 - httpcore's signature
    ) -> httpcore.AsyncNetworkStream:
        try:
            secured = await self._stream.start_tls(ssl_context, server_hostname, timeout)
        except BaseException:
            await self._stream.aclose()
            raise
        return _GuardedStream(secured)

    def get_extra_info(self, info: str) -> object:
        return self._stream.get_extra_info(info)


class GuardedBackend(httpcore.AsyncNetworkBackend):
    """Makes connections; with a policy, to checked addresses only."""

    def __init__(self, policy: NetworkPolicy | None, resolver: Resolver | None) -> None:
        self._policy = policy
        self._resolver = resolver
        self._network = httpcore.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109 - httpcore's signature
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        """Resolve, check and connect, all within `timeout` seconds.

        Raises:
            TargetRefused: an address of `host` is not allowed.
            httpcore.ConnectError: there is no address, or none of them answers.
            httpcore.ConnectTimeout: the time is up.
        """
        try:
            async with asyncio.timeout(timeout):
                hosts = await self._hosts(host, port)
                share_s = None if timeout is None else timeout / len(hosts)
                return await self._connect_first(hosts, port, share_s)
        except TimeoutError as error:
            raise httpcore.ConnectTimeout(f"no connection to {host} in time") from error

    async def _hosts(self, host: str, port: int) -> list[str]:
        if self._policy is None:
            return [host]
        try:
            found = await resolve_checked(host, port, self._policy, resolver=self._resolver)
        except OSError as error:
            reason = f"cannot resolve {host}: {error.strerror or error}"
            raise httpcore.ConnectError(reason) from error
        if not found:
            raise httpcore.ConnectError(f"{host} has no address")
        return [str(address) for address in found]

    async def _connect_first(
        self, hosts: list[str], port: int, share_s: float | None
    ) -> httpcore.AsyncNetworkStream:
        """Try one after another; each has an equal part of the time, so that none uses it up."""
        failure: Exception = httpcore.ConnectError("the name has no address")
        for host in hosts:
            try:
                return _GuardedStream(await self._network.connect_tcp(host, port, share_s))
            except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
                failure = error
        raise failure

    async def sleep(self, seconds: float) -> None:
        """Wait between attempts."""
        await asyncio.sleep(seconds)


def open_pool(
    backend: GuardedBackend, context: ssl.SSLContext, proxy: str | None
) -> httpcore.AsyncConnectionPool:
    """Return what makes and keeps the connections.

    Raises:
        ValueError: `proxy` is no URL of a proxy.
    """
    if proxy is None:
        return httpcore.AsyncConnectionPool(
            ssl_context=context,
            max_connections=_CONNECTIONS,
            keepalive_expiry=_KEEPALIVE_S,
            network_backend=backend,
        )
    parsed = _parse_proxy(proxy)
    is_socks = parsed.url.scheme.startswith("socks5")
    proxied = httpcore.AsyncSOCKSProxy if is_socks else httpcore.AsyncHTTPProxy
    return proxied(
        str(parsed.url),
        proxy_auth=parsed.raw_auth,
        ssl_context=context,
        max_connections=_CONNECTIONS,
        keepalive_expiry=_KEEPALIVE_S,
        network_backend=backend,
    )


def _parse_proxy(proxy: str) -> httpx.Proxy:
    # httpx would name the URL in its error, and with it the password.
    try:
        parsed = httpx.Proxy(proxy)
    except (ValueError, httpx.InvalidURL):
        parsed = None
    if parsed is None or not parsed.url.host:
        msg = "the proxy must be an http, https, socks5 or socks5h URL such as socks5://host:1080"
        raise ValueError(msg)
    return parsed
