"""AgentClient: the agent, for programs that people work with, such as an editor or a terminal."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Protocol, TypeAlias

from nanobot_core.assignment import Requester
from nanobot_core.contracts.plugin import Ticket
from nanobot_core.events import ApprovalRequested, RunEvent, ToolDefinition, ToolOutcome
from nanobot_core.messages import JsonObject, Message
from nanobot_core.record import dataclass

if TYPE_CHECKING:
    from nanobot_core.events import TurnOutcome

EventSink: TypeAlias = Callable[[RunEvent], Awaitable[None]]
"""Receives the events of a turn in order, the outcome last."""


async def ignore_event(event: RunEvent) -> None:
    """Ignore the events of a turn."""


Decide: TypeAlias = Callable[[ApprovalRequested], Awaitable[Ticket | None]]
"""Asks the user of the program about a tool call; ``None`` means no."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectTurn:
    """A message that a program takes to the agent, and waits for the answer.

    It is not stored before its turn begins: a program that ends before that has to send it again.

    Attributes:
        requester: who wrote it, and in which session, whose key begins with the name of the
            program and a colon, such as ``acp:4f1d``. The channel is the name of the program.
        text: what they wrote; a slash command is answered as one.
        media: absolute paths of attached files.
        model: model or preset instead of that of the session, or ``None``.
        folder: absolute path of a working folder instead of the workspace, or empty; not for
            guests.
    """

    requester: Requester
    text: str
    media: tuple[str, ...] = ()
    model: str | None = None
    folder: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferedTool:
    """A tool that can be called.

    Attributes:
        definition: its name, description and parameters.
        origin: ``plugin@version`` that it comes from.
        read_only: it promises to change nothing.
    """

    definition: ToolDefinition
    origin: str
    read_only: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionEntry:
    """A session in a list.

    Attributes:
        key: its key.
        updated_at: when it was last written, aware.
        title: its title, or the beginning of its newest message.
        is_titled: whether a person gave it the title.
        size: bytes of its file.
        folder: working folder of its newest turn that had one of its own, see `DirectTurn`; else
            empty.
    """

    key: str
    updated_at: datetime
    title: str = ""
    is_titled: bool = False
    size: int = 0
    folder: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionPage:
    """Consecutive messages of a session.

    Attributes:
        entry: the session.
        messages: oldest first.
        first_index: number of the first one, counted from the start of the session.
        total: number of all its messages.
        model: model or preset that was chosen for it, or empty.
        is_busy: a turn of it runs or waits in this process.
    """

    entry: SessionEntry
    messages: tuple[Message, ...] = ()
    first_index: int = 0
    total: int = 0
    model: str = ""
    is_busy: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionHit:
    """A message that contains what was searched for; `index` is its number in the session."""

    key: str
    index: int
    message: Message


class SessionAccess(Protocol):
    """The sessions of all channels. What people may see is for the caller to decide.

    All methods raise `SessionError` if the store cannot be read or written.
    """

    async def entries(self, *, offset: int = 0, limit: int = 50) -> Sequence[SessionEntry]:
        """Return sessions, the latest first."""

    async def page(
        self, key: str, *, before: int | None = None, limit: int = 50
    ) -> SessionPage | None:
        """Return the newest messages of a session, or those before a number.

        Returns:
            ``None`` if the session does not exist.
        """

    async def search(self, text: str, *, limit: int = 50) -> Sequence[SessionHit]:
        """Return messages that contain `text`, case ignored, of the latest sessions first."""

    async def set_title(self, key: str, title: str) -> bool:
        """Give a session a title, empty for none; False if it does not exist."""

    async def create(self, key: str, messages: Sequence[Message]) -> None:
        """Create a session with a history.

        Raises:
            SessionError: it exists.
        """

    async def branch(self, key: str, until: int, new_key: str) -> bool:
        """Create a session with the messages of another one before the number `until`.

        Returns:
            False if the other one does not exist.

        Raises:
            SessionError: the new one exists.
        """

    async def delete(self, key: str) -> bool:
        """Delete a session for good; False if it does not exist.

        Raises:
            SessionError: a turn of it is under way.
        """


class AgentClient(Protocol):
    """The agent, for programs that people work with.

    It is that of the running gateway, or one in this process.
    """

    @property
    def sessions(self) -> SessionAccess:
        """The sessions."""

    async def take_turn(
        self, turn: DirectTurn, on_event: EventSink, decide: Decide | None = None
    ) -> TurnOutcome:
        """Answer a message and return the outcome; failures are outcomes, too.

        Args:
            turn: the message.
            on_event: receives the events; a tool call begins when it has received the
                `ToolCallStarted`.
            decide: asked about tool calls that need an approval; without it the owner is asked
                in a chat, or where questions are answered in the gateway.

        Cancellation:
            The turn is stopped.
        """

    async def tools(self, requester: Requester) -> Sequence[OfferedTool]:
        """Return the tools that the requester may call."""

    async def call_tool(
        self, requester: Requester, name: str, arguments: JsonObject, decide: Decide | None = None
    ) -> ToolOutcome:
        """Call one tool as in a turn, with all policies and approvals; nothing is stored.

        Returns:
            The result as a model would read it; also of a refused call or an unknown tool.

        Cancellation:
            The call is ended.
        """

    async def commands(self) -> Mapping[str, str]:
        """Return every slash command with its summary."""

    async def models(self) -> Sequence[str]:
        """Return the names of presets and of all known models that can be used."""
