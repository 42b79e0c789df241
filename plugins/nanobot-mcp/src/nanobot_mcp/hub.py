"""All servers of an agent, and the tools that are published for them."""

from __future__ import annotations

import asyncio
import hashlib
import re
import shutil
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import CancelledError as FutureCancelled
from contextlib import suppress
from fnmatch import fnmatchcase
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from nanobot_core import Health, NameConflict, PluginRejected
from nanobot_mcp.offers import OfferStore
from nanobot_mcp.settings import CopiedServers, McpSettings, OwnServers, ServerSettings

if TYPE_CHECKING:
    from httpx2 import Auth

    from nanobot_core import PluginContext
    from nanobot_mcp.connection import Connection, ConnectionPorts, MakeAuth
    from nanobot_mcp.offers import Offer
    from nanobot_mcp.tool import McpTool


MAX_NAME_CHARS = 64
_OTHER = re.compile(r"[^a-zA-Z0-9_-]")
_INFIX = {
    "tool": "",
    "resource": "resource_",
    "template": "resource_",
    "prompt": "prompt_",
    "connect": "",
}

Claim: TypeAlias = tuple[str, str, str, str]
"""Server, kind, the server's name for the offer, and its address or an empty text.

The kind is that of an offer, or ``connect`` for the tool that connects the server.
"""


def assign_names(claims: Iterable[Claim]) -> Mapping[Claim, str]:
    """Return the name that the model sees for each claim.

    Names depend only on the set of claims, not on their order: if several claims lead to the same
    name, each gets a digest.
    """
    names = {claim: wrapped_name(claim) for claim in claims}
    # A server may choose a name that looks like one with a digest, so repeat until all differ.
    while contested := {name for name, uses in Counter(names.values()).items() if uses > 1}:
        for claim, name in names.items():
            if name in contested:
                names[claim] = _with_digest(name, claim)
    return names


def wrapped_name(claim: Claim) -> str:
    """Return ``mcp_<server>_<name>``, with ``resource_`` or ``prompt_`` before the name."""
    server, kind, name, _ = claim
    full = _OTHER.sub("_", f"mcp_{server}_{_INFIX[kind]}{name}")
    return full if len(full) <= MAX_NAME_CHARS else _with_digest(full, claim)


def _with_digest(name: str, claim: Claim) -> str:
    source = "\0".join((*claim, name)).encode("utf-8", "surrogatepass")
    digest = hashlib.sha256(source).hexdigest()[:8]
    return f"{name[: MAX_NAME_CHARS - 9]}_{digest}"


_SLACK_S = 2.0
HEAD_START_S = 1.0
"""Seconds before new servers are connected, because importing the SDK would slow the first turn."""


class Hub:
    """Connects the configured servers and publishes what they offer.

    Attributes:
        servers: enabled servers with valid settings, by name.
        problems: why the settings of other servers are invalid, by name.
    """

    def __init__(self, ctx: PluginContext) -> None:
        self._ctx = ctx
        self._log = ctx.logger
        self._limits = ctx.settings(McpSettings)
        self.problems: dict[str, str] = {}
        self.servers: Mapping[str, ServerSettings] = self._configured()
        self._connections: dict[str, Connection] = {}
        self._offers: dict[str, tuple[Offer, ...]] = {}
        self._published: dict[str, McpTool] = {}
        self._reported: set[tuple[str, str]] = set()
        self._store = OfferStore(ctx.data_dir / "offer_cache") if self.servers else None
        self._loop: asyncio.AbstractEventLoop | None = None

    async def prepare(self) -> None:
        """Publish the tools known from earlier connections, without connecting a server."""
        if self._store is None:
            return
        self._loop = asyncio.get_running_loop()
        for name, server in self.servers.items():
            known = await asyncio.to_thread(self._store.load, name, server)
            # A server that offered nothing has no tool whose call would connect it again.
            if known:
                self._offers[name] = known
        self._publish()

    def begin(self) -> None:
        """Start to connect new servers, and wait for them for at most `startup_grace_s`.

        Call it in a thread other than the loop's. The first call of one of its tools connects any
        other server. A server that fails is not waited for.
        """
        if self._loop is None:
            return
        begun = asyncio.run_coroutine_threadsafe(self._begin(), self._loop)
        try:
            begun.result(self._limits.startup_grace_s + _SLACK_S)
        except (TimeoutError, FutureCancelled):
            begun.cancel()

    async def close(self) -> None:
        """Close all connections concurrently."""
        async with asyncio.TaskGroup() as group:
            for connection in self._connections.values():
                group.create_task(connection.close())

    def connection(self, name: str) -> Connection:
        """Return the connection of an enabled server, which may be idle."""
        from nanobot_mcp.connection import Connection

        if name not in self._connections:
            self._connections[name] = Connection(name, self.servers[name], self.ports(name))
        return self._connections[name]

    def ports(self, name: str) -> ConnectionPorts:
        """Return the resources for a connection to an enabled server."""
        from nanobot_mcp.connection import ConnectionPorts
        from nanobot_mcp.process import ServerLog

        path = self._ctx.data_dir / "logs" / f"{_safe(name)}.log"
        return ConnectionPorts(
            self._ctx,
            self._limits,
            ServerLog(path, self._limits.log_bytes),
            self._auth_of(name, self.servers[name]),
            self._take_offers,
        )

    def tools(self, server: str | None = None) -> list[McpTool]:
        """Return the published tools of all servers, or of one, sorted by name."""
        every = sorted(self._published.values(), key=lambda tool: tool.name)
        return [tool for tool in every if server in (None, tool.server)]

    def health(self) -> Health:
        """Report failed servers, and programs that are not installed."""
        failures = dict(self.problems)
        failures |= {name: item.failure for name, item in self._connections.items() if item.failure}
        path = self._ctx.environment(("PATH",)).get("PATH", "")
        for name, server in self.servers.items():
            command = server.command
            found = shutil.which(command, path=server.env.get("PATH", path)) if command else ""
            if found is None and "/" not in (command or ""):
                failures.setdefault(name, f"'{command}' is not on PATH")
        if failures:
            reasons = "; ".join(f"'{name}': {reason}" for name, reason in failures.items())
            return Health(ok=False, message=f"MCP servers with problems: {reasons}")
        up = sum(connection.state == "connected" for connection in self._connections.values())
        return Health(ok=True, message=f"{len(self.servers)} MCP servers, {up} connected")

    async def _begin(self) -> None:
        if not self._limits.startup_grace_s:
            self._ctx.spawn(self._open_later(), name="connect new servers")
            return
        new = self._open_new()
        with suppress(TimeoutError):
            async with asyncio.timeout(self._limits.startup_grace_s), asyncio.TaskGroup() as group:
                for connection in new:
                    group.create_task(connection.first_outcome())

    async def _open_later(self) -> None:
        await self._ctx.clock.sleep(HEAD_START_S)
        self._open_new()

    def _open_new(self) -> list[Connection]:
        """Connect servers whose offers are unknown, if that has not been tried yet."""
        unknown = [self.connection(name) for name in self._unknown()]
        new = [connection for connection in unknown if connection.state == "idle"]
        for connection in new:
            connection.open()
        return new

    def _unknown(self) -> list[str]:
        """Return the servers whose offers are unknown."""
        return [name for name in self.servers if name not in self._offers]

    def _configured(self) -> dict[str, ServerSettings]:
        own = self._ctx.settings(OwnServers).servers
        copied = self._ctx.settings(CopiedServers).servers
        both = {**copied, **own}
        self.problems = {name: item.problem for name, item in both.items() if item.problem}
        for name, problem in self.problems.items():
            self._log.warning("MCP server '{}' is not used: {}", name, problem)
        found = {name: item for name, item in both.items() if item.is_enabled}
        for name in own.keys() & copied.keys():
            self._log.warning(
                "MCP server '{}' is under tools.mcp_servers and mcpServers; the first applies",
                name,
            )
        for name, server in found.items():
            if server.unknown_keys:
                self._log.warning(
                    "MCP server '{}': these keys have no effect: {}",
                    name,
                    ", ".join(server.unknown_keys),
                )
        return found

    def _auth_of(self, name: str, server: ServerSettings) -> MakeAuth:
        def make() -> Auth | None:
            if server.url is None:
                return None
            from nanobot_mcp.login import stored_auth

            return stored_auth(self._ctx, name, server)

        return make

    def _take_offers(self, name: str, offers: tuple[Offer, ...], notes: tuple[str, ...]) -> None:
        for note in notes:
            if (name, note) not in self._reported:
                self._reported.add((name, note))
                self._log.info("MCP server '{}': {}", name, note)
        is_news = self._offers.get(name) != offers
        self._offers[name] = offers
        if not is_news:
            return
        self._report_notes(name, offers)
        self._publish()
        store = self._store
        if store is not None:

            async def keep() -> None:
                await asyncio.to_thread(store.save, name, self.servers[name], offers)

            self._ctx.spawn(keep(), name=f"keep offers of {name}")

    def _publish(self) -> None:
        from nanobot_mcp.tool import ConnectTool

        claims = {
            _claim(server, offer): offer
            for server, offers in self._offers.items()
            for offer in offers
        }
        missing = {
            (server, "connect", "connect", ""): server
            for server in self._unknown()
            if self.servers[server].enabled_tools
        }
        names = assign_names([*claims, *missing])
        tools = {
            name: self._tool(name, claim[0], claims[claim])
            for claim, name in names.items()
            if claim in claims
            and _is_enabled(self.servers[claim[0]].enabled_tools, name, claims[claim].name)
        }
        stand_ins = [
            ConnectTool(names[claim], self.connection(server), partial(self.tools, server))
            for claim, server in missing.items()
        ]
        try:
            self._ctx.tools.replace([*tools.values(), *stand_ins])
        except (PluginRejected, NameConflict) as error:
            self._log.exception("tools of MCP servers cannot be published: {}", error)
            return
        self._published = tools

    def _tool(self, name: str, server: str, offer: Offer) -> McpTool:
        """Return the published tool if it is unchanged, otherwise a new one."""
        from nanobot_mcp.tool import McpTool

        former = self._published.get(name)
        if former is not None and former.offer == offer and former.server == server:
            return former
        return McpTool(
            name, offer, self.connection(server), self._ctx, self._limits.max_image_bytes
        )

    def _report_notes(self, name: str, offers: Sequence[Offer]) -> None:
        for offer in offers:
            if offer.notes:
                self._log.info(
                    "schema of '{}' of MCP server '{}': {}",
                    offer.name,
                    name,
                    "; ".join(offer.notes),
                )
        names = assign_names((name, offer.kind, offer.name, offer.address) for offer in offers)
        for pattern in self.servers[name].enabled_tools:
            if not any(
                _is_enabled([pattern], wrapped, claim[2]) for claim, wrapped in names.items()
            ):
                self._log.warning(
                    "enabled_tools of MCP server '{}' names '{}', which it does not offer",
                    name,
                    pattern,
                )


def _claim(server: str, offer: Offer) -> Claim:
    return server, offer.kind, offer.name, offer.address


def _is_enabled(patterns: Sequence[str], wrapped: str, raw: str) -> bool:
    names = (wrapped, raw)
    return any(item in names or any(fnmatchcase(name, item) for name in names) for item in patterns)


def _safe(name: str) -> str:
    plain = _OTHER.sub("_", name)[:40]
    return plain if plain == name else f"{plain}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"
