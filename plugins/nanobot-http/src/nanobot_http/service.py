"""The service that the gateway runs: one server for all plugins."""

from __future__ import annotations

import asyncio
import socket
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import uvicorn
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.routing import Mount

from nanobot_core import PluginLoadFailed, Service
from nanobot_http.caller import Access
from nanobot_http.connection import MAX_HEAD_BYTES, BodyLimit, BoundedConnection
from nanobot_http.gate import Gate, KnownHosts
from nanobot_http.health import HealthRoutes, RequestCounts
from nanobot_http.listener import is_loopback, listener_url, open_listener
from nanobot_http.mounts import PluginMounts, find_mount
from nanobot_http.settings import HttpSettings

if TYPE_CHECKING:
    from nanobot_core import GatewayAccess, PluginContext

ADDRESS_FILE = "address"
"""File in the plugin's data folder that holds the base URL while the server runs."""
_LOOPBACK_NAMES = ("localhost", "127.0.0.1", "[::1]")
_DRAIN_S = 5


class HttpService(Service):
    """Serves the health routes and what plugins mount, on ``gateway.host:gateway.port``.

    Args:
        ctx: the plugin's context; its gateway names the address, the secret and the routes.
    """

    def __init__(self, ctx: PluginContext) -> None:
        self._ctx = ctx
        self._log = ctx.logger
        self._counts = RequestCounts()
        self._listening = asyncio.Event()
        self._url = ""

    async def run(self) -> None:
        """Serve until cancelled.

        Raises:
            ConfigInvalid: other machines could connect, and the secret is missing or too short.
            CannotListen: the address cannot be used now.

        Cancellation:
            Requests under way get five seconds to end; then they are cancelled.
        """
        gateway = self._ctx.gateway
        if gateway is None:
            raise PluginLoadFailed(self._ctx.id, "the HTTP server runs in a gateway only")
        host, port = gateway.address
        listener = await open_listener(host, port, gateway.secret)
        try:
            server = _Server(self._config(gateway, listener))
            self._url = listener_url(listener)
            await self._write_address()
            self._log.info("listening on {}", self._url)
            await server.serve_until_cancelled(listener, self._listening)
        finally:
            self._listening.clear()
            listener.close()
            with suppress(OSError):
                await asyncio.to_thread(self._address_file.unlink, missing_ok=True)

    async def url(self) -> str:
        """Wait until the server accepts connections, and return its base URL."""
        await self._listening.wait()
        return self._url

    @property
    def _address_file(self) -> Path:
        return self._ctx.data_dir / ADDRESS_FILE

    async def _write_address(self) -> None:
        try:
            await asyncio.to_thread(self._address_file.write_text, f"{self._url}\n", "utf-8")
        except OSError as error:
            self._log.warning("cannot write {}: {}", self._address_file, error)

    def _config(self, gateway: GatewayAccess, listener: socket.socket) -> uvicorn.Config:
        settings = self._ctx.settings(HttpSettings)
        return uvicorn.Config(
            self._app(gateway, settings, str(listener.getsockname()[0])),
            http=BoundedConnection,
            # Nothing here speaks WebSocket yet, and the checks above are made for requests.
            ws="none",
            lifespan="off",
            interface="asgi3",
            log_config=None,
            log_level="error",
            access_log=False,
            server_header=False,
            proxy_headers=bool(settings.trusted_proxies),
            forwarded_allow_ips=list(settings.trusted_proxies),
            h11_max_incomplete_event_size=MAX_HEAD_BYTES,
            timeout_graceful_shutdown=_DRAIN_S,
        )

    def _app(self, gateway: GatewayAccess, settings: HttpSettings, bound: str) -> Starlette:
        access = Access(gateway, is_private=is_loopback(bound) and not settings.trusted_proxies)
        health = HealthRoutes(gateway, access, self._counts, self._ctx.clock)
        hosts = [*_LOOPBACK_NAMES, *settings.allowed_hosts]
        # The name that the owner has given, and the address behind it.
        hosts += [gateway.address[0], f"[{bound}]" if ":" in bound else bound]
        return Starlette(
            routes=[*health.routes(), Mount("", app=PluginMounts(gateway, access, self._ctx))],
            middleware=[
                Middleware(
                    Gate, self._ctx, settings, self._counts, access, partial(find_mount, gateway)
                ),
                Middleware(KnownHosts, hosts),
                Middleware(BodyLimit, settings.max_body_bytes, partial(find_mount, gateway)),
            ],
        )


class _Server(uvicorn.Server):
    """uvicorn inside the gateway's event loop.

    Its own `serve` is not used: it handles SIGINT and SIGTERM itself, which are the gateway's,
    and leaves the socket and the connections open when it is cancelled.
    """

    async def main_loop(self) -> None:
        """Update the date of responses; uvicorn's own loop wakes up ten times a second."""
        while True:
            await self.on_tick(0)
            await asyncio.sleep(1)

    async def serve_until_cancelled(
        self, listener: socket.socket, listening: asyncio.Event
    ) -> None:
        """Serve on `listener`, and set `listening` when connections are accepted."""
        self.config.load()
        self.lifespan = self.config.lifespan_class(self.config)
        await self.startup(sockets=[listener])
        listening.set()
        try:
            await self.main_loop()
        finally:
            await self.shutdown(sockets=[listener])
            for connection in list(self.server_state.connections):
                connection.transport.abort()
            if self.server_state.tasks:
                await asyncio.wait(self.server_state.tasks, timeout=_DRAIN_S)
