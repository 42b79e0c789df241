"""The protocol of the control socket: one JSON object in each line."""

from __future__ import annotations

import asyncio
import json
from asyncio import StreamReader, StreamWriter
from dataclasses import asdict, fields, is_dataclass
from datetime import datetime
from functools import cache
from types import UnionType
from typing import TYPE_CHECKING, Any, TypeVar, Union, get_args, get_origin, get_type_hints

from nanobot_core import events
from nanobot_core.errors import NanobotError

if TYPE_CHECKING:
    from pathlib import Path

    from nanobot_core.events import RunEvent
    from nanobot_core.messages import JsonObject

T = TypeVar("T")
MAX_LINE_BYTES = 16 * 1024 * 1024
WRITE_LIMIT_S = 60.0
MAX_PATH_BYTES = 100
"""The address of a socket has at most 108 bytes on Linux, 104 on macOS (``sun_path``)."""


class ControlError(NanobotError):
    """The gateway refused or could not handle a request over its control socket."""


async def read_line(reader: StreamReader) -> JsonObject | None:
    """Return the next object, or ``None`` at the end.

    Raises:
        ControlError: it is not an object, or longer than `MAX_LINE_BYTES`.
    """
    try:
        line = await reader.readline()
    except ValueError as error:
        msg = f"a line of the control socket is longer than {MAX_LINE_BYTES} bytes"
        raise ControlError(msg) from error
    if not line:
        return None
    try:
        found = json.loads(line)
    except (ValueError, RecursionError) as error:
        msg = "the control socket received something that is not JSON"
        raise ControlError(msg) from error
    if not isinstance(found, dict):
        msg = "the control socket received JSON that is not an object"
        raise ControlError(msg)
    return found


async def write_line(writer: StreamWriter, content: JsonObject) -> None:
    """Send one object.

    Raises:
        ConnectionError: the other side has disconnected, or not read for `WRITE_LIMIT_S`.
    """
    text = json.dumps(content, ensure_ascii=False, default=str)
    # Typed or piped text may contain bytes that are not UTF-8; JSON reads them unchanged.
    writer.write(text.encode(errors="surrogatepass") + b"\n")
    try:
        async with asyncio.timeout(WRITE_LIMIT_S):
            await writer.drain()
    except TimeoutError as error:
        msg = "the other side of the control socket is not reading"
        raise ConnectionError(msg) from error


def event_to_json(event: RunEvent) -> JsonObject:
    """Return an event with its type."""
    return {"type": type(event).__name__, "event": asdict(event)}


def event_from_json(content: JsonObject) -> RunEvent | None:
    """Return the event from `event_to_json`; ``None`` for an event of a newer version.

    Raises:
        ControlError: it does not match its type.
    """
    kinds = {kind.__name__: kind for kind in get_args(events.RunEvent)}
    kind = kinds.get(str(content.get("type")))
    if kind is None:
        return None
    event: RunEvent = from_json(kind, content.get("event"))
    return event


def from_json(kind: type[T], content: object) -> T:
    """Return the dataclass that `content` describes; fields of a newer version are left out.

    Raises:
        ControlError: it does not match the type.
    """
    if not isinstance(content, dict):
        msg = f"the control socket received an invalid {kind.__name__}"
        raise ControlError(msg)
    try:
        made: T = _made(kind, content)
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        msg = f"the control socket received an invalid {kind.__name__}: {error}"
        raise ControlError(msg) from error
    return made


def _made(wanted: Any, content: Any) -> Any:
    """Return `content` as the type of a field; plain data stays unchanged."""
    if content is None:
        return None
    if is_dataclass(wanted) and isinstance(wanted, type):
        hints = _hints(wanted)
        names = {item.name for item in fields(wanted)}
        return wanted(
            **{name: _made(hints[name], value) for name, value in content.items() if name in names}
        )
    if wanted is datetime:
        return datetime.fromisoformat(content)
    if get_origin(wanted) is tuple:
        inner, *rest = get_args(wanted)
        kinds = [inner] * len(content) if rest == [...] else [inner, *rest]
        return tuple(_made(kind, item) for kind, item in zip(kinds, content, strict=True))
    if get_origin(wanted) in {Union, UnionType} and type(None) in get_args(wanted):
        [inner] = [kind for kind in get_args(wanted) if kind is not type(None)][:1]
        return _made(inner, content)
    return content


@cache
def _hints(kind: type) -> dict[str, Any]:
    # The alias names itself, in modules that do not import it; what it stands for stays as it is.
    return get_type_hints(kind, localns={"JsonValue": object})


def socket_address(folder: Path, folder_fd: int) -> str:
    """Return an address of the socket in `folder` that is short enough.

    Args:
        folder: folder of the gateway.
        folder_fd: a descriptor of `folder`.
    """
    path = folder / "control.sock"
    if len(str(path).encode()) <= MAX_PATH_BYTES:
        return str(path)
    return f"/proc/self/fd/{folder_fd}/control.sock"
