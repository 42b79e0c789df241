"""Validates sections, and turns errors of pydantic into problems with file and line."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Annotated, TypeVar, get_args, get_origin

from pydantic import AliasChoices, BaseModel, SecretBytes, SecretStr, ValidationError
from pydantic.fields import FieldInfo

from nanobot_core.config.legacy import RETIRED_KEYS
from nanobot_core.config.models import (
    ChannelsSettings,
    GatewaySettings,
    MemorySettings,
    OpenSection,
    ToolsSettings,
)
from nanobot_core.config.secrets import names_secret, resembles_secret
from nanobot_core.config.tree import KeyPath, find_key, fold, parse_path, render_path, resolve
from nanobot_core.errors import ConfigInvalid, ConfigProblem
from nanobot_core.messages import JsonObject, JsonValue

if TYPE_CHECKING:
    from nanobot_core.config.loading import LoadedConfig

ModelT = TypeVar("ModelT", bound=BaseModel)

NEAR = 0.75
"""Similarity (difflib) from which an unknown key counts as a misspelt known one."""

_SHARED: dict[KeyPath, type[BaseModel]] = {
    ("channels",): ChannelsSettings,
    ("gateway",): GatewaySettings,
    ("memory",): MemorySettings,
    ("tools",): ToolsSettings,
}
"""Sections that the core and plugins share."""

_MAX_FOUND_CHARS = 60
_RETIRED = {fold(path): remedy for path, remedy in RETIRED_KEYS.items()}


def nearest_key(name: str, known: Iterable[str]) -> str | None:
    """Return the name of `known` that `name` probably stands for, or ``None``."""
    from difflib import get_close_matches

    spellings = {fold(other): other for other in known}
    close = get_close_matches(fold(name), list(spellings), n=1, cutoff=NEAR)
    return spellings[close[0]] if close else None


def shown_value(path: KeyPath, value: JsonValue) -> str | None:
    """Return the value at `path` as text, or ``None`` if it may be a secret."""
    if isinstance(value, dict | list):
        return "a mapping" if isinstance(value, dict) else "a list"
    if _may_be_secret(path) or resembles_secret(value):
        return None
    text = repr(value) if isinstance(value, str) else str(value)
    if len(text) > _MAX_FOUND_CHARS:
        return None
    return text.lower() if isinstance(value, bool) else text


def _may_be_secret(path: KeyPath) -> bool:
    return any(isinstance(step, str) and names_secret(step) for step in path)


def secrets_in(value: object) -> Iterator[str]:
    """Yield the values that a model declares as secret, nested ones included."""
    if isinstance(value, SecretStr):
        yield value.get_secret_value()
    elif isinstance(value, SecretBytes):
        yield value.get_secret_value().decode("utf-8", "replace")
    elif isinstance(value, BaseModel):
        for _, inner in value:
            yield from secrets_in(inner)
    elif isinstance(value, Mapping):
        for inner in value.values():
            yield from secrets_in(inner)
    elif isinstance(value, list | tuple | set | frozenset):
        for inner in value:
            yield from secrets_in(inner)


@dataclass(slots=True)
class Validation:
    """Validates sections and collects their problems.

    Attributes:
        loaded: the configuration that the sections belong to.
        owner: id of the plugin that the section belongs to, or an empty string.
        finds_all: a model also refuses what it otherwise leaves out, such as one bad entry of
            many; it gets ``{"finds_all": True}`` as pydantic's validation context.
        errors: problems that prevent the use of the section.
        warnings: unknown keys that do not resemble a known one.
    """

    loaded: LoadedConfig
    owner: str = ""
    finds_all: bool = False
    errors: list[ConfigProblem] = field(default_factory=list)
    warnings: list[ConfigProblem] = field(default_factory=list)
    _written: dict[KeyPath, str] = field(default_factory=dict)
    """Path of a key in the model's spelling, to the key in the file's spelling."""

    def validate(self, raw: JsonObject, model: type[ModelT], at: KeyPath = ()) -> ModelT | None:
        """Return the section `raw`, found at `at`, as `model`; ``None`` after an error."""
        model.model_rebuild()
        count = len(self.errors)
        known = self._sift(raw, model, at)
        try:
            settings = model.model_validate(known, context={"finds_all": self.finds_all})
        except ValidationError as error:
            self._report(error, known, at)
            return None
        return settings if len(self.errors) == count else None

    def _add(self, path: KeyPath, expected: str, value: JsonValue = None, remedy: str = "") -> None:
        found = None if value is None else shown_value(path, value)
        author = f"this section belongs to plugin '{self.owner}'" if self.owner else ""
        remedy = "; ".join(filter(None, (remedy, author)))
        self.errors.append(self.loaded.problem(path, expected, found=found, remedy=remedy))

    def _sift(self, raw: JsonObject, model: type[BaseModel], at: KeyPath) -> JsonObject:
        """Return `raw` without unknown keys, which are reported, and without empty values."""
        spellings = {
            key: name for name, info in model.model_fields.items() for key in _keys(name, info)
        }
        known: JsonObject = {}
        seen: dict[str, str] = {}
        for written, value in raw.items():
            path = (*at, written)
            key = written if written in spellings else _spelling(written, spellings)
            name = spellings.get(key)
            if name is None:
                if _keeps_unknown(model, value):
                    known[key] = {} if value is None else value
                else:
                    self._report_unknown(path, model.model_fields)
            elif name in seen:
                self._add(path, f"expected once, found also as '{seen[name]}'")
            else:
                seen[name] = written
                self._written[(*at, key)] = written
                annotation = model.model_fields[name].annotation
                if value is not None or NoneType in get_args(annotation):
                    known[key] = self._sift_value(value, annotation, path)
        return known

    def _sift_value(self, value: JsonValue, annotation: object, at: KeyPath) -> JsonValue:
        origin, arguments = get_origin(annotation), get_args(annotation)
        if isinstance(value, dict):
            if isinstance(annotation, type) and issubclass(annotation, BaseModel):
                return self._sift(value, annotation, at)
            if origin is dict:
                return {
                    key: {}
                    if inner is None and get_origin(arguments[1]) is dict
                    else self._sift_value(inner, arguments[1], (*at, key))
                    for key, inner in value.items()
                }
        if isinstance(value, list) and (origin is list or arguments[1:] == (...,)):
            return [
                self._sift_value(inner, arguments[0], (*at, index))
                for index, inner in enumerate(value)
            ]
        others = [argument for argument in arguments if argument is not NoneType]
        if isinstance(value, dict) and origin is UnionType:
            kinds = [each for each in others if isinstance(each, type)]
            models = [each for each in kinds if issubclass(each, BaseModel)]
            return self._sift(value, models[0], at) if len(models) == 1 else value
        if origin is Annotated or (NoneType in arguments and len(others) == 1):
            return self._sift_value(value, others[0], at)
        return value

    def _report_unknown(self, path: KeyPath, known: Iterable[str]) -> None:
        expected = "expected a known key"
        retired = _RETIRED.get(fold(render_path(path)))
        near = None if retired else nearest_key(str(path[-1]), known)
        if near:
            self._add(path, expected, remedy=f"did you mean '{near}'?")
        else:
            remedy = retired or "it has no effect; remove it"
            self.warnings.append(
                self.loaded.problem(path, expected, remedy=remedy, level="warning")
            )

    def _report(self, error: ValidationError, raw: JsonObject, at: KeyPath) -> None:
        """Report the errors of each value once; of a union, those of the branch that fits best."""
        grouped: dict[KeyPath, dict[KeyPath, list[tuple[KeyPath, str]]]] = {}
        for detail in error.errors(include_url=False, include_context=False, include_input=False):
            path, branch, point = _locate(raw, detail["loc"], detail["type"] == "missing")
            grouped.setdefault(point, {}).setdefault(branch, []).append((path, detail["msg"]))
        for point, branches in grouped.items():
            inner = [found for found in branches.values() if any(p != point for p, _ in found)]
            if inner:
                chosen = min(inner, key=len)
                for path in dict.fromkeys(path for path, _ in chosen):
                    self._report_value(
                        raw, at, path, [text for other, text in chosen if other == path]
                    )
            else:
                texts = [text for found in branches.values() for _, text in found]
                self._report_value(raw, at, point, texts)

    def _report_value(self, raw: JsonObject, at: KeyPath, path: KeyPath, texts: list[str]) -> None:
        full: KeyPath = ()
        for step in (*at, *path):
            full = (*full, self._written.get((*full, step), step))
        is_secret = _may_be_secret(full)
        wordings = dict.fromkeys(_reword(text, is_secret=is_secret) for text in texts)
        known, value = resolve(raw, path)
        self._add(full, f"expected {' or '.join(wordings)}", value if known == path else None)


def _spelling(written: str, known: Iterable[str]) -> str:
    """Return the key of `known` that `written` is another spelling of, else `written`.

    The original omits the unit of seconds: ``timeout`` is our ``timeout_s``.
    """
    folded = fold(written)
    for key in known:
        is_same = fold(key) == folded
        if is_same or (key.endswith(("_s", "S")) and fold(key) == f"{folded}s"):
            return key
    return written


def _keys(name: str, info: FieldInfo) -> Iterable[str]:
    yield name
    for alias in (info.alias, info.validation_alias):
        choices = alias.choices if isinstance(alias, AliasChoices) else [alias]
        yield from (choice for choice in choices if isinstance(choice, str))


def _keeps_unknown(model: type[BaseModel], value: JsonValue) -> bool:
    if model.model_config.get("extra") != "allow":
        return False
    return not issubclass(model, OpenSection) or value is None or isinstance(value, dict)


def _locate(raw: JsonValue, steps: KeyPath, is_missing: bool) -> tuple[KeyPath, KeyPath, KeyPath]:
    """Return the key path of an error, its branch of a union, and the path of that union.

    Pydantic mixes the names of branches into its locations. A step that the value does not have is
    such a name, or, as the last step, a missing key.
    """
    path: KeyPath = ()
    branch: KeyPath = ()
    point: KeyPath | None = None
    for index, step in enumerate(steps):
        found, inner = resolve(raw, (step,))
        if found or (is_missing and index == len(steps) - 1):
            path, raw = path + (found or (step,)), inner
        else:
            branch, point = (*branch, step), path if point is None else point
    return path, branch, path if point is None else point


def _reword(message: str, *, is_secret: bool) -> str:
    """Return pydantic's message as the end of a sentence, without the value that it may quote."""
    message = message.partition(", unable to parse")[0].partition(", got a number")[0]
    for theirs, ours in _WORDS:
        message, is_found = theirs.subn(ours, message)
        if is_found:
            return message
    return "a valid value" if is_secret else message.removeprefix("Value error, ")


_WORDS = tuple(
    (re.compile(theirs), ours)
    for theirs, ours in (
        (r"^Input should be a valid dictionary.*", "a mapping"),
        (r"^Input should be a valid (list|tuple|set|array)$", "a list"),
        (r"^Input should be a valid string$", "a text"),
        (r"^Input should be a valid boolean$", "true or false"),
        (r"^Input should be a valid integer$", "an integer"),
        (r"^Input should be a valid ", "a "),
        (r"^Input should be greater than or equal to ", "at least "),
        (r"^Input should be greater than ", "more than "),
        (r"^Input should be less than or equal to ", "at most "),
        (r"^Input should be ", ""),
        (r"^Field required$", "a value"),
        (r"^Extra inputs are not permitted$", "a known key"),
        (r"^String should match pattern ", "a text that matches "),
        (r"^String should have ", "a text of "),
        (r"^(List|Tuple|Set) should have ", "a list of "),
    )
)
"""Messages of pydantic to ours."""


def validate_section(
    loaded: LoadedConfig,
    path: str,
    model: type[ModelT],
    *,
    owner: str = "",
    finds_all: bool = False,
    on_warning: Callable[[ConfigProblem], None] | None = None,
) -> ModelT:
    """Return the section at `path` as the model of the plugin that reads it.

    Args:
        loaded: the configuration.
        path: key path of the section; an absent section is an empty one.
        model: the plugin's model.
        owner: id of the plugin, named in errors.
        finds_all: see `Validation`.
        on_warning: receives a warning for each unknown key that does not resemble a known one;
            ``None`` logs it.

    Raises:
        ConfigInvalid: invalid values, all of them, or placeholders without a value.
    """
    if missing := loaded.missing_in(path):
        raise ConfigInvalid(missing)
    steps = parse_path(path)
    found, raw = resolve(loaded.tree, steps)
    if len(found) < len(steps) or raw is None:
        raw = {}
    validation = Validation(loaded, owner, finds_all)
    if not isinstance(raw, dict):
        problem = loaded.problem(path, "expected a mapping", found=shown_value(steps, raw))
        raise ConfigInvalid([problem])
    settings = validation.validate(_without_core_keys(raw, steps, model), model, found or steps)
    for warning in validation.warnings:
        (on_warning or _log)(warning)
    if settings is None:
        raise ConfigInvalid(in_order(validation.errors))
    loaded.redactor.learn(secrets_in(settings))
    return settings


def _log(warning: ConfigProblem) -> None:
    from loguru import logger

    logger.warning("{}", warning)


def _without_core_keys(raw: JsonObject, at: KeyPath, model: type[BaseModel]) -> JsonObject:
    """Return `raw` without the keys that the core reads in that section (``memory.backend``)."""
    core = _SHARED.get(at)
    if core is None:
        return raw
    foreign = [name for name in core.model_fields if name not in model.model_fields]
    return {
        key: value for key, value in raw.items() if find_key(dict.fromkeys(foreign), key) is None
    }


def in_order(problems: Collection[ConfigProblem]) -> list[ConfigProblem]:
    """Return `problems` by file and line, and of each value only the first and gravest."""
    by_level = sorted(problems, key=lambda problem: problem.level == "warning")
    first = {(problem.path, problem.file): problem for problem in reversed(by_level)}
    return sorted(first.values(), key=lambda problem: (problem.file or "", problem.line or 0))
