"""Scripts: conversations in YAML that the offline provider replays.

A script is a list with one entry for each model call. An entry is a part or a list of parts that
stream in order: ``text``, ``think``, ``call`` (with ``arguments``), ``delay_s`` and ``error``.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal, TypeAlias

import yaml
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    JsonValue,
    NonNegativeFloat,
    Tag,
    TypeAdapter,
    ValidationError,
)

from nanobot_core import ConfigInvalid, ConfigProblem, ConfigUnreadable, shorten

ErrorName: TypeAlias = Literal[
    "AuthenticationFailed",
    "BadRequest",
    "ContextTooLong",
    "Overloaded",
    "ProviderProtocolError",
    "ProviderTimeout",
    "RateLimited",
    "Unreachable",
]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, coerce_numbers_to_str=True)


class TextPart(_Part):
    """Some text; ``{user}`` in it is replaced by the user's text."""

    text: str


class ThinkPart(_Part):
    """Some thinking."""

    think: str


class CallPart(_Part):
    """A tool call."""

    call: str
    arguments: dict[str, JsonValue] = {}


class DelayPart(_Part):
    """A wait, in seconds."""

    delay_s: NonNegativeFloat


class ErrorPart(_Part):
    """The end of the call with an error of that class; nothing may follow."""

    error: ErrorName
    reason: str = "the script says so"
    retry_after_s: NonNegativeFloat | None = None
    status: int | None = None


_KINDS = ("text", "think", "call", "delay_s", "error")


def _kind_of(part: object) -> str | None:
    """Tag of a part; the brackets keep tags apart from keys where an error names its place."""
    if not isinstance(part, dict):
        return None
    return next((f"<{kind}>" for kind in _KINDS if kind in part), None)


def _as_list(step: object) -> object:
    return step if isinstance(step, list) else [step]


Part: TypeAlias = Annotated[
    Annotated[TextPart, Tag("<text>")]
    | Annotated[ThinkPart, Tag("<think>")]
    | Annotated[CallPart, Tag("<call>")]
    | Annotated[DelayPart, Tag("<delay_s>")]
    | Annotated[ErrorPart, Tag("<error>")],
    Discriminator(
        _kind_of,
        custom_error_type="part",
        custom_error_message="a part has one of the keys text, think, call, delay_s, error",
    ),
]


def _error_last(parts: tuple[Part, ...]) -> tuple[Part, ...]:
    if any(isinstance(part, ErrorPart) for part in parts[:-1]):
        msg = "an error ends the call, nothing may follow it"
        raise ValueError(msg)
    return parts


Step: TypeAlias = Annotated[
    tuple[Part, ...], BeforeValidator(_as_list), AfterValidator(_error_last)
]


def load_script(file: Path) -> tuple[Step, ...]:
    """Return the steps of a script.

    Raises:
        ConfigUnreadable: the file cannot be read or is not YAML.
        ConfigInvalid: something in it is not a step; each finding with its line.
    """
    try:
        node = yaml.compose(text := file.read_text(encoding="utf-8"), Loader=yaml.SafeLoader)
        data = yaml.safe_load(text)
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigUnreadable(str(file), str(error)) from error
    except yaml.YAMLError as error:
        raise ConfigUnreadable(str(file), " ".join(str(error).split())) from error
    try:
        return TypeAdapter(tuple[Step, ...]).validate_python(data)
    except ValidationError as error:
        problems: list[ConfigProblem] = []
        for item in error.errors(include_url=False):
            path, line = _locate(node, item["loc"])
            found = shorten(repr(item["input"]), 80)
            problems.append(ConfigProblem(path, item["msg"], str(file), line, found))
        raise ConfigInvalid(problems) from error


def _locate(node: yaml.Node | None, location: Sequence[int | str]) -> tuple[str, int]:
    """Return path and line of a finding; steps that have no place in the file are skipped."""
    path: list[str] = []
    for step in location:
        children = _children(node)
        if step in children:
            node = children[step]
            path.append(str(step))
    return ".".join(path) or "script", 1 if node is None else node.start_mark.line + 1


def _children(node: yaml.Node | None) -> dict[int | str, yaml.Node]:
    if isinstance(node, yaml.SequenceNode):
        return dict(enumerate(node.value))
    if isinstance(node, yaml.MappingNode):
        return {key.value: value for key, value in node.value if isinstance(key.value, str)}
    return {}
