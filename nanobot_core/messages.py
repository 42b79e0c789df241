"""The common form of messages from people, models and tools.

Everything here is frozen plain data. Channels translate their wire objects into it, providers
translate it into theirs, sessions store it. The base `Repaired` repairs each text on creation, so
that none of them has to handle half a character.
"""

from __future__ import annotations

from dataclasses import field
from datetime import datetime
from typing import Any, Literal, TypeAlias

from nanobot_core.assignment import Assignment
from nanobot_core.record import dataclass
from nanobot_core.text import Repaired, parse_json_object

JsonValue: TypeAlias = "bool | int | float | str | list[JsonValue] | dict[str, JsonValue] | None"
JsonObject: TypeAlias = dict[str, JsonValue]

Role: TypeAlias = Literal["system", "user", "assistant", "tool"]
ROLES: tuple[Role, ...] = ("system", "user", "assistant", "tool")
RUNTIME = "runtime"
"""Key in `Message.extra` of the lines that the model reads before a user's message."""
CHANGED_BY = "changed_by"
"""Key in `Message.extra` of the plugins that changed an answer or a result: ``id@version``."""
PASSAGES = "passages"
"""Key in `Message.extra` of an answer: the passages that plugins added to its request."""


@dataclass(frozen=True, slots=True)
class TextBlock(Repaired):
    """A passage of text inside mixed content."""

    text: str


@dataclass(frozen=True, slots=True)
class ImageBlock(Repaired):
    """An image inside mixed content, or a PDF document that the model reads itself.

    Attributes:
        media_type: such as ``image/png`` or ``application/pdf``.
        data: the file in base64; empty where only the place is known (stored history).
        path: the file it came from, or ``None``.
    """

    media_type: str
    data: str
    path: str | None = None

    @property
    def is_document(self) -> bool:
        """Whether it is something else than an image."""
        return not self.media_type.startswith("image/")


NO_ARGUMENTS = frozenset({"", "null"})
"""Texts that models write as the arguments of a tool without parameters."""

ContentBlock: TypeAlias = TextBlock | ImageBlock
Content: TypeAlias = str | tuple[ContentBlock, ...]


@dataclass(frozen=True, slots=True)
class ToolCall(Repaired):
    """One call that a model asked for.

    Attributes:
        id: unique within its history; results refer to it.
        name: name of the tool as the model wrote it.
        arguments: parsed arguments; empty when they could not be parsed.
        unparsed: the argument text if it is not an object, else ``None``.
    """

    id: str
    name: str
    arguments: JsonObject
    unparsed: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Message(Repaired):
    """One entry of a history.

    Attributes:
        role: who speaks.
        content: text, or text and images in order.
        tool_calls: requested by an assistant message.
        tool_call_id: the call that a tool message answers.
        name: name of the tool in a tool message.
        reasoning: the model's thinking, kept apart from what users read.
        provider_blocks: opaque parts that the provider expects back unchanged (signed thinking).
        timestamp: when it was said, aware.
        inbound_id: id of the inbound message that a user entry came from.
        origin: ``plugin@version`` that produced a tool message.
        is_error: a tool message that reports a failure.
        extra: fields of other writers, kept when the entry is stored again.
    """

    role: Role
    content: Content = ""
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None
    name: str | None = None
    reasoning: str | None = None
    provider_blocks: tuple[JsonObject, ...] = ()
    timestamp: datetime | None = None
    inbound_id: str | None = None
    origin: str | None = None
    is_error: bool = False
    extra: JsonObject = field(default_factory=dict)

    @property
    def text(self) -> str:
        """The textual content, passages joined by line feeds, images left out."""
        return content_text(self.content)


@dataclass(frozen=True, slots=True)
class Usage:
    """The consumption of a model call.

    Attributes:
        prompt_tokens: tokens sent, cached ones included.
        completion_tokens: tokens received, reasoning included.
        cached_tokens: part of `prompt_tokens` that the provider had cached.
        reasoning_tokens: part of `completion_tokens` that was thinking.
        cost_usd: price in US dollars, as the service names it, or ``None``.
        estimated_usd: the same by the list prices of the model, if the service names none.
    """

    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    reasoning_tokens: int = 0
    cost_usd: float | None = None
    estimated_usd: float | None = None

    @property
    def total_tokens(self) -> int:
        """Tokens sent and received."""
        return self.prompt_tokens + self.completion_tokens

    @property
    def known_usd(self) -> float | None:
        """The price as the service names it and by list prices, or ``None`` if none is known."""
        return _sum(self.cost_usd, self.estimated_usd)

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            prompt_tokens=self.prompt_tokens + other.prompt_tokens,
            completion_tokens=self.completion_tokens + other.completion_tokens,
            cached_tokens=self.cached_tokens + other.cached_tokens,
            reasoning_tokens=self.reasoning_tokens + other.reasoning_tokens,
            cost_usd=_sum(self.cost_usd, other.cost_usd),
            estimated_usd=_sum(self.estimated_usd, other.estimated_usd),
        )


def _sum(*amounts: float | None) -> float | None:
    known = [amount for amount in amounts if amount is not None]
    return sum(known) if known else None


@dataclass(frozen=True, slots=True, kw_only=True)
class InboundMessage(Repaired):
    """A message from a channel, the command line or a program.

    Attributes:
        channel: name of the channel.
        sender_id: who wrote. A channel gives the platform's id alone; once the message is admitted
            the names follow it, each behind a ``|``, which neither an id nor a name can hold.
        chat_id: where the answer goes.
        content: text as written.
        sender_names: names of the sender, as the channel gives them; empty once the message is
            admitted.
        id: unique id of this message within nanobot.
        media: local paths of attached files.
        timestamp: when it was written, aware; ``None`` if unknown.
        metadata: facts of the platform, plain data.
        session_key_override: session to use instead of ``channel:chat_id``.
        dedupe_key: the platform's own message id, or ``None``.
        is_group: the chat has more people than the sender.
        is_addressed: in a group, the message mentions the agent or answers it.
        is_forwarded: the text is someone else's, such as a forwarded message or a mail; the model
            reads it as a quotation.
        is_control: waits for no other message of its session; set for control commands.
        assignment: the work to do, if no person wrote the message; `content` is the task.
    """

    channel: str
    sender_id: str
    chat_id: str
    content: str
    sender_names: tuple[str, ...] = ()
    id: str = ""
    media: tuple[str, ...] = ()
    timestamp: datetime | None = None
    metadata: JsonObject = field(default_factory=dict)
    session_key_override: str | None = None
    dedupe_key: str | None = None
    is_group: bool = False
    is_addressed: bool = False
    is_forwarded: bool = False
    is_control: bool = False
    assignment: Assignment | None = None

    @classmethod
    def of(cls, assignment: Assignment, content: str) -> InboundMessage:
        """Return the message with which work enters the agent."""
        requester, key = assignment.requester, f"{assignment.plugin}/{assignment.id}"
        return cls(
            channel=requester.channel,
            sender_id=requester.sender_id,
            chat_id=requester.chat_id,
            content=content,
            id=key,
            dedupe_key=key,
            session_key_override=assignment.session_key or requester.session_key,
            is_group=requester.is_group,
            assignment=assignment,
        )

    @property
    def session_key(self) -> str:
        """Key of the session that this message belongs to."""
        return self.session_key_override or f"{self.channel}:{self.chat_id}"

    @property
    def identity(self) -> tuple[str, str] | None:
        """What a repetition has in common with it: channel and dedupe key, if it has one.

        Work may be given again for another chat of its requester, and is still the same.
        """
        if self.dedupe_key is None:
            return None
        return "" if self.assignment else self.channel, self.dedupe_key


OutboundKind: TypeAlias = Literal["final", "progress", "tool_hint", "notice"]


@dataclass(frozen=True, slots=True)
class Button(Repaired):
    """A button below a message.

    Attributes:
        label: what people read.
        value: content of the message that arrives when it is pressed, at most 64 bytes in UTF-8
            (the limit of Telegram's ``callback_data``).
    """

    label: str
    value: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OutboundMessage(Repaired):
    """A message to a chat.

    Attributes:
        channel: name of the channel.
        chat_id: chat on that channel.
        content: text in Markdown.
        kind: why it is sent; channels may filter all but ``final``.
        reply_to: platform id of the message that it answers, or ``None``.
        media: local paths of files to send along.
        metadata: facts for the channel, plain data.
        idempotency_key: equal keys are the same message; sent once.
        buttons: rows of buttons; channels without buttons leave them out.
        draft_id: the draft that this message completes, or ``None``.
    """

    channel: str
    chat_id: str
    content: str
    kind: OutboundKind = "final"
    reply_to: str | None = None
    media: tuple[str, ...] = ()
    metadata: JsonObject = field(default_factory=dict)
    idempotency_key: str = ""
    buttons: tuple[tuple[Button, ...], ...] = ()
    draft_id: str | None = None


def content_text(content: Content) -> str:
    """Return the text of `content`, passages joined by line feeds, images left out."""
    if isinstance(content, str):
        return content
    return "\n".join(block.text for block in content if isinstance(block, TextBlock))


def message_to_json(message: Message) -> JsonObject:
    """Return `message` as a JSON object in the OpenAI key names; absent parts are left out."""
    record: dict[str, Any] = {**message.extra, "role": message.role}
    record["content"] = _content_to_json(message.content)
    if message.tool_calls:
        record["tool_calls"] = [_tool_call_to_json(call) for call in message.tool_calls]
    if message.provider_blocks:
        record["provider_blocks"] = list(message.provider_blocks)
    optional = {
        "tool_call_id": message.tool_call_id,
        "name": message.name,
        "reasoning_content": message.reasoning,
        "inbound_id": message.inbound_id,
        "origin": message.origin,
    }
    record |= {key: value for key, value in optional.items() if value is not None}
    if message.is_error:
        record["is_error"] = True
    if message.timestamp is not None:
        record["timestamp"] = message.timestamp.isoformat()
    return record


def message_from_json(record: JsonObject) -> Message:
    """Return the message that `record` describes; unknown fields go to ``extra``.

    Fields of a wrong type count as absent: histories may come from other programs, and one invalid
    field must not make the rest unreadable.

    Raises:
        ValueError: the role is missing or unknown.
    """
    rest = dict(record)
    role = rest.pop("role", None)
    if role not in ROLES:
        msg = f"role must be one of {', '.join(ROLES)}, found {role!r}"
        raise ValueError(msg)
    calls = rest.pop("tool_calls", None)
    blocks = rest.pop("provider_blocks", None)
    return Message(
        role=role,
        content=_content_from_json(rest.pop("content", "")),
        tool_calls=tuple(
            call
            for item in (calls if isinstance(calls, list) else ())
            if (call := _tool_call_from_json(item))
        ),
        provider_blocks=tuple(
            block
            for block in (blocks if isinstance(blocks, list) else ())
            if isinstance(block, dict)
        ),
        tool_call_id=_text_or_none(rest.pop("tool_call_id", None)),
        name=_text_or_none(rest.pop("name", None)),
        reasoning=_text_or_none(rest.pop("reasoning_content", None)),
        inbound_id=_text_or_none(rest.pop("inbound_id", None)),
        origin=_text_or_none(rest.pop("origin", None)),
        is_error=rest.pop("is_error", None) is True,
        timestamp=_instant_or_none(rest.pop("timestamp", None)),
        extra=rest,
    )


def _content_to_json(content: Content) -> JsonValue:
    if isinstance(content, str):
        return content
    blocks: list[JsonValue] = []
    for block in content:
        if isinstance(block, TextBlock):
            blocks.append({"type": "text", "text": block.text})
        else:
            image: JsonObject = {
                "type": "image",
                "media_type": block.media_type,
                "data": block.data,
            }
            if block.path is not None:
                image["path"] = block.path
            blocks.append(image)
    return blocks


def _content_from_json(value: JsonValue) -> Content:
    if isinstance(value, str):
        return value
    if not isinstance(value, list):
        return ""
    blocks = [block for item in value if (block := _block_from_json(item)) is not None]
    return tuple(blocks)


def _block_from_json(item: JsonValue) -> ContentBlock | None:
    if isinstance(item, str):
        return TextBlock(item)
    if not isinstance(item, dict):
        return None
    text = item.get("text")
    if isinstance(text, str):
        return TextBlock(text)
    media_type, data = item.get("media_type"), item.get("data")
    if isinstance(media_type, str) and isinstance(data, str):
        return ImageBlock(media_type, data, _text_or_none(item.get("path")))
    url = item.get("image_url")
    if isinstance(url, dict) and isinstance(address := url.get("url"), str):
        head, _, encoded = address.partition(";base64,")
        return ImageBlock(head.removeprefix("data:"), encoded)
    return None


def _tool_call_to_json(call: ToolCall) -> JsonObject:
    arguments: JsonValue = call.arguments if call.unparsed is None else call.unparsed
    return {"id": call.id, "name": call.name, "arguments": arguments}


def _tool_call_from_json(item: JsonValue) -> ToolCall | None:
    """Read our own form or the nested OpenAI form, whose arguments are JSON in a string."""
    if not isinstance(item, dict):
        return None
    nested = item.get("function")
    source = nested if isinstance(nested, dict) else item
    call_id, name = item.get("id"), source.get("name")
    if not isinstance(name, str):
        return None
    arguments = source.get("arguments")
    if isinstance(arguments, str) and arguments.strip() not in NO_ARGUMENTS:
        parsed = parse_json_object(arguments)
        unparsed = arguments if parsed is None else None
        return ToolCall(str(call_id or ""), name, parsed or {}, unparsed)
    return ToolCall(str(call_id or ""), name, arguments if isinstance(arguments, dict) else {})


def _text_or_none(value: JsonValue) -> str | None:
    return value if isinstance(value, str) else None


def _instant_or_none(value: JsonValue) -> datetime | None:
    if not isinstance(value, str):
        return None
    try:
        return datetime.fromisoformat(value)
    except ValueError:
        return None


def json_type(value: object) -> str:
    """Return the JSON name of the type of `value`."""
    names = {type(None): "null", bool: "boolean", int: "integer", float: "number"}
    names |= {str: "string", list: "array", dict: "object"}
    return names.get(type(value), type(value).__name__)
