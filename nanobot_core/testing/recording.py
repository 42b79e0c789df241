"""Recordings of hook calls: how calls become lines of JSON, and lines become calls again.

A recording has one JSON object in each line: the first describes the file, each other is a call.
"""

from __future__ import annotations

import dataclasses
import json
import math
import re
import types
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from datetime import UTC, datetime
from enum import Enum
from pathlib import Path
from typing import Any, Final, TypeVar

import nanobot_core
from nanobot_core._version import __version__
from nanobot_core.errors import NanobotError
from nanobot_core.events import HookCalled
from nanobot_core.hooks.caller import declared_hooks
from nanobot_core.messages import JsonObject, JsonValue
from nanobot_core.record import dataclass
from nanobot_core.testing.sample import type_hints

FORMAT: Final = "nanobot-hook-calls"
VERSION: Final = 1
MAX_TEXT_CHARS: Final = 20_000
"""Longer texts are cut."""
MAX_SCANNED_CHARS: Final = 1_000_000
"""Longer texts are left out, because searching them for secrets takes too long."""
MAX_LINE_BYTES: Final = 2_000_000
"""Of a longer call, only its number and the name of the hook are recorded."""
_MAX_DEPTH: Final = 60
_TYPE: Final = "$type"
_CREDENTIALS: Final = re.compile(r"(?i)\b(bearer|basic)\s+[\w.~+/=-]{8,}")
_SCALARS: Final = (str, bool, int, float)

Redact = Callable[[JsonObject], JsonObject]
ValueT = TypeVar("ValueT")


class RecordingUnusable(NanobotError):
    """A file is not a recording that this release can read; the message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedCall:
    """One line of a recording.

    Attributes:
        number: that of the call in its program.
        hook: name of the hook.
        event: its argument, as plain data.
        answer: what the call returned, as plain data.
        error: type and message of what it raised, or ``None``.
        is_shortened: part of it is not recorded, because it is too long or no data.
    """

    number: int
    hook: str
    event: JsonValue = None
    answer: JsonValue = None
    error: str | None = None
    is_shortened: bool = False


@dataclass(frozen=True, slots=True)
class Recording:
    """The calls of a file, and what is missing or unknown in it, in words."""

    calls: tuple[RecordedCall, ...]
    problems: tuple[str, ...]


def header_line(now: datetime | None = None) -> str:
    """Return the first line of a recording.

    Args:
        now: the time of the recording; by default the present.
    """
    header: JsonObject = {
        "format": FORMAT,
        "version": VERSION,
        "core": __version__,
        "recorded": (now or datetime.now(UTC)).isoformat(timespec="seconds"),
        "hooks": {name: point.revision for name, point in declared_hooks().items()},
    }
    return json.dumps(header) + "\n"


def call_line(call: HookCalled, redact: Redact) -> str:
    """Return a call as a line.

    Args:
        call: what was called, and how it answered.
        redact: returns a copy of data without secrets, such as `PluginContext.redact`.
    """
    data = _Plain(redact)
    line: JsonObject = {
        "number": call.number,
        "hook": call.hook,
        "revision": call.revision,
        "event": data.of(call.event),
        "answer": data.of(call.answer),
    }
    if call.error is not None:
        line["error"] = data.text(call.error)
    if data.is_shortened:
        line["shortened"] = True
    text = json.dumps(line) + "\n"
    if len(text) > MAX_LINE_BYTES:
        left_out: JsonObject = {"number": call.number, "hook": call.hook, "bytes": len(text)}
        return json.dumps(left_out) + "\n"
    return text


def plain_data(value: object) -> JsonValue:
    """Return `value` as a recording without secrets has it, to compare answers."""
    return _Plain(lambda content: content).of(value)


class _Plain:
    """Converts values of one call to plain data without secrets."""

    def __init__(self, redact: Redact) -> None:
        self.is_shortened = False
        self._redact = redact

    def text(self, value: str) -> str:
        """Return a text that may be stored."""
        found = self._without_secrets({"": value})[""]
        return found if isinstance(found, str) else ""

    def of(self, value: object, depth: int = 0) -> JsonValue:
        """Return `value` as plain data; of dataclasses, the name of the type is part of it."""
        if depth > _MAX_DEPTH:
            return self._left_out("too deep")
        if value is None or isinstance(value, bool | int):
            return value
        if isinstance(value, float):
            return value if math.isfinite(value) else self._left_out(str(value))
        if isinstance(value, str):
            return self.text(value)
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            # Names of fields are ours: `session_key` names no secret.
            found: JsonObject = {_TYPE: type(value).__name__}
            for field in dataclasses.fields(value):
                found[field.name] = self.of(getattr(value, field.name), depth + 1)
            return found
        if isinstance(value, Mapping):
            return self._without_secrets({str(key): item for key, item in value.items()}, depth)
        if isinstance(value, Set):
            return sorted((self.of(item, depth + 1) for item in value), key=str)
        if isinstance(value, Sequence) and not isinstance(value, bytes | bytearray | memoryview):
            return [self.of(item, depth + 1) for item in value]
        return self._of_object(value, depth)

    def _of_object(self, value: object, depth: int) -> JsonValue:
        if isinstance(value, Enum):
            return self.of(value.value, depth + 1)
        if isinstance(value, datetime):
            return value.isoformat()
        if isinstance(value, Path):
            return self.text(str(value))
        dump = getattr(value, "model_dump", None)  # a pydantic model: the object of an answer
        if callable(dump):
            return self.of(dump(mode="json"), depth + 1)
        return self._left_out(type(value).__name__)

    def _without_secrets(self, content: Mapping[str, object], depth: int = 0) -> JsonObject:
        bounded = self._bounded(content, depth)
        found = self._cut(self._redact(bounded if isinstance(bounded, dict) else {}))
        return found if isinstance(found, dict) else {}

    def _bounded(self, value: object, depth: int) -> JsonValue:
        """Return data of which every text can be searched for secrets."""
        if depth > _MAX_DEPTH:
            return self._left_out("too deep")
        if isinstance(value, str):
            is_long = len(value) > MAX_SCANNED_CHARS
            return self._left_out(f"{len(value)} characters") if is_long else str(value)
        if isinstance(value, Mapping):
            return {str(key): self._bounded(item, depth + 1) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self._bounded(item, depth + 1) for item in value]
        if value is None or isinstance(value, _SCALARS):
            is_number = not isinstance(value, float) or math.isfinite(value)
            return value if is_number else self._left_out(str(value))
        return self.of(value, depth + 1)

    def _cut(self, value: JsonValue) -> JsonValue:
        """Return data without secrets, with its texts cut; keys can contain secrets, too."""
        if isinstance(value, dict):
            return {
                (self.text(key) if key else key): self._cut(item) for key, item in value.items()
            }
        if isinstance(value, list):
            return [self._cut(item) for item in value]
        if not isinstance(value, str):
            return value
        value = _CREDENTIALS.sub(r"\1 ********", value)
        if len(value) <= MAX_TEXT_CHARS:
            return value
        return value[:MAX_TEXT_CHARS] + self._left_out(f"{len(value)} characters")

    def _left_out(self, what: str) -> str:
        self.is_shortened = True
        return f"… [not recorded: {what}]"


def read_recording(file: Path) -> Recording:
    """Return the calls in a file. What is damaged or unknown is left out, and reported. Blocks.

    Raises:
        RecordingUnusable: it is no recording, or one of an older format.
        OSError: it cannot be read.
    """
    problems: list[str] = []
    calls: list[RecordedCall] = []
    with file.open("rb") as lines:
        _check_header(file, _object_in(lines.readline(MAX_LINE_BYTES)), problems)
        for place, line in enumerate(_bounded_lines(lines), start=2):
            data = _object_in(line)
            number, hook = (data.get("number"), data.get("hook")) if data else (None, None)
            if data is None and not line.endswith(b"\n"):
                problems.append(f"line {place} is incomplete: the program ended while it wrote it")
            elif data is not None and "ended" in data:
                problems.append(f"line {place}: the recording ends here: {data['ended']}")
            elif data is None or not isinstance(number, int) or not isinstance(hook, str):
                problems.append(f"line {place} is not a call; it is left out")
            elif "event" not in data:
                problems.append(f"line {place}: call {number} of '{hook}' is too long; left out")
            else:
                calls.append(_call_in(number, hook, data))
    known = declared_hooks()
    numbers = [call.number for call in calls]
    problems += [f"calls are missing before number {number}" for number in _after_gaps(numbers)]
    unknown = sorted({call.hook for call in calls} - known.keys())
    problems += [f"hook '{name}' is not one of nanobot {__version__}" for name in unknown]
    return Recording(tuple(calls), tuple(problems))


def _bounded_lines(lines: typing.BinaryIO) -> Iterator[bytes]:
    """Yield the lines; of one that is too long, pieces, none of which is a call."""
    while line := lines.readline(MAX_LINE_BYTES + 1):
        yield line


def _object_in(line: bytes) -> JsonObject | None:
    try:
        found: object = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _check_header(file: Path, header: JsonObject | None, problems: list[str]) -> None:
    version = header.get("version") if header else None
    if header is None or header.get("format") != FORMAT or not isinstance(version, int):
        msg = f"'{file}' is not a recording; write one with: nanobot plugins record FILE -- agent"
        raise RecordingUnusable(msg)
    if version < VERSION:
        msg = (
            f"'{file}' has format {version}, written by nanobot {header.get('core')}; "
            f"this release reads format {VERSION}: record it again"
        )
        raise RecordingUnusable(msg)
    if version > VERSION:
        core = header.get("core")
        problems.append(f"the file has format {version} of nanobot {core}; this reads {VERSION}")
    found = header.get("hooks")
    generations = found if isinstance(found, dict) else {}
    for name, point in declared_hooks().items():
        if generations.get(name, point.revision) != point.revision:
            problems.append(
                f"hook '{name}' was recorded with generation {generations[name]} and is "
                f"{point.revision} here; its events may mean something else"
            )


def _call_in(number: int, hook: str, data: JsonObject) -> RecordedCall:
    error = data.get("error")
    return RecordedCall(
        number=number,
        hook=hook,
        event=data["event"],
        answer=data.get("answer"),
        error=None if error is None else str(error),
        is_shortened=data.get("shortened") is True,
    )


def _after_gaps(numbers: Sequence[int]) -> Iterator[int]:
    """Yield the numbers that follow a gap."""
    previous = 0
    for number in sorted(numbers):
        if number > previous + 1:
            yield number
        previous = number


class ValueReader:
    """Makes values of the core's types from plain data.

    Attributes:
        problems: what was left out, in words.
    """

    def __init__(self) -> None:
        self.problems: list[str] = []

    def read(self, kind: type[ValueT], data: JsonValue, place: str) -> ValueT:
        """Return `data` as an instance of `kind`; unknown fields are left out and reported.

        Args:
            kind: a dataclass, or any type that a field of one has.
            data: as `plain_data` returns it.
            place: where it is, for messages.

        Raises:
            ValueError: it does not fit; the message says where.
        """
        found: ValueT = self._read(kind, data, place)
        return found

    def _read(self, hint: Any, data: Any, place: str) -> Any:  # noqa: ANN401 - any type, its values
        origin, arguments = typing.get_origin(hint), typing.get_args(hint)
        if origin in {typing.Union, types.UnionType}:
            return self._read_one_of(arguments, data, place)
        if dataclasses.is_dataclass(origin or hint):
            return self._read_dataclass(origin or hint, data, place)
        if origin in {tuple, list, frozenset} or getattr(origin, "__name__", "") == "Sequence":
            return self._read_items(origin, arguments, data, place)
        if hint is datetime and isinstance(data, str):
            return datetime.fromisoformat(data)
        if hint is Path and isinstance(data, str):
            return Path(data)
        if isinstance(hint, type) and issubclass(hint, Enum):
            return hint(data)
        if hint is float and isinstance(data, int):
            return float(data)
        if hint in _SCALARS and not (
            isinstance(data, hint) and isinstance(data, bool) <= (hint is bool)
        ):
            msg = f"{place} must be {hint.__name__}, found {type(data).__name__}"
            raise ValueError(msg)
        return data

    def _read_one_of(self, hints: tuple[Any, ...], data: Any, place: str) -> Any:  # noqa: ANN401 - see above
        if data is None and types.NoneType in hints:
            return None
        if isinstance(data, dict) and _TYPE in data:
            wanted = [each for each in hints if getattr(each, "__name__", "") == data[_TYPE]]
        elif isinstance(data, list):
            wanted = [each for each in hints if typing.get_origin(each) is not None]
        else:
            wanted = [each for each in hints if isinstance(each, type) and isinstance(data, each)]
        others = [each for each in hints if each is not types.NoneType]
        return self._read((wanted or others)[0], data, place)

    def _read_dataclass(self, kind: type, data: Any, place: str) -> Any:  # noqa: ANN401 - see above
        if not isinstance(data, dict):
            msg = f"{place} must be an object, found {type(data).__name__}"
            raise ValueError(msg)
        named = getattr(nanobot_core, str(data.get(_TYPE)), kind)
        if isinstance(named, type) and issubclass(named, kind):
            kind = named  # a turn that had to give an object has an outcome of its own type
        hints, names = type_hints(kind), {field.name for field in dataclasses.fields(kind)}
        for name in sorted(data.keys() - names - {_TYPE}):
            self.problems.append(f"{place}.{name} is not known here; it is left out")
        values = {
            name: self._read(hints[name], value, f"{place}.{name}")
            for name, value in data.items()
            if name in names
        }
        try:
            return kind(**values)
        except TypeError as error:
            raise ValueError(f"{place} is not a {kind.__name__}: {error}") from error

    def _read_items(self, origin: Any, arguments: tuple[Any, ...], data: Any, place: str) -> Any:  # noqa: ANN401 - see above
        if not isinstance(data, list):
            msg = f"{place} must be a list, found {type(data).__name__}"
            raise ValueError(msg)
        is_fixed = origin is tuple and arguments[-1:] != (...,)
        kinds = arguments if is_fixed else [arguments[0] if arguments else Any] * len(data)
        if len(kinds) != len(data):
            msg = f"{place} must have {len(kinds)} items, found {len(data)}"
            raise ValueError(msg)
        made = (
            self._read(kind, item, f"{place}[{number}]")
            for number, (kind, item) in enumerate(zip(kinds, data, strict=True))
        )
        return frozenset(made) if origin is frozenset else tuple(made)
