"""Gateway: the agent with its message queue, channels and services."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, cast

from nanobot_core._version import __version__
from nanobot_core.app.approvals import ChatApprovals
from nanobot_core.app.operations import GatewayOperations
from nanobot_core.app.owner import OwnerNotices
from nanobot_core.app.reloading import Load, Reloaded, Reloader, describe
from nanobot_core.app.services import ServiceRunner
from nanobot_core.app.totals import Totals
from nanobot_core.channels.access import fault_of, first_part
from nanobot_core.channels.manager import ChannelManager
from nanobot_core.channels.outbox import Outbox
from nanobot_core.channels.pairing import PairingStore
from nanobot_core.channels.ports import ChannelPorts
from nanobot_core.contracts.service import GatewayStatus, Mount, Route
from nanobot_core.disk import damaged_files
from nanobot_core.errors import BusError
from nanobot_core.events import WorkStopped
from nanobot_core.messages import InboundMessage
from nanobot_core.plugins.health import QUIET_STATES
from nanobot_core.plugins.loader import make_object
from nanobot_core.plugins.manifest import known_fields
from nanobot_core.turns.running import RunningTurns

if TYPE_CHECKING:
    from datetime import datetime

    from pydantic import SecretStr

    from nanobot_core.app.application import Nanobot
    from nanobot_core.app.direct import DirectClient
    from nanobot_core.assignment import Assignment, Requester
    from nanobot_core.clock import Clock
    from nanobot_core.config.loading import LoadedConfig
    from nanobot_core.contracts.bus import Bus
    from nanobot_core.contracts.operation import OpenQuestion
    from nanobot_core.contracts.service import AsgiApp, RunStatus
    from nanobot_core.turns.assigned import Standing


class Gateway:
    """The connected parts of a gateway, which `GatewayRunner` starts and stops.

    Plugins use it as `GatewayAccess`, slash commands as `Controls`, and the command line through
    `handlers`.

    Args:
        bot: the agent.
        bus: the message queue.
        clock: source of time.
        load: reads the configuration for a reload.
        log: sends the log to the place that a configuration names.
        options: options of the command line before its command.

    Attributes:
        ready: set while everything runs and messages are accepted.
        operations: what an owner does with the gateway.
    """

    def __init__(
        self,
        bot: Nanobot,
        bus: Bus,
        clock: Clock,
        load: Load,
        log: Callable[[LoadedConfig], None],
        options: Sequence[str],
    ) -> None:
        folder, plugins = bot.loaded.home / "gateway", bot.plugins
        self.bot: Nanobot = bot
        self.bus: Bus = bus
        self.started_at: datetime = clock.now()
        self.ready: asyncio.Event = asyncio.Event()
        self.totals: Totals = Totals()
        self.turns: RunningTurns = RunningTurns(
            bot.spawn, bot.loaded.settings.agents.max_concurrent_turns
        )
        self.outbox: Outbox = Outbox(bus, lambda: plugins.hooks, bot.redact)
        self.owner: OwnerNotices = OwnerNotices(folder / "owner.json", self.outbox, self._owners)
        self.approvals: ChatApprovals = ChatApprovals(
            folder / "approvals.json",
            self.outbox,
            clock,
            timeout_s=lambda: bot.loaded.settings.tools.approval_timeout_s,
            owner=self.owner,
            turns=self.turns,
        )
        self.ports: ChannelPorts = ChannelPorts(
            bus=bus,
            outbox=self.outbox,
            pairing=PairingStore(folder / "pairing.json", clock),
            hooks=lambda: plugins.hooks,
            is_control=lambda text: bot.commands.is_control(text),  # noqa: PLW0108 - made at start
            open_question=self.approvals.is_pending,
            spawn=bot.spawn,
            clock=clock,
        )
        self.channels: ChannelManager = ChannelManager(
            plugins, lambda: bot.loaded, self.ports, on_failed=self._report_failed
        )
        self.services: ServiceRunner = ServiceRunner(
            plugins, spawn=bot.spawn, clock=clock, on_failed=self._report_failed
        )
        self.reloader: Reloader = Reloader(bot, self.channels, self.services, load, log)

        self.operations: GatewayOperations = GatewayOperations(self, options)

    @property
    def client(self) -> DirectClient:
        """The agent, for programs that people work with."""
        return self.bot.client

    @property
    def address(self) -> tuple[str, int]:
        """Host and port for the HTTP server."""
        gateway = self.bot.loaded.settings.gateway
        return gateway.host, gateway.port

    @property
    def secret(self) -> SecretStr | None:
        """The secret that callers of the HTTP server must send."""
        return self.bot.loaded.settings.gateway.secret

    def commands(self) -> Mapping[str, str]:
        """Return every slash command with its summary."""
        return self.bot.commands.names()

    async def status(self) -> GatewayStatus:
        """Return the state of the gateway."""
        refusing = self.bot.plugins.refusing("admit_message")
        return GatewayStatus(
            version=__version__,
            pid=os.getpid(),
            started_at=self.started_at,
            ready=self.ready.is_set() and not refusing,
            refusing=refusing,
            running=(*self.channels.statuses(), *self.services.statuses()),
            depth=await self.bus.depth(),
            turns=len(self.turns) + self.client.turns,
            totals=self.totals.so_far,
            plugins_in_trouble=tuple(
                (report.id, f"{report.state}: {report.reason}")
                for report in self.bot.plugins.reports()
                if report.state not in QUIET_STATES
            ),
        )

    def routes(self) -> Sequence[Route]:
        """Return the routes of plugins, longest paths first."""
        found = [
            Route(
                plugin=plugin,
                mount=(mount := Mount(**known_fields(Mount, declaration.detail))),
                load=partial(self._load, plugin, mount),
                instance=self.bot.plugins.table.replaced(plugin),
            )
            for plugin, declaration in self.bot.plugins.declared("routes")
        ]
        return sorted(found, key=lambda route: (-len(route.mount.path), route.mount.path))

    async def assign(self, assignment: Assignment, content: str) -> bool:
        """Store work for the agent."""
        message = InboundMessage.of(assignment, content)
        # The names of an admitted sender follow the id.
        if fault := fault_of(replace(message, sender_id=first_part(message.sender_id))):
            raise BusError(f"work '{message.id}' is not stored: {fault}")
        is_new = self.turns.waiting.expect(message)
        storing = self.bot.spawn(self.bus.publish_inbound(message), name=f"storing:{message.id}")
        if is_new:
            storing.add_done_callback(partial(self._forget_unstored, message))
        # Cancelled meanwhile, it may be stored nevertheless, and must be known as stopped then.
        return await asyncio.shield(storing)

    def _forget_unstored(self, message: InboundMessage, storing: asyncio.Task[bool]) -> None:
        if storing.cancelled() or storing.exception() or not storing.result():
            self.turns.waiting.forget(message)

    async def stop_work(self, plugin: str, work_id: str) -> bool:
        """Stop work, and the work for it."""
        message_id = f"{plugin}/{work_id}"
        session_key = self.turns.session_of(message_id)
        if session_key is None:
            return self.turns.waiting.stop(message_id)
        stop = partial(self.turns.stop_work_for, session_key, with_own=True)
        return await self._stop(session_key, stop)

    async def show(self, requester: Requester, text: str) -> None:
        """Show a line of progress in the chat of a requester."""
        await self.channels.show(requester.channel, requester.chat_id, text)

    @property
    def owners_chat(self) -> tuple[str, str] | None:
        """Channel and chat in which the owner last wrote in private."""
        return self.owner.chat

    async def notify_owner(self, text: str, key: str) -> None:
        """Log a notice, and send it to the owner's chat."""
        await self.owner.notify(text, key)

    async def standing(self, message: InboundMessage) -> Standing:
        """Return the rights that the requester of work has now, at most those that they had."""
        authority = message.assignment.requester.authority if message.assignment else "guest"
        if authority == "machine":
            return "owner"
        if not await self.channels.admits(message):
            return "revoked"  # an owner who is not admitted could not ask for it now either
        return "owner" if authority == "owner" and self.owner.is_owner(message) else "guest"

    async def stop_turn(self, session_key: str) -> bool:
        """Stop the turn of a session and the work for it, and close their questions."""
        return await self._stop(session_key, partial(self.turns.stop, session_key))

    async def _stop(self, session_key: str, stop: Callable[[], Awaitable[bool]]) -> bool:
        sessions = {session_key, *self.turns.work_of(session_key)}
        is_stopped = await stop()
        hooks = self.bot.plugins.hooks
        if hooks.on_stop:
            await hooks.on_stop(WorkStopped(session_key=session_key))
        # The turn may have given more work while it was being stopped.
        sessions |= self.turns.work_of(session_key)
        is_stopped = await self.turns.stop_work_for(session_key, with_own=False) or is_stopped
        for key in sessions:
            await self.approvals.close(key)
        return is_stopped

    def questions(self) -> Sequence[OpenQuestion]:
        """Return the tool calls that wait for an approval, the oldest first."""
        return self.approvals.questions()

    async def resolve_approval(self, approval_id: str, *, allowed: bool, by: str) -> bool:
        """Answer a question about a tool call."""
        return await self.approvals.resolve(approval_id, allowed=allowed, by=by)

    async def change_pairing(self, words: list[str]) -> str:
        """List, approve or revoke."""
        pairing = self.ports.pairing
        match words:
            case []:
                pending = await asyncio.to_thread(pairing.pending)
                lines = [f"- {item.code}: {item.sender_id} on {item.channel}" for item in pending]
                return "\n".join(
                    ["Pending requests:", *lines] if lines else ["No pending requests."]
                )
            case ["approve", code]:
                asked = await asyncio.to_thread(pairing.approve, code)
                if asked is None:
                    return "Unknown or expired code. Send /pairing to list the pending requests."
                return f"{asked.sender_id} can now write on {asked.channel}."
            case ["revoke", channel, sender_id]:
                if await asyncio.to_thread(pairing.revoke, channel, sender_id):
                    return f"{sender_id} can no longer write on {channel}."
                return f"Unknown user: {sender_id} on {channel}."
        return "Use /pairing, /pairing approve CODE, or /pairing revoke CHANNEL ID."

    async def change_plugin(self, words: list[str]) -> str:
        """List, enable, disable or reload."""
        match words:
            case [] | ["list"]:
                return "\n".join(f"- {report.line}" for report in self.bot.plugins.reports())
            case ["reload", plugin_id]:
                change = await self.reloader.reload_plugin(plugin_id)
                return describe(Reloaded(change=change))
            case ["enable", plugin_id]:
                return describe(await self.reloader.enable(plugin_id))
            case ["disable", plugin_id, *options] if options in ([], ["--cascade"]):
                return describe(await self.reloader.disable(plugin_id, cascade=bool(options)))
        return "Use /plugins list, /plugins enable|reload ID, or /plugins disable ID [--cascade]."

    async def problems(self) -> list[str]:
        """Return a line for each part that does not work, and each damaged file."""
        status = await self.status()
        return [
            *(
                f"{item.kind} {item.name}: {item.state}, {item.last_error or 'no contact yet'}"
                for item in status.running
                if item.state != "running"
            ),
            *(f"provider {each.provider}: {each}" for each in self.bot.cool_downs.current()),
            *(f"a damaged file is kept as {file}" for file in damaged_files(self.bot.loaded.home)),
        ]

    def _owners(self) -> Sequence[str]:
        """Return who the owner is: by the configuration, and on channels that check it."""
        return [
            *self.bot.loaded.settings.owner,
            *(
                f"{channel.name}:{owner_id}"
                for _, channel in self.bot.plugins.declared("channels")
                if (owner_id := channel.detail.get("owner_id"))
            ),
        ]

    async def _load(self, plugin: str, mount: Mount) -> AsgiApp:
        context = await self.bot.plugins.context_for(plugin)
        return cast("AsgiApp", await make_object(plugin, mount.app, object, context))

    async def _report_failed(self, status: RunStatus) -> None:
        text = (
            f"{status.kind} {status.name} has failed and is retried less often now: "
            f"{status.last_error}"
        )
        await self.owner.notify(text, f"failed:{status.name}:{status.since.isoformat()}")
