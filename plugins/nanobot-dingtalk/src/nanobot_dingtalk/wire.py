"""The parts of DingTalk's frames and messages that the channel reads. Other fields are ignored."""

from __future__ import annotations

import json
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field
from pydantic.alias_generators import to_camel

from nanobot_core import JsonObject


def _on_one_line(name: str) -> str:
    """Return the visible characters of a name, which users choose themselves."""
    return "".join(letter for letter in " ".join(name.split()) if letter.isprintable())


def _text_or_empty(value: object) -> object:
    return "" if value is None else value


def _object_or_none(value: object) -> object:
    """Some kinds of messages have a text where others have an object."""
    return value if isinstance(value, dict) else None


_Text = Annotated[str, BeforeValidator(_text_or_empty)]
_Name = Annotated[str, BeforeValidator(_text_or_empty), AfterValidator(_on_one_line)]


class _Wire(BaseModel):
    model_config = ConfigDict(
        alias_generator=to_camel,
        coerce_numbers_to_str=True,
        defer_build=True,
        extra="ignore",
        frozen=True,
        populate_by_name=True,
    )


class Headers(_Wire):
    """Describes a frame."""

    topic: _Text = ""
    message_id: _Text = ""


class Frame(_Wire):
    """A frame of the stream; `data` is JSON in a text."""

    type: str
    headers: Headers = Headers()
    data: _Text = ""


class Quoted(_Wire):
    """A message that a reply quotes."""

    msg_type: _Text = ""
    content: Annotated[Content | None, BeforeValidator(_object_or_none)] = None


class Text(_Wire):
    """The content of a text message."""

    content: _Text = ""
    replied_msg: Annotated[Quoted | None, BeforeValidator(_object_or_none)] = None


class RichItem(_Wire):
    """A part of a rich text: text, a picture, or both."""

    text: _Text = ""
    download_code: _Text = ""
    file_name: _Name = ""


def _objects(value: object) -> object:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


class Content(_Wire):
    """The content of any other message."""

    text: _Text = ""
    download_code: _Text = ""
    file_name: _Name = ""
    recognition: _Text = ""
    rich_text: Annotated[tuple[RichItem, ...], BeforeValidator(_objects)] = ()


class BotMessage(_Wire):
    """A message to the robot."""

    msg_id: str = Field(min_length=1)
    conversation_id: str = Field(min_length=1)
    conversation_type: _Text = "1"
    sender_id: str = Field(min_length=1)
    sender_staff_id: _Text = ""
    sender_nick: _Name = ""
    chatbot_user_id: _Text = ""
    robot_code: _Text = ""
    session_webhook: _Text = ""
    session_webhook_expired_time: int | None = None
    is_in_at_list: bool | None = None
    create_at: int | None = None
    msgtype: _Text = ""
    text: Annotated[Text | None, BeforeValidator(_object_or_none)] = None
    content: Annotated[Content | None, BeforeValidator(_object_or_none)] = None


def read_data(frame: Frame) -> dict[str, Any]:
    """Return the object that a frame carries, or an empty one."""
    try:
        data = json.loads(frame.data)
    except (ValueError, RecursionError):
        return {}
    return data if isinstance(data, dict) else {}


def acknowledgement(frame: Frame, data: JsonObject | str) -> str:
    """Return the frame that confirms `frame`."""
    headers = {"messageId": frame.headers.message_id, "contentType": "application/json"}
    carried = data if isinstance(data, str) else json.dumps(data)
    return json.dumps({"code": 200, "headers": headers, "message": "OK", "data": carried})
