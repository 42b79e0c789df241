"""Services and routes: what a plugin runs or mounts in the gateway."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

from nanobot_core.assignment import Assignment, Requester
from nanobot_core.contracts.bus import BusDepth
from nanobot_core.messages import Usage
from nanobot_core.record import dataclass

if TYPE_CHECKING:
    from pydantic import SecretStr

    from nanobot_core.contracts.client import AgentClient
    from nanobot_core.contracts.operation import Operations


class Service(ABC):
    """Something that runs for as long as the gateway."""

    @abstractmethod
    async def run(self) -> None:
        """Work until cancelled. Returning or raising makes the supervisor start it again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceSpec:
    """A service as a plugin contributes it.

    Attributes:
        name: unique name.
        factory: ``package.module:name`` of a callable ``(ctx)`` that returns a `Service`.
        needs: names of services that must run before it starts and until it has stopped.
    """

    name: str
    factory: str
    needs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Mount:
    """An ASGI application on the gateway's HTTP server.

    Attributes:
        path: prefix, beginning with ``/``.
        app: ``package.module:name`` of a callable ``(ctx)`` that returns an ASGI application.
        access: who may call it.
        start_limit_s: seconds from the request to the beginning of its response, the upload
            included; ``None`` for the limit of the server.
        max_body_bytes: size of a request's body; ``None`` for the limit of the server.
        encoded_slash: a path may contain ``%2F``, which means a slash. Elsewhere the server refuses
            it, because not every proxy before it reads it so.
        title: a word or two for menus, if `path` is a page for people, such as ``Dashboard``.
    """

    path: str
    app: str
    access: Literal["open", "token"] = "token"
    start_limit_s: float | None = None
    max_body_bytes: int | None = None
    encoded_slash: bool = False
    title: str = ""


AsgiApp: TypeAlias = Callable[
    [dict[str, Any], Callable[[], Awaitable[Any]], Callable[[Any], Awaitable[None]]],
    Awaitable[None],
]
"""An ASGI application: ``(scope, receive, send)`` (ASGI 3.0)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """A `Mount` as the HTTP server sees it.

    Attributes:
        plugin: id of the plugin that gives it.
        mount: its path and who may call it.
        load: activates the plugin and returns a new instance of the application.
        instance: changes when the plugin is loaded again; an older application is out of date.
    """

    plugin: str
    mount: Mount
    load: Callable[[], Awaitable[AsgiApp]] = field(compare=False)
    instance: int = 0


RunState: TypeAlias = Literal["starting", "running", "waiting", "failed", "stopped"]
"""``waiting``: it ended by itself and is started again after a delay; ``failed``: given up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStatus:
    """State of a channel or a service.

    Attributes:
        name: its name.
        kind: channel or service.
        plugin: id of its plugin.
        state: a channel whose platform has not answered yet is not ``running``.
        since: start of this state, aware.
        restarts: number of restarts since the gateway started.
        last_error: why it last ended, or ``None``.
        last_contact: time of the platform's last answer, aware, or ``None``.
        account: of a channel: who the agent is on the platform; empty if unknown.
        last_received: of a channel: time of the last message that was stored, or ``None``.
        last_sent: of a channel: time of the last delivery, or ``None``.
    """

    name: str
    kind: Literal["channel", "service"]
    plugin: str
    state: RunState
    since: datetime
    restarts: int = 0
    last_error: str | None = None
    last_contact: datetime | None = None
    account: str = ""
    last_received: datetime | None = None
    last_sent: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayTotals:
    """What a gateway has done since its start.

    Attributes:
        turns: turns that have ended.
        failed_turns: those of them that ended with an error.
        turns_s: seconds that all these turns took together.
        slowest_turn_s: seconds of the longest of them.
        tool_calls: tool calls that have ended.
        failed_tool_calls: those of them whose result is an error.
        model_calls: model calls that were paid for, those of plugins included.
        usage: tokens and money of these calls.
    """

    turns: int = 0
    failed_turns: int = 0
    turns_s: float = 0.0
    slowest_turn_s: float = 0.0
    tool_calls: int = 0
    failed_tool_calls: int = 0
    model_calls: int = 0
    usage: Usage = field(default_factory=Usage)


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayStatus:
    """State of the gateway.

    Attributes:
        version: version of the core.
        pid: id of its process.
        started_at: when it was started, aware.
        ready: everything is started and messages are admitted.
        running: channels and services.
        depth: messages that wait.
        turns: turns under way.
        totals: what was done since the start.
        plugins_in_trouble: id and reason of plugins that do not work as they should.
        refusing: ids of plugins that do not run, so that every message from a channel is refused.
    """

    version: str
    pid: int
    started_at: datetime
    ready: bool
    running: tuple[RunStatus, ...]
    depth: BusDepth
    turns: int
    totals: GatewayTotals = field(default_factory=GatewayTotals)
    plugins_in_trouble: tuple[tuple[str, str], ...] = ()
    refusing: tuple[str, ...] = ()

    @property
    def state(self) -> str:
        """In words: whether it works, and why not."""
        if self.refusing:
            return f"refuses every message, because of {', '.join(self.refusing)}"
        return "ready" if self.ready else "starting or stopping"


class GatewayAccess(Protocol):
    """The interface of the gateway for plugins that run in it."""

    @property
    def address(self) -> tuple[str, int]:
        """Configured host and port of its HTTP server."""

    @property
    def secret(self) -> SecretStr | None:
        """Secret that callers of the HTTP server must send, or ``None``."""

    async def status(self) -> GatewayStatus:
        """Return the state of the gateway."""

    @property
    def client(self) -> AgentClient:
        """The agent, for programs that people work with."""

    @property
    def operations(self) -> Operations:
        """What an owner does with the gateway."""

    def commands(self) -> Mapping[str, str]:
        """Return every slash command with its summary, for the menus of channels."""

    def routes(self) -> Sequence[Route]:
        """Return what plugins mount on the HTTP server, longest paths first."""

    async def assign(self, assignment: Assignment, content: str) -> bool:
        """Store work for the agent, which is done once, also after a crash.

        The plugin learns the result by the hook ``after_assignment``.

        Returns:
            False if work with the same plugin and id was stored within seven days.

        Raises:
            BusFull: too many messages wait.
            BusError: it is not stored.
        """

    async def stop_work(self, plugin: str, work_id: str) -> bool:
        """Stop work that runs or waits, and the work whose parent it is, as ``/stop`` does.

        The hook ``after_assignment`` reports it with the stop reason ``cancelled``.

        Args:
            plugin: `Assignment.plugin`.
            work_id: `Assignment.id`.

        Returns:
            False if there is no such work, or it has joined the turn of a chat.
        """

    async def show(self, requester: Requester, text: str) -> None:
        """Show a line of progress in the requester's chat, if its settings show progress.

        It is not stored: if the chat cannot be reached now, the line is lost.
        """

    @property
    def owners_chat(self) -> tuple[str, str] | None:
        """Channel and chat in which the owner last wrote in private; ``None`` if unknown."""

    async def notify_owner(self, text: str, key: str) -> None:
        """Log a notice, and send it to the owner's chat, once for each `key`."""
