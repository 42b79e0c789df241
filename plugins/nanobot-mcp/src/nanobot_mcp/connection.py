"""One server: connected by a task of its own, kept connected, shared by all calls."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from dataclasses import dataclass, field
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
"""Seconds to close a connection, fewer than the host grants a task."""

_SDK = ("mcp_types", "mcp_types.methods", "mcp", "nanobot_mcp.link")
"""Imported one after the other: nanobot can be stopped in between, and all take a second or so."""

State: TypeAlias = Literal["idle", "connecting", "connected", "waiting", "stopped"]
MakeAuth: TypeAlias = "Callable[[], Auth | None]"
OnOffers: TypeAlias = Callable[[str, "tuple[Offer, ...]", tuple[str, ...]], None]


class ServerUnavailable(ToolFailed):
    """A server cannot be connected now."""

    def __init__(self, title: str, reason: str) -> None:
        self.title: str = title
        self.reason: str = reason
        super().__init__(f"{title} cannot be reached: {reason}")


@dataclass(frozen=True, slots=True)
class Launch:
    """A program to start, other than the settings of a server say.

    Attributes:
        command: the program.
        greeting: written to its input before MCP begins.
    """

    command: Command
    greeting: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Equipment:
    """Resources of a connection.

    Attributes:
        ctx: the plugin's context.
        limits: settings of all servers.
        log: keeps the server's words.
        make_auth: returns the authentication for a remote server, or ``None``.
        on_offers: receives the offers, and notes about what was left out, after each listing.
        title: name of the server in messages; ``MCP server '<name>'`` if empty.
        launch: program to start instead of the configured one, or ``None``.
    """

    ctx: PluginContext
    limits: McpSettings
    log: ServerLog
    make_auth: MakeAuth
    on_offers: OnOffers
    title: str = ""
    launch: Launch | None = None


class Connection:
    """Connects one server, connects it again when it dies, and shares the connection between calls.

    anyio's scopes must be left by the task that entered them, so one task enters and leaves every
    connection of this server, and nothing else.

    Attributes:
        name: the server's name.
        server: its settings.
        title: its name in messages.
        state: the current state.
        failure: why the last attempt failed or the last connection ended; empty when all is well.
    """

    def __init__(self, name: str, server: ServerSettings, equipment: Equipment) -> None:
        self.name = name
        self.server = server
        self.title: str = equipment.title or f"MCP server '{name}'"
        self.state: State = "idle"
        self.failure: str = ""
        self._reported = ""
        self._equipment = equipment
        self._log = equipment.ctx.logger
        self._link: Link | None = None
        self._scope: anyio.CancelScope | None = None
        self._is_closing = False
        self._pause_s = FIRST_PAUSE_S
        self._wanted = asyncio.Event()
        self._outcome = asyncio.Event()
        self._stopped = asyncio.Event()

    def open(self) -> None:
        """Begin to connect, unless that was done before."""
        if self.state == "idle":
            self.state = "connecting"
            self._equipment.ctx.spawn(self._run(), name=f"server {self.name}")

    async def first_outcome(self) -> None:
        """Wait until the attempt under way has worked or failed; at once where one is up."""
        if not self._usable():
            await self._outcome.wait()

    async def link(self) -> Link:
        """Return the connection, made now if need be.

        Raises:
            ServerUnavailable: the attempt failed; the next call makes another.
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
        """Leave the connection and end the task; returns when both have happened."""
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
        """Connect, stay until the connection ends, and clear up; says why in `failure`."""
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
            # A server that is away for long is tried every minute; once is enough to say it.
            level = "DEBUG" if self.failure == former else "WARNING"
            self._log.log(level, "{} is not connected: {}", self.title, self.failure)
        if outcome is self._outcome:
            # It never was connected. Calls that came after a connection was lost wait for the next.
            self._tell_outcome()

    async def _stay_connected(self, scope: anyio.CancelScope, trouble: Trouble) -> None:
        from mcp import MCPError
        from mcp_types import CONNECTION_CLOSED

        from nanobot_mcp.link import open_link
        from nanobot_mcp.listing import read_offers

        scope.deadline = anyio.current_time() + self.server.connect_timeout_s
        equipment = self._equipment
        async with open_link(self.server, equipment, trouble) as link:
            try:
                offers = await read_offers(link.client)
            except MCPError as error:
                if error.code != CONNECTION_CLOSED:
                    # It is nearer to the cause than how the process ends when it is left now.
                    trouble.note(describe_failure(error))
                raise
            scope.deadline = math.inf
            self._link = link
            self.state, self.failure, self._reported = "connected", "", ""
            self._pause_s = FIRST_PAUSE_S
            equipment.on_offers(self.name, *offers)
            self._tell_outcome()
            async with anyio.create_task_group() as group:
                group.start_soon(link.follow_changes)
                group.start_soon(self._read_again, link)
                await link.ended.wait()
                group.cancel_scope.cancel()
            self.state = "connecting"
            scope.deadline = anyio.current_time() + CLOSING_S

    async def _read_again(self, link: Link) -> None:
        """List the offers again whenever the server says that they changed."""
        from mcp import MCPError

        from nanobot_mcp.listing import read_offers

        while True:
            await link.changed.wait()
            link.changed = anyio.Event()
            try:
                with anyio.fail_after(self.server.connect_timeout_s):
                    offers = await read_offers(link.client)
            except (MCPError, TimeoutError, ValueError) as error:
                self._log.warning("{} does not announce changes: {}", self.title, error)
                continue
            self._equipment.on_offers(self.name, *offers)

    async def _pause(self) -> None:
        """Wait, longer each time, or until a call wants the server."""
        delay_s = self._pause_s
        self._pause_s = min(2 * delay_s, LONGEST_PAUSE_S)
        async with anyio.create_task_group() as group:

            async def wake() -> None:
                await self._wanted.wait()
                group.cancel_scope.cancel()

            group.start_soon(wake)
            await self._equipment.ctx.clock.sleep(delay_s)
            group.cancel_scope.cancel()

    def _tell_outcome(self) -> None:
        """Release those who wait for this attempt; later ones wait for the next."""
        self._outcome.set()
        self._outcome = asyncio.Event()
