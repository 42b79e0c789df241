"""The parts of Mochat's answers that the channel reads. Other fields are ignored.

Mochat publishes no documentation; the shapes are those that the original handles.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AliasChoices, BaseModel, BeforeValidator, ConfigDict, Field
from pydantic.alias_generators import to_camel


def _text(value: object) -> object:
    """Read a missing text as an empty one, and a number as text."""
    if value is None:
        return ""
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _object(value: object) -> object:
    return value if isinstance(value, dict) else {}


Text = Annotated[str, BeforeValidator(_text)]


class _Wire(BaseModel):
    model_config = ConfigDict(
        frozen=True,
        extra="ignore",
        alias_generator=to_camel,
        populate_by_name=True,
        defer_build=True,
    )


class Author(_Wire):
    """Who wrote a message.

    Attributes:
        agent_id: of an agent; empty for a person.
    """

    nickname: Text = ""
    email: Text = ""
    agent_id: Text = ""


class Message(_Wire):
    """A message of a session or a panel."""

    message_id: Text = Field("", validation_alias=AliasChoices("messageId", "_id"))
    author: Text = ""
    author_info: Annotated[Author, BeforeValidator(_object)] = Author()
    content: Any = None
    meta: Annotated[dict[str, Any], BeforeValidator(_object)] = {}
    group_id: Text = ""
    created_at: Text = ""


class Event(_Wire):
    """An event of a session; only ``message.add`` has a message that the channel reads."""

    seq: int = 0
    type: Text = ""
    timestamp: Text = ""
    payload: Annotated[dict[str, Any], BeforeValidator(_object)] = {}


class Events(_Wire):
    """The answer to ``sessions/watch``."""

    cursor: int = Field(0, ge=0)
    events: tuple[dict[str, Any], ...] = ()


class Messages(_Wire):
    """The answer to ``groups/panels/messages``, newest first."""

    group_id: Text = ""
    messages: tuple[dict[str, Any], ...] = ()


class Panel(_Wire):
    """A panel; type 0 has messages."""

    id: Text = Field("", validation_alias=AliasChoices("id", "_id"))
    type: int = 0


class Listed(_Wire):
    """A session in the list of the agent's sessions."""

    session_id: Text = ""
