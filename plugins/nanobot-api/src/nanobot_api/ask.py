"""Requests of both endpoints, in one form."""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Final, Literal, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, JsonValue, ValidationError

from nanobot_api.error import refuse
from nanobot_core import (
    ContentBlock,
    ImageBlock,
    JsonObject,
    Message,
    TextBlock,
    ToolDefinition,
    message_from_json,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from nanobot_core import Content

_WireT = TypeVar("_WireT", bound=BaseModel)
MAX_TOOLS: Final = 128
"""As the services themselves allow (OpenAI, "Function calling")."""
_MAGIC: Final = {
    b"\x89PNG\r\n\x1a\n": "image/png",
    b"\xff\xd8\xff": "image/jpeg",
    b"GIF87a": "image/gif",
    b"GIF89a": "image/gif",
}
_TEXT_PARTS: Final = frozenset({"text", "input_text", "output_text"})
_MAX_NAMED: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """What a program asks for.

    Attributes:
        model: as it was named.
        system: its instructions, or an empty string.
        messages: the conversation, without system messages; not empty.
        tools: that the program runs.
        stream: the answer is sent while it is made.
        include_usage: the stream ends with the usage.
        max_tokens: most tokens of the answer, or ``None``.
        user: the field ``user``, or empty.
        previous: id of the response that this one continues, without prefix, or empty.
        store: the response can be continued.
    """

    model: str
    system: str
    messages: tuple[Message, ...]
    tools: tuple[ToolDefinition, ...] = ()
    stream: bool = False
    include_usage: bool = False
    max_tokens: int | None = None
    user: str = ""
    previous: str = ""
    store: bool = False


class Wire(BaseModel):
    """An object of a request; fields that it does not have are ignored."""

    model_config = ConfigDict(frozen=True, strict=True, extra="ignore", hide_input_in_errors=True)


def _as_address(value: object) -> object:
    return {"url": value} if isinstance(value, str) else value


class _Address(Wire):
    url: str


class _Part(Wire):
    type: Literal["text", "input_text", "output_text", "refusal", "image_url", "input_image"]
    text: str | None = None
    refusal: str | None = None
    image_url: Annotated[_Address | None, BeforeValidator(_as_address)] = None


def as_tuple(value: object) -> object:
    """Return the list that comes from JSON as pydantic's strict mode wants it."""
    return tuple(value) if isinstance(value, list) else value


def _as_parts(value: object) -> object:
    if value is None:
        return ()
    return ({"type": "text", "text": value},) if isinstance(value, str) else as_tuple(value)


Parts = Annotated[tuple[_Part, ...], BeforeValidator(_as_parts)]


class FunctionWire(Wire):
    """A tool of the caller."""

    name: str = Field(pattern=r"^[a-zA-Z0-9_-]{1,64}$")
    description: str | None = None
    parameters: dict[str, JsonValue] | None = None

    def definition(self) -> ToolDefinition:
        """Return the tool as models see it."""
        parameters: JsonObject = {"type": "object", "properties": {}}
        return ToolDefinition(
            name=self.name,
            description=self.description or "",
            parameters=self.parameters or parameters,
        )


class FormatWire(Wire):
    """The form that an answer must have."""

    type: str


def parse(model: type[_WireT], body: bytes) -> _WireT:
    """Return the object in a body.

    Raises:
        ApiError: the body is not one; the error names the first wrong field.
    """
    try:
        return model.model_validate_json(body)
    except ValidationError as error:
        found = error.errors(include_url=False, include_context=False, include_input=False)
        places = [f"{_path(one['loc']) or 'body'}: {one['msg']}" for one in found[:_MAX_NAMED]]
        raise refuse("; ".join(places), param=_path(found[0]["loc"]) or None) from None


def _path(steps: Iterable[int | str]) -> str:
    text = ""
    for step in steps:
        text += f"[{step}]" if isinstance(step, int) else f".{step}"
    return text.removeprefix(".")


def read_content(parts: Sequence[_Part], place: str) -> Content:
    """Return the content of a message: text, or text and pictures in order.

    Args:
        place: path of the parts in the request.

    Raises:
        ApiError: a part has no content, or refers to a picture elsewhere.
    """
    blocks: list[ContentBlock] = []
    for number, part in enumerate(parts):
        param = f"{place}[{number}]"
        if part.type in _TEXT_PARTS:
            blocks.append(TextBlock(_demanded(part.text, f"{param}.text")))
        elif part.type == "refusal":
            blocks.append(TextBlock(_demanded(part.refusal, f"{param}.refusal")))
        else:
            address = _demanded(part.image_url, f"{param}.image_url")
            blocks.append(_read_image(address.url, f"{param}.image_url"))
    if all(isinstance(block, TextBlock) for block in blocks):
        return "\n".join(block.text for block in blocks if isinstance(block, TextBlock))
    return tuple(blocks)


ValueT = TypeVar("ValueT")


def _demanded(value: ValueT | None, param: str) -> ValueT:
    if value is None:
        msg = f"{param}: Field required"
        raise refuse(msg, param=param)
    return value


def _read_image(url: str, param: str) -> ImageBlock:
    head, comma, encoded = url.partition(",")
    if not (head.startswith("data:") and head.endswith(";base64") and comma):
        # An address would let programs choose what this machine fetches.
        message = f"{param}: only data URLs in base64 are accepted; nothing is fetched from the web"
        raise refuse(message, param=param, code="invalid_image_url")
    try:
        data = base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError):
        message = f"{param}: the data URL is not valid base64"
        raise refuse(message, param=param, code="invalid_base64") from None
    media_type = next((name for magic, name in _MAGIC.items() if data.startswith(magic)), "")
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        media_type = "image/webp"
    if not media_type:
        message = f"{param}: the data is no PNG, JPEG, GIF or WebP picture"
        raise refuse(message, param=param, code="invalid_image_format")
    return ImageBlock(media_type, encoded)


def read_message(
    role: str, content: Content, *, calls: Sequence[JsonObject] = (), answers: str | None = None
) -> Message:
    """Return a message of the conversation.

    Args:
        role: of the message.
        content: of the message.
        calls: tool calls in the nested form of chat completions.
        answers: id of the call whose result it is.
    """
    record: JsonObject = {"role": role, "content": "", "tool_calls": list[JsonValue](calls)}
    if answers is not None:
        record["tool_call_id"] = answers
    message = message_from_json(record)
    return Message(
        role=message.role,
        content=content,
        tool_calls=message.tool_calls,
        tool_call_id=message.tool_call_id,
    )


def as_call(call_id: str, name: str, arguments: str) -> JsonObject:
    """Return a tool call in the nested form of chat completions."""
    return {
        "id": call_id,
        "type": "function",
        "function": {"name": name, "arguments": arguments},
    }


def demand_plain(wanted: FormatWire | None, param: str) -> None:
    """Refuse a request for an answer in JSON, which no model here is forced to give.

    Raises:
        ApiError: the answer must have another form than text.
    """
    if wanted is not None and wanted.type != "text":
        message = f"{param}: only 'text' is supported; ask for JSON in the instructions"
        raise refuse(message, param=param, code="unsupported_parameter")


def choose_tools(
    tools: Sequence[ToolDefinition], choice: JsonValue, *, param: str = "tool_choice"
) -> tuple[ToolDefinition, ...]:
    """Return the tools that the model may call.

    Raises:
        ApiError: the model must call one, which cannot be enforced, or there are too many.
    """
    if choice == "none":
        return ()
    if choice not in (None, "auto"):
        message = f"{param}: only 'auto' and 'none' are supported"
        raise refuse(message, param=param, code="unsupported_parameter")
    if len(tools) > MAX_TOOLS:
        raise refuse(f"tools: at most {MAX_TOOLS} are accepted", param="tools")
    names = [tool.name for tool in tools]
    if len({*names}) < len(names):
        raise refuse("tools: two tools have the same name", param="tools")
    return tuple(tools)


def demand_messages(messages: Sequence[Message], param: str) -> tuple[Message, ...]:
    """Return `messages` if there are any.

    Raises:
        ApiError: there are none besides instructions.
    """
    if not messages:
        raise refuse(f"{param}: a message of the user is needed", param=param)
    return tuple(messages)
