"""The parts of the client-server API that the channel reads. Other fields are ignored."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

_ID_CHARS = 512


def as_object(value: object) -> dict[str, Any]:
    """Return a JSON object; anything else counts as an empty one."""
    return value if isinstance(value, dict) else {}


def as_id(value: object) -> str:
    """Return an id or a key that someone chose; anything that cannot be one counts as empty.

    JSON can contain what is no valid text, and what other libraries then refuse with an exception.
    """
    is_valid = isinstance(value, str) and len(value) <= _ID_CHARS and value.isprintable()
    return str(value) if is_valid else ""


Fields = Annotated[dict[str, Any], BeforeValidator(as_object)]


class _Wire(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore", defer_build=True)


class Event(_Wire):
    """An event of a room. Only `sender` and `event_id` are from the homeserver."""

    type: str = ""
    event_id: str = ""
    sender: str = ""
    state_key: str | None = None
    origin_server_ts: int = 0
    content: Fields = {}
    unsigned: Fields = {}


class Timeline(_Wire):
    """What happened in a room since the last sync; `limited` if only its end is listed."""

    events: tuple[Fields, ...] = ()
    limited: bool = False
    prev_batch: str = ""


class Events(_Wire):
    """Events of the state of a room, or to this device."""

    events: tuple[Fields, ...] = ()


class Summary(_Wire):
    """Numbers of members; missing if they have not changed."""

    joined: int | None = Field(None, validation_alias="m.joined_member_count")
    invited: int | None = Field(None, validation_alias="m.invited_member_count")


class JoinedRoom(_Wire):
    """A room that the agent is a member of."""

    timeline: Timeline = Timeline()
    state: Events = Events()
    summary: Summary = Summary()


class InvitedRoom(_Wire):
    """A room that the agent is invited to."""

    invite_state: Events = Events()


class Rooms(_Wire):
    """The rooms of a sync, each read by itself."""

    join: Fields = {}
    invite: Fields = {}


class ToDevice(_Wire):
    """What a device sent to this device; `sender` is from the homeserver."""

    type: str = ""
    sender: str = ""
    content: Fields = {}


class DeviceLists(_Wire):
    """People whose devices changed since the last sync."""

    changed: tuple[Any, ...] = ()
    left: tuple[Any, ...] = ()


class Sync(_Wire):
    """The answer to ``/sync``. The last two are missing if the homeserver does not say."""

    next_batch: str = Field(min_length=1)
    rooms: Annotated[Rooms, BeforeValidator(as_object)] = Rooms()
    to_device: Annotated[Events, BeforeValidator(as_object)] = Events()
    device_lists: Annotated[DeviceLists, BeforeValidator(as_object)] = DeviceLists()
    device_one_time_keys_count: dict[str, Any] | None = None
    device_unused_fallback_key_types: tuple[Any, ...] | None = None


class DeviceKeys(_Wire):
    """The answer to ``/keys/query``: keys by person, and the homeservers that did not answer."""

    device_keys: Fields = {}
    master_keys: Fields = {}
    self_signing_keys: Fields = {}
    failures: Fields = {}


class Messages(_Wire):
    """The answer to ``/messages``; `end` is missing at the end."""

    chunk: tuple[Fields, ...] = ()
    end: str = ""


class Account(_Wire):
    """The answer to ``/account/whoami`` or ``/login``."""

    user_id: str = Field(min_length=1)
    device_id: str = ""
    access_token: str = ""
