"""Applications of plugins, found by path and loaded when they are first asked for."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import PlainTextResponse

from nanobot_http.health import OWN_SEGMENTS, UNAUTHORIZED_HEADERS

if TYPE_CHECKING:
    from starlette.types import Message, Receive, Scope, Send

    from nanobot_core import AsgiApp, GatewayAccess, Mount, PluginContext, Route
    from nanobot_http.caller import Access

RETRY_S = 30.0
"""Seconds until an application that could not be loaded is tried again."""


@dataclass(slots=True)
class _Slot:
    """An application, or when to try again to load it."""

    route: Route
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    app: AsgiApp | None = None
    retry_at_s: float = 0.0


def find_route(gateway: GatewayAccess, path: str) -> Route | None:
    """Return the mount that contains `path`, or ``None``."""
    # Before it is checked, a path can be anything, such as the asterisk of OPTIONS.
    if not path.startswith("/") or path.split("/", 2)[1] in OWN_SEGMENTS:
        return None
    for route in gateway.routes():
        prefix = route.mount.path.rstrip("/")
        if path == prefix or path.startswith(f"{prefix}/"):
            return route
    return None


def find_mount(gateway: GatewayAccess, path: str) -> Mount | None:
    """Return the mount that contains `path`, or ``None``; see `find_route`."""
    route = find_route(gateway, path)
    return route.mount if route else None


class PluginMounts:
    """An ASGI application that passes each request to the plugin that owns the mount.

    An exception of a plugin's application fails only that request; the log names the plugin.

    Args:
        gateway: knows the routes, which may change while the server runs.
        access: knows whose requests carry the secret.
    """

    def __init__(self, gateway: GatewayAccess, access: Access, ctx: PluginContext) -> None:
        self._gateway = gateway
        self._access = access
        self._clock = ctx.clock
        self._log = ctx.logger
        self._slots: dict[tuple[str, str], _Slot] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        route = find_route(self._gateway, scope["path"])
        if route is None:
            await PlainTextResponse("nothing is here", 404)(scope, receive, send)
        elif route.mount.access != "open" and not self._access.knows_secret(scope):
            await self._demand_secret(route)(scope, receive, send)
        elif (app := await self._load(route)) is None:
            answer = PlainTextResponse(
                "this part does not work now", 503, {"retry-after": f"{RETRY_S:.0f}"}
            )
            await answer(scope, receive, send)
        else:
            await self._run(route, app, scope, receive, send)

    def _demand_secret(self, route: Route) -> PlainTextResponse:
        if self._gateway.secret is None:
            self._log.warning(
                "{} of plugin '{}' was refused: no secret is set; set gateway.secret",
                route.mount.path,
                route.plugin,
            )
        return PlainTextResponse("the secret is missing or wrong", 401, UNAUTHORIZED_HEADERS)

    async def _load(self, route: Route) -> AsgiApp | None:
        """Return the route's application, or ``None`` if it cannot be loaded now."""
        slot = self._slot(route)
        async with slot.lock:
            if slot.app is not None or self._clock.monotonic_s() < slot.retry_at_s:
                return slot.app
            try:
                slot.app = await route.load()
            except (Exception, SystemExit, KeyboardInterrupt) as error:  # noqa: BLE001 - isolation point
                slot.retry_at_s = self._clock.monotonic_s() + RETRY_S
                self._complain(route, "could not be loaded", error)
            return slot.app

    def _slot(self, route: Route) -> _Slot:
        """Return the entry of `route`; a plugin that was loaded again has another route."""
        key = (route.plugin, route.mount.path)
        slot = self._slots.get(key)
        if slot is None or slot.route != route:
            known = {(one.plugin, one.mount.path) for one in self._gateway.routes()}
            self._slots = {at: kept for at, kept in self._slots.items() if at in known}
            slot = self._slots[key] = _Slot(route)
        return slot

    async def _run(
        self, route: Route, app: AsgiApp, scope: Scope, receive: Receive, send: Send
    ) -> None:
        has_begun = False

        async def watched_send(message: Message) -> None:
            nonlocal has_begun
            has_begun = True
            await send(message)

        root = scope.get("root_path", "") + route.mount.path.rstrip("/")
        try:
            await app({**scope, "root_path": root}, receive, watched_send)
        except ClientDisconnect:
            return
        except HTTPException:
            # Among them is the body that turned out too large; Starlette makes an answer of it.
            raise
        except (Exception, SystemExit, KeyboardInterrupt) as error:  # noqa: BLE001 - isolation point
            self._complain(route, "failed", error)
            if not has_begun:
                await PlainTextResponse("internal error", 500)(scope, receive, send)

    def _complain(self, route: Route, what: str, error: BaseException) -> None:
        self._log.opt(exception=error).error(
            "{} of plugin '{}' {}: {}", route.mount.path, route.plugin, what, type(error).__name__
        )
