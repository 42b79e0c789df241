"""An httpx transport that connects to checked addresses only."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterable, AsyncIterator, Iterator
from contextlib import contextmanager
from functools import cache

import httpcore
import httpx

from nanobot_core.net.connection import GuardedBackend, open_pool
from nanobot_core.net.policy import NetworkPolicy, TargetRefused
from nanobot_core.net.resolver import Resolver, resolve_checked

_PORTS = {"http": 80, "https": 443}


class _Body(httpx.AsyncByteStream):
    """The body as httpx wants it, with httpx's exceptions."""

    def __init__(self, response: httpcore.Response) -> None:
        self._response = response

    async def __aiter__(self) -> AsyncIterator[bytes]:
        with _httpx_errors():
            async for part in self._response.aiter_stream():
                yield part

    async def aclose(self) -> None:
        await self._response.aclose()


class GuardedTransport(httpx.AsyncBaseTransport):
    """Sends requests over HTTP/1.1 to what a policy allows, each hop of a redirect anew.

    Only ``http`` and ``https`` URLs without user information are requested. Proxies of the
    environment are not used. With a proxy the name is resolved and checked here, and then resolved
    again by the proxy, which may get another answer and stands in another network: the owner who
    sets a proxy trusts it to keep requests out of there.

    Args:
        policy: what may be reached.
        proxy: ``http://``, ``https://``, ``socks5://`` or ``socks5h://`` URL, with user and
            password where the proxy asks for them; SOCKS needs ``httpx[socks]``. The proxy itself
            may stand anywhere.
        resolver: how names become addresses; the system's resolver where it is not given.
        ssl_context: TLS settings; those of httpx without the environment where it is not given.

    Raises:
        ValueError: `proxy` is none of these URLs.
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
        context = ssl_context or _default_ssl_context()
        backend = GuardedBackend(None if self._has_proxy else policy, resolver)
        self._pool = open_pool(backend, context, proxy)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send one request.

        Raises:
            TargetRefused: the URL or an address of its host is not allowed.
            httpx.TransportError: the request failed.
        """
        url = request.url
        await self._check(url)
        if not isinstance(request.stream, AsyncIterable):
            msg = "the request has a body that cannot be sent by an async client"
            raise TypeError(msg)
        with _httpx_errors():
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

    async def _check(self, url: httpx.URL) -> None:
        if url.scheme not in _PORTS:
            raise TargetRefused(str(url), "only http and https URLs are requested")
        if url.userinfo:
            raise TargetRefused(url.host, "URLs with a user or password are not requested")
        if not self._has_proxy:
            return  # checked where the connection is made
        try:
            port = url.port or _PORTS[url.scheme]
            host = url.raw_host.decode("ascii")  # the spelling that the proxy gets
            await resolve_checked(host, port, self._policy, resolver=self._resolver)
        except OSError as error:
            reason = f"cannot resolve {url.host}: {error.strerror or error}"
            raise httpx.ConnectError(reason) from error

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
    """Return an httpx client that reaches only what `policy` allows; close it after use.

    It follows no redirects by itself, because httpx reads their bodies without a limit; `fetch`
    follows them. It keeps the cookies that it is given: take one client for what belongs together.

    Args:
        policy: what may be reached.
        proxy: see `GuardedTransport`, likewise the following two.
        resolver: how names become addresses.
        ssl_context: TLS settings.
        timeout_s: seconds for each connect, read and write; `FetchLimits` bounds the whole.

    Raises:
        ValueError: `proxy` is no URL of a proxy.
    """
    transport = GuardedTransport(policy, proxy=proxy, resolver=resolver, ssl_context=ssl_context)
    return httpx.AsyncClient(
        transport=transport,
        trust_env=False,
        follow_redirects=False,
        timeout=timeout_s,
        # What `fetch` can unpack within its limits.
        headers={"Accept-Encoding": "gzip, deflate"},
    )


@cache
def _default_ssl_context() -> ssl.SSLContext:
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
