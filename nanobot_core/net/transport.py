"""An httpx transport that connects only to checked addresses, or through the owner's proxy.

The check is where connections are made (httpcore's network backend), not in front of the request:
the name is resolved once, every address is checked, and the connection goes to a checked address,
while httpx still uses the name for the ``Host`` header and for TLS.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cache, partial
from typing import TypeVar

import httpcore
import httpx

from nanobot_core.net.policy import NetworkPolicy, Resolver, TargetRefused, resolve_checked

_T = TypeVar("_T")
_PORTS = {"http": 80, "https": 443}
_CONNECTIONS = 20
_KEEPALIVE_S = 5.0


class _Body(httpx.AsyncByteStream):
    """The body of a response, with httpx's exceptions."""

    def __init__(self, response: httpcore.Response) -> None:
        self._response = response

    async def __aiter__(self) -> AsyncIterator[bytes]:
        with _httpx_errors():
            async for part in self._response.aiter_stream():
                yield part

    async def aclose(self) -> None:
        await self._response.aclose()


class GuardedTransport(httpx.AsyncBaseTransport):
    """Sends requests over HTTP/1.1 to allowed addresses, and checks each hop of a redirect.

    Only ``http`` and ``https`` URLs without user information are requested. Proxies of the
    environment are not used. With a proxy the name is resolved and checked here, and then resolved
    again by the proxy, which may get another answer and is in another network: the owner who sets a
    proxy trusts it to keep requests out of there.

    Args:
        policy: the allowed addresses.
        proxy: ``http://``, ``https://``, ``socks5://`` or ``socks5h://`` URL, with user and
            password if the proxy needs them; SOCKS needs ``httpx[socks]``. The proxy itself may
            have any address.
        resolver: ``None`` for the system's resolver.
        ssl_context: ``None`` for the TLS settings of httpx without the environment.

    Raises:
        ValueError: `proxy` is not such a URL.
    """

    def __init__(
        self,
        policy: NetworkPolicy,
        *,
        proxy: str | None = None,
        resolver: Resolver | None = None,
        ssl_context: ssl.SSLContext | None = None,
    ) -> None:
        self._policy = policy
        self._resolver = resolver
        self._has_proxy = proxy is not None
        context = ssl_context or default_ssl_context()
        backend = GuardedBackend(None if self._has_proxy else policy, resolver)
        self._pool = open_pool(backend, context, proxy)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send one request.

        Raises:
            TargetRefused: the URL or an address of its host is not allowed.
            httpx.TransportError: the request failed.
        """
        url = request.url
        self._check(url)
        if not isinstance(request.stream, AsyncIterable):
            msg = "the request has a body that cannot be sent by an async client"
            raise TypeError(msg)
        with _httpx_errors():
            if self._has_proxy:  # else it is checked where the connection is made
                # The spelling that the proxy gets.
                host, port = url.raw_host.decode("ascii"), url.port or _PORTS[url.scheme]
                await _resolve(host, port, self._policy, self._resolver)
            response = await self._pool.handle_async_request(
                httpcore.Request(
                    request.method,
                    httpcore.URL(
                        scheme=url.raw_scheme,
                        host=url.raw_host,
                        port=url.port,
                        target=url.raw_path,
                    ),
                    headers=request.headers.raw,
                    content=request.stream,
                    # Without the extensions that change where a request goes or what TLS checks.
                    extensions={"timeout": request.extensions.get("timeout", {})},
                )
            )
        return httpx.Response(
            response.status,
            headers=response.headers,
            stream=_Body(response),
            extensions=response.extensions,
        )

    @staticmethod
    def _check(url: httpx.URL) -> None:
        if url.scheme not in _PORTS:
            raise TargetRefused(str(url), "only http and https URLs are requested")
        if url.userinfo:
            raise TargetRefused(url.host, "URLs with a user or password are not requested")

    async def aclose(self) -> None:
        """Close all connections."""
        await self._pool.aclose()


def guarded_client(
    policy: NetworkPolicy,
    *,
    proxy: str | None = None,
    resolver: Resolver | None = None,
    ssl_context: ssl.SSLContext | None = None,
    timeout_s: float = 30.0,
) -> httpx.AsyncClient:
    """Return an httpx client that reaches only allowed addresses; close it after use.

    It does not follow redirects, because httpx reads their bodies without a limit; `fetch` follows
    them. It keeps cookies: use one client for requests that belong together.

    Args:
        policy: as for `GuardedTransport`, like the following three.
        proxy: see there.
        resolver: see there.
        ssl_context: see there.
        timeout_s: seconds for each connect, read and write; `FetchLimits` bounds the whole.

    Raises:
        ValueError: `proxy` is not the URL of a proxy.
    """
    transport = GuardedTransport(policy, proxy=proxy, resolver=resolver, ssl_context=ssl_context)
    return httpx.AsyncClient(
        transport=transport,
        trust_env=False,
        follow_redirects=False,
        timeout=timeout_s,
        # The encodings that `fetch` can unpack within its limits.
        headers={"Accept-Encoding": "gzip, deflate"},
    )


@cache
def default_ssl_context() -> ssl.SSLContext:
    """Made once: it reads the certificates from disk, and clients are made for single calls."""
    return httpx.create_ssl_context(trust_env=False)


@contextmanager
def _httpx_errors() -> Iterator[None]:
    """Turn httpcore's exceptions into those of httpx, which have the same names."""
    try:
        yield
    except (
        httpcore.NetworkError,
        httpcore.ProtocolError,
        httpcore.TimeoutException,
        httpcore.UnsupportedProtocol,
        httpcore.ProxyError,
    ) as error:
        kinds: tuple[type[Exception], ...] = type(error).__mro__
        names = (kind.__name__ for kind in kinds)
        found = next(kind for name in names if (kind := getattr(httpx, name, None)))
        raise found(str(error)) from error


class _GuardedStream(httpcore.AsyncNetworkStream):
    """Closes its connection when an operation is interrupted; httpcore does not always do that."""

    def __init__(self, stream: httpcore.AsyncNetworkStream) -> None:
        self._stream = stream

    async def read(
        self,
        max_bytes: int,
        timeout: float | None = None,  # noqa: ASYNC109 - httpcore's signature
    ) -> bytes:
        return await self._guard(self._stream.read(max_bytes, timeout))

    async def write(
        self,
        buffer: bytes,
        timeout: float | None = None,  # noqa: ASYNC109 - httpcore's signature
    ) -> None:
        await self._guard(self._stream.write(buffer, timeout))

    async def aclose(self) -> None:
        await self._stream.aclose()

    async def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,  # noqa: ASYNC109 - httpcore's signature
    ) -> httpcore.AsyncNetworkStream:
        secured = self._stream.start_tls(ssl_context, server_hostname, timeout)
        return _GuardedStream(await self._guard(secured))

    def get_extra_info(self, info: str) -> object:
        return self._stream.get_extra_info(info)

    async def _guard(self, operation: Awaitable[_T]) -> _T:
        try:
            return await operation
        except BaseException:
            await self._stream.aclose()
            raise


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
            httpcore.ConnectError: there is no address, or none answers.
            httpcore.ConnectTimeout: no connection within `timeout`.
        """
        try:
            async with asyncio.timeout(timeout):
                hosts = [host]
                if self._policy is not None:
                    hosts = await _resolve(host, port, self._policy, self._resolver)
                share_s = None if timeout is None else timeout / len(hosts)
                return await self._connect_first(hosts, port, share_s)
        except TimeoutError as error:
            raise httpcore.ConnectTimeout(f"no connection to {host} in time") from error

    async def _connect_first(
        self, hosts: list[str], port: int, share_s: float | None
    ) -> httpcore.AsyncNetworkStream:
        """Try one after another, each for an equal part of the time."""
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


async def _resolve(
    host: str, port: int, policy: NetworkPolicy, resolver: Resolver | None
) -> list[str]:
    try:
        found = await resolve_checked(host, port, policy, resolver=resolver)
    except OSError as error:
        reason = f"cannot resolve {host}: {error.strerror or error}"
        raise httpcore.ConnectError(reason) from error
    if not found:
        raise httpcore.ConnectError(f"{host} has no address")
    return [str(address) for address in found]


def open_pool(
    backend: GuardedBackend, context: ssl.SSLContext, proxy: str | None
) -> httpcore.AsyncConnectionPool:
    """Return the pool that makes and keeps the connections.

    Raises:
        ValueError: `proxy` is not the URL of a proxy.
    """
    make: Callable[..., httpcore.AsyncConnectionPool] = httpcore.AsyncConnectionPool
    if proxy is not None:
        parsed = _parse_proxy(proxy)
        is_socks = parsed.url.scheme.startswith("socks5")
        proxied = httpcore.AsyncSOCKSProxy if is_socks else httpcore.AsyncHTTPProxy
        make = partial(proxied, str(parsed.url), proxy_auth=parsed.raw_auth)
    return make(
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
