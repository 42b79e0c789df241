"""The HTTP client of a plugin: it reaches the hosts that the owner knows about."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from fnmatch import fnmatchcase
from ipaddress import ip_address
from typing import TYPE_CHECKING, Protocol

import httpx

from nanobot_core.errors import PluginRejected
from nanobot_core.net.transport import GuardedTransport, default_ssl_context

if TYPE_CHECKING:
    from nanobot_core.net.policy import NetworkPolicy, PluginHosts


class HostsOwner(Protocol):
    """What is needed of a `PluginContext`."""

    @property
    def id(self) -> str:
        """The plugin's id."""

    @property
    def network(self) -> NetworkPolicy:
        """The addresses that declared hosts may have."""

    @property
    def hosts(self) -> PluginHosts:
        """The hosts that the plugin may reach."""


class HostNotDeclared(PluginRejected):
    """A plugin asks for a host that neither its manifest nor its settings name.

    Attributes:
        host: the host.
    """

    def __init__(self, plugin: str, host: str) -> None:
        self.host: str = host
        remedy = "set its address in the settings of the plugin"
        if not _is_private(host):
            remedy = f"its author should add '{host}' to PluginFacts.hosts, or its owner {remedy}"
        super().__init__(
            plugin, f"it asks for the host '{host}', which its manifest does not declare", remedy
        )


def _is_private(host: str) -> bool:
    """Return whether only an owner can name a host, because it is not in the internet."""
    try:
        return not ip_address(host.strip("[]")).is_global
    except ValueError:
        return host == "localhost"


class _DeclaredTransport(httpx.AsyncBaseTransport):
    """Sends requests to declared hosts; the owner's own hosts may have any address.

    A proxy resolves names itself, often those that this machine does not know.
    """

    def __init__(self, ctx: HostsOwner, proxy: str | None, context: ssl.SSLContext) -> None:
        self._ctx = ctx
        self._configured = httpx.AsyncHTTPTransport(verify=context, proxy=proxy, trust_env=False)
        guarded = GuardedTransport(ctx.network, ssl_context=context)
        self._declared: httpx.AsyncBaseTransport = self._configured if proxy else guarded

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send one request, which may be a hop of a redirect.

        Raises:
            HostNotDeclared: its host is neither declared nor configured.
            TargetRefused: an address of a declared host is not public.
        """
        host = request.url.raw_host.decode("ascii").lower().rstrip(".")
        hosts = self._ctx.hosts
        if host in hosts.configured:
            return await self._configured.handle_async_request(request)
        if not any(fnmatchcase(host, each.lower()) for each in hosts.declared):
            raise HostNotDeclared(self._ctx.id, host)
        return await self._declared.handle_async_request(request)

    async def aclose(self) -> None:
        """Close all connections."""
        await self._declared.aclose()
        await self._configured.aclose()


def plugin_client(
    ctx: HostsOwner,
    *,
    proxy: str | None = None,
    headers: Mapping[str, str] | None = None,
    timeout: httpx.Timeout | float = 30.0,
    follow_redirects: bool = False,
    ssl_context: ssl.SSLContext | None = None,
) -> httpx.AsyncClient:
    """Return an httpx client that reaches only the hosts in `PluginContext.hosts`.

    Each hop of a redirect is checked. The addresses of declared hosts must be public, or opened by
    the owner; hosts that the owner has written into the plugin's settings can have any address. It
    does not read the environment. Close it after use.

    Args:
        ctx: the plugin's context.
        proxy: URL of a proxy, which may have any address; it resolves the names.
        headers: of each request.
        timeout: seconds for each connect, read and write.
        follow_redirects: whether redirects are followed.
        ssl_context: ``None`` for the TLS settings of httpx without the environment.

    Raises:
        ValueError: `proxy` is not the URL of a proxy.

    A request raises `HostNotDeclared` for any other host, and `TargetRefused` for an address that
    is not public.
    """
    transport = _DeclaredTransport(ctx, proxy, ssl_context or default_ssl_context())
    return httpx.AsyncClient(
        transport=transport,
        trust_env=False,
        headers=dict(headers or {}),
        timeout=timeout,
        follow_redirects=follow_redirects,
    )
