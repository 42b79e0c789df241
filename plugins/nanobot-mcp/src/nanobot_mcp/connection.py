"""Connects one server, reconnects it when it fails, and shares the connection between calls."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Literal, TypeAlias

import anyio
import anyio.to_thread

from nanobot_core import ToolFailed
from nanobot_mcp.trouble import Trouble, describe_failure

if TYPE_CHECKING:
    from httpx2 import Auth

    from nanobot_core import PluginContext
    from nanobot_mcp.link import Link
    from nanobot_mcp.offers import Offer
    from nanobot_mcp.process import Command, ServerLog
    from nanobot_mcp.settings import McpSettings, ServerSettings

FIRST_PAUSE_S = 1.0
LONGEST_PAUSE_S = 60.0
CLOSING_S = 4.0
"""Seconds to close a connection. The host's limit for ending a task is longer."""

_SDK = ("mcp_types", "mcp_types.methods", "mcp", "nanobot_mcp.link")
"""Imported one at a time, so that nanobot can stop in between: together they take a second."""

State: TypeAlias = Literal["idle", "connecting", "connected", "waiting", "stopped"]
MakeAuth: TypeAlias = "Callable[[], Auth | None]"
OnOffers: TypeAlias = Callable[[str, "tuple[Offer, ...]", tuple[str, ...]], None]


class ServerUnavailable(ToolFailed):
    """A server cannot be reached."""

    def __init__(self, title: str, reason: str) -> None:
        self.title: str = title
        self.reason: str = reason
        super().__init__(f"{title} cannot be reached: {reason}")


@dataclass(frozen=True, slots=True)
class ConnectionPorts:
    """What a connection uses.

    Attributes:
        limits: settings that apply to all servers.
        log: receives what the server writes to standard error, and its log messages.
        make_auth: returns the authentication for a remote server, or ``None``.
        on_offers: called after each listing, with the offers and with notes about omitted ones.
        title: name of the server in messages; ``MCP server '<name>'`` if empty.
        command: program to start instead of the configured one, or ``None``.
    """

    ctx: PluginContext
    limits: McpSettings
    log: ServerLog
    make_auth: MakeAuth
    on_offers: OnOffers
    title: str = ""
    command: Command | None = None


class Connection:
    """The connection to one server, over all its attempts.

    The task that enters one of anyio's scopes must also leave it. So one task opens and closes all
    connections of a server, and does nothing else.

    Attributes:
        title: the server's name in messages.
        failure: why the last attempt failed or the last connection ended; empty if connected.
    """

    def __init__(self, name: str, server: ServerSettings, ports: ConnectionPorts) -> None:
        self.name = name
        self.server = server
        self.title: str = ports.title or f"MCP server '{name}'"
        self.state: State = "idle"
        self.failure: str = ""
        self._reported = ""
        self._ports = ports
        self._log = ports.ctx.logger
        self._link: Link | None = None
        self._scope: anyio.CancelScope | None = None
        self._is_closing = False
        self._pause_s = FIRST_PAUSE_S
        self._wanted = asyncio.Event()
        self._outcome = asyncio.Event()
        self._stopped = asyncio.Event()

    def open(self) -> None:
        """Start to connect, unless that has been done."""
        if self.state == "idle":
            self.state = "connecting"
            self._ports.ctx.spawn(self._run(), name=f"server {self.name}")

    async def first_outcome(self) -> None:
        """Return when the current attempt has succeeded or failed; at once if connected."""
        if not self._usable():
            await self._outcome.wait()

    async def link(self) -> Link:
        """Return the open connection; connect first if necessary.

        Raises:
            ServerUnavailable: the attempt failed. The next call tries again.
        """
        self.open()
        if self._link is None or not self._usable():
            outcome = self._outcome
            self._wanted.set()
            if self.state != "stopped":
                await outcome.wait()
        if self._link is None or not self._usable():
            raise ServerUnavailable(self.title, self.failure or "nanobot is stopping")
        return self._link

    async def close(self) -> None:
        """Close the connection, and return when its task has ended."""
        if self.state in ("idle", "stopped"):
            self.state = "stopped"
            return
        self._is_closing = True
        self._wanted.set()
        if self._link is not None:
            self._link.ended.set()
        elif self._scope is not None:
            self._scope.cancel()
        await self._stopped.wait()

    def _usable(self) -> bool:
        return self._link is not None and not self._link.ended.is_set()

    async def _run(self) -> None:
        try:
            for module in _SDK:
                if not self._is_closing:
                    await anyio.to_thread.run_sync(import_module, module)
            while not self._is_closing:
                await self._attempt()
                if not self._is_closing:
                    self.state = "waiting"
                    await self._pause()
        finally:
            self.state = "stopped"
            self._link = None
            self._outcome.set()
            self._stopped.set()

    async def _attempt(self) -> None:
        """Connect, wait until the connection ends, and store the reason in `failure`."""
        self.state = "connecting"
        self._wanted.clear()
        self._scope = anyio.CancelScope()
        trouble = Trouble()
        outcome = self._outcome
        error: BaseException | None = None
        try:
            with self._scope:
                await self._stay_connected(self._scope, trouble)
            if self._scope.cancelled_caught and not self._is_closing and self._link is None:
                trouble.note(f"it did not answer within {self.server.connect_timeout_s:g} seconds")
        except Exception as caught:  # noqa: BLE001 - isolation point: the SDK and its transports
            error = caught
        finally:
            self._link, self._scope = None, None
        if not self._is_closing:
            former, self.failure = self._reported, trouble.sentence(error)
            self._reported = self.failure
            # A server that stays unreachable is tried every minute; one warning is enough.
            level = "DEBUG" if self.failure == former else "WARNING"
            self._log.log(level, "{} is not connected: {}", self.title, self.failure)
        if outcome is self._outcome:
            # It was never connected. Calls after a lost connection wait for the next attempt.
            self._finish_attempt()

    async def _stay_connected(self, scope: anyio.CancelScope, trouble: Trouble) -> None:
        from mcp import MCPError
        from mcp_types import CONNECTION_CLOSED

        from nanobot_mcp.link import open_link
        from nanobot_mcp.listing import read_offers

        scope.deadline = anyio.current_time() + self.server.connect_timeout_s
        ports = self._ports
        async with open_link(self.server, ports, trouble) as link:
            try:
                offers = await read_offers(link.client)
            except MCPError as error:
                if error.code != CONNECTION_CLOSED:
                    # Closer to the cause than the exit code of the process, which ends now.
                    trouble.note(describe_failure(error))
                raise
            scope.deadline = math.inf
            self._link = link
            self.state, self.failure, self._reported = "connected", "", ""
            self._pause_s = FIRST_PAUSE_S
            ports.on_offers(self.name, *offers)
            self._finish_attempt()
            async with anyio.create_task_group() as group:
                group.start_soon(link.follow_changes)
                group.start_soon(self._read_again, link)
                await link.ended.wait()
                group.cancel_scope.cancel()
            self.state = "connecting"
            scope.deadline = anyio.current_time() + CLOSING_S

    async def _read_again(self, link: Link) -> None:
        """List the offers again when the server reports a change."""
        from mcp import MCPError

        from nanobot_mcp.listing import read_offers

        while True:
            await link.changed.wait()
            link.changed = anyio.Event()
            try:
                with anyio.fail_after(self.server.connect_timeout_s):
                    offers = await read_offers(link.client)
            except (MCPError, TimeoutError, ValueError) as error:
                self._log.warning("the changed tools of {} cannot be listed: {}", self.title, error)
                continue
            self._ports.on_offers(self.name, *offers)

    async def _pause(self) -> None:
        """Wait, longer each time, until a call needs the server."""
        delay_s = self._pause_s
        self._pause_s = min(2 * delay_s, LONGEST_PAUSE_S)
        async with anyio.create_task_group() as group:

            async def wake() -> None:
                await self._wanted.wait()
                group.cancel_scope.cancel()

            group.start_soon(wake)
            await self._ports.ctx.clock.sleep(delay_s)
            group.cancel_scope.cancel()

    def _finish_attempt(self) -> None:
        """Release the callers that wait for this attempt; later callers wait for the next one."""
        self._outcome.set()
        self._outcome = asyncio.Event()
