"""Tool: something the model may call."""

from __future__ import annotations

import functools
import inspect
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from types import FunctionType
from typing import TYPE_CHECKING, Any, TypeAlias

from nanobot_core.assignment import Assignment, Requester
from nanobot_core.clock import Clock, SystemClock
from nanobot_core.contracts.plugin import Allow, Ask, Deny
from nanobot_core.errors import ToolFailed
from nanobot_core.events import ToolDefinition
from nanobot_core.messages import Content, ContentBlock, JsonObject, OutboundMessage
from nanobot_core.record import dataclass
from nanobot_core.text import Repaired

if TYPE_CHECKING:
    from pydantic import BaseModel

    from nanobot_core.paths import PathGuard


@dataclass(frozen=True, slots=True)
class ToolResult(Repaired):
    """The result of a call.

    Attributes:
        content: what the model reads.
        is_error: the call failed; the model sees that.
        media: local paths of files for the user.
        data: facts for programs (hooks, ``--json``), never shown to the model.
    """

    content: Content
    is_error: bool = False
    media: tuple[str, ...] = ()
    data: JsonObject | None = None


ToolOutput: TypeAlias = str | ToolResult | Sequence[ContentBlock]


async def _no_progress(text: str) -> None:
    """Ignore progress."""


async def no_chat(message: OutboundMessage) -> None:
    """Refuse to send.

    Raises:
        ToolFailed: always.
    """
    msg = f"cannot send a message to {message.channel}:{message.chat_id} from here"
    raise ToolFailed(msg)


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolContext:
    """The context of one call. Tools must not store it.

    Attributes:
        session_key: session that the call belongs to.
        turn_id: turn that the call belongs to.
        call_id: id of the call.
        channel: channel of the turn.
        chat_id: chat of the turn.
        sender_id: who wrote the message.
        is_owner: the owner wrote it. Anyone else is a guest, who has a folder of their own as
            `workspace` and must not see data of others.
        message_id: platform id of that message, or ``None``.
        requester: who asks, for work that a tool has done later or by others, see `Assignment`.
        assignment: the work that the turn does, if no person's message started it.
        memory: name of the memory that the call may read and add to, see `MemoryScope`; ``None``
            for none.
        workspace: base folder of relative paths, absolute.
        files: decides what this call may read and write, approvals included. Resolve every path
            from the model with it.
        clock: source of time.
        progress: shows the user what is being done; never raises.
        send: sends a message to a chat, this one or another. In a gateway it is stored and
            delivered later; messages with equal idempotency keys are sent once. Raises
            `ToolFailed` if the chat does not exist or nothing can be sent.
    """

    session_key: str
    turn_id: str
    call_id: str
    workspace: Path
    files: PathGuard
    channel: str = "cli"
    chat_id: str = "direct"
    sender_id: str = "user"
    is_owner: bool = False
    message_id: str | None = None
    requester: Requester = field(default_factory=Requester)
    assignment: Assignment | None = None
    memory: str | None = None
    clock: Clock = field(default_factory=SystemClock)
    progress: Callable[[str], Awaitable[None]] = _no_progress
    send: Callable[[OutboundMessage], Awaitable[None]] = no_chat


@dataclass(frozen=True, slots=True, kw_only=True)
class Review:
    """A tool's judgement of one of its calls, before the call runs.

    Attributes:
        decision: whether the call may run. An owner's rule that allows it answers `Ask`; nothing
            overrides `Deny`.
        values: by argument, the texts that the owner's rules compare instead of the argument: the
            resolved path, each command of a command line. An ``allow`` rule must match all of
            them, another rule any. ``None`` means unknown: no ``allow`` rule matches, every other
            rule does.
    """

    decision: Allow | Ask | Deny = field(default_factory=Allow)
    values: Mapping[str, Sequence[str] | None] = field(default_factory=dict)


_UNREVIEWED = Review()


class Tool(ABC):
    """One tool. An instance is shared by all sessions and must hold no state of a call.

    Attributes:
        name: what the model calls, ``[a-zA-Z0-9_-]``, at most 64 characters.
        description: when to use it, when not, and what to use instead. Short and stable.
        parameters: JSON Schema of the arguments, an object schema.
        read_only: a call changes nothing.
        exclusive: no other call of the same response may run beside it.
        compactable: old results may be left out of later requests.
        idempotent: may be run again after a crash; ``None`` means as `read_only`.
        timeout_s: seconds a call may take; ``None`` means the configured limit.
        max_result_chars: of a longer result, the model reads this many characters and the name of
            a file with the whole; ``None`` means the configured limit, which is also the maximum.
        for_guests: also offered to senders who are not the owner. Such a tool shows and changes
            only data of the sender; see `ToolContext.is_owner`.
        source: origin besides its plugin, such as ``MCP server 'time'``; shown to the owner. Tools
            with a source come after all others in a request.
        parameters_model: the pydantic model that `parameters` describes. Arguments are then
            validated by it; ``None`` validates them by `parameters`.
    """

    name: str
    description: str
    parameters: JsonObject
    read_only: bool = False
    exclusive: bool = False
    compactable: bool = False
    idempotent: bool | None = None
    timeout_s: float | None = None
    max_result_chars: int | None = None
    for_guests: bool = False
    source: str = ""
    parameters_model: type[BaseModel] | None = None

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        execute = cls.__dict__.get("execute")
        if isinstance(execute, FunctionType) and _takes_parameters(execute):
            setattr(cls, "execute", _with_parameters(execute))  # noqa: B010 - a method

    @abstractmethod
    async def execute(self, context: ToolContext, arguments: JsonObject) -> ToolOutput:
        """Run one call.

        A tool that needs no context may take its parameters by name instead:
        ``async def execute(self, path, **params)``.

        Args:
            context: of the call.
            arguments: cast and validated against `parameters`; the tool may keep or change them.

        Returns:
            Text, blocks of text and images, or a `ToolResult`. Empty text is reported to the
            model as completion without output.

        Raises:
            ToolInputError: the model may correct its arguments.
            ToolFailed: the call failed for good.

        Cancellation:
            The turn was stopped or the time is up. Everything the call started must be ended
            before the cancellation is passed on.
        """

    async def review(self, context: ToolContext, arguments: JsonObject) -> Review:
        """Judge a call before it runs; changes nothing.

        Override it if the arguments decide whether the owner must be asked. It runs within a limit
        of five seconds; a failure refuses the call.

        Args:
            context: of the call; `ToolContext.files` has no approvals yet.
            arguments: as for `execute`.
        """
        return _UNREVIEWED

    @property
    def concurrency_safe(self) -> bool:
        """Whether neighbours in one response may run at the same time."""
        return self.read_only and not self.exclusive

    @property
    def definition(self) -> ToolDefinition:
        """Name, description and parameters, as the model sees them."""
        return ToolDefinition(
            name=self.name, description=self.description, parameters=self.parameters
        )

    def to_schema(self) -> JsonObject:
        """Return the OpenAI function-calling form."""
        return self.definition.to_schema()


def _takes_parameters(execute: FunctionType) -> bool:
    """Whether `execute` takes the parameters by name, and not the context and the arguments."""
    code = execute.__code__
    names = code.co_varnames[1 : code.co_argcount]
    if len(names) != 2 or code.co_kwonlyargcount or code.co_flags & inspect.CO_VARKEYWORDS:
        return True
    annotation = execute.__annotations__.get(names[0], "")
    is_context = "context" in names[0] or names[0] in {"_", "ctx"}
    return not is_context and "ToolContext" not in str(annotation)


def _with_parameters(
    execute: Callable[..., Awaitable[ToolOutput]],
) -> Callable[..., Awaitable[ToolOutput]]:
    @functools.wraps(execute)
    async def with_parameters(self: Tool, *given: Any, **params: Any) -> ToolOutput:
        return await execute(self, **(given[1] if given else params))

    return with_parameters


@dataclass(frozen=True, slots=True)
class DeclaredTool:
    """What is known of a tool without its code, such as from its plugin's manifest; see `Tool`.

    Attributes:
        definition: what the model sees of the tool.
        read_only: a call changes nothing.
        compactable: old results may be left out of later requests.
        idempotent: a call may be run again after a crash.
        for_guests: offered to senders who are not the owner, too.
    """

    definition: ToolDefinition
    read_only: bool = False
    compactable: bool = False
    idempotent: bool = False
    for_guests: bool = False

    @classmethod
    def of(cls, tool: Tool) -> DeclaredTool:
        """Return what is known of `tool`."""
        idempotent = tool.read_only if tool.idempotent is None else tool.idempotent
        return cls(tool.definition, tool.read_only, tool.compactable, idempotent, tool.for_guests)


@dataclass(frozen=True, slots=True)
class LazyTool:
    """A tool whose module is imported at its first call.

    The model is offered it from the definition in the plugin's manifest.

    Attributes:
        name: the tool's name.
        factory: ``package.module:name`` of a `Tool` instance, or of a callable that takes the
            plugin's context and returns one (a `Tool` class with such an ``__init__`` will do).
    """

    name: str
    factory: str
