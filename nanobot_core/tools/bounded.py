"""JSON Schema checks that end, whatever the schema says.

jsonschema checks most of the vocabulary. This module replaces the three checks by which a schema of
a few hundred bytes could occupy the process for hours: regular expressions that backtrack, pairwise
comparison of unique items, and references that multiply. The alternative was jsonschema-rs, whose
expressions are linear too, but references that multiply block it for ever without a way to stop it,
and a single look-ahead makes it refuse a whole schema.
"""

from __future__ import annotations

import contextlib
import json
import re
import time
from collections.abc import Callable, Iterable, Iterator
from contextvars import ContextVar
from functools import lru_cache
from math import inf, prod
from typing import TYPE_CHECKING, Any

from nanobot_core.messages import JsonObject

if TYPE_CHECKING:
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import ValidationError
    from pydantic_core import SchemaValidator

    Keyword = Callable[[Draft202012Validator, Any, Any, Any], Iterable[ValidationError] | None]

_MAX_PATTERN_CHARS = 1_000
_MAX_PATTERN_WORK = 50_000_000
"""Characters of the text times those of the pattern times its repetitions: about 0.2 seconds."""
_REPETITION = re.compile(r"\{(\d+)(?:,(\d*))?\}")

_end: ContextVar[float] = ContextVar("end of the check, CPU seconds of its thread", default=inf)


class CheckTooCostly(Exception):
    """A check used up its time."""


@contextlib.contextmanager
def cpu_limit(seconds: float) -> Iterator[None]:
    """Make validators of this module raise `CheckTooCostly` after so much CPU time.

    CPU time of the thread, so that a busy machine does not refuse what an idle one accepts.
    """
    token = _end.set(time.thread_time() + seconds)
    try:
        yield
    finally:
        _end.reset(token)


def build_validator(schema: JsonObject, text: str) -> Draft202012Validator:
    """Return a validator of draft 2020-12; nothing remote is fetched.

    Args:
        schema: what to check against.
        text: the same as JSON.
    """
    from referencing import Registry

    # The library's search for evaluated properties matches patterns with Python's own engine.
    keyword = "unevaluatedProperties"
    omitted = frozenset({keyword} if '"patternProperties"' in text else ())
    return _validator_class(omitted)(schema, registry=Registry())


@lru_cache(maxsize=1)
def build_schema_validator() -> Draft202012Validator:
    """Return a validator of schemas."""
    from jsonschema import Draft202012Validator
    from referencing import Registry

    return _validator_class()(Draft202012Validator.META_SCHEMA, registry=Registry())


def matches(pattern: str, text: str) -> bool | None:
    """Whether `pattern` is found in `text`, decided in linear time.

    ``None`` if that is impossible within bounds: look-around and back references, which no linear
    engine supports, invalid patterns, and long texts with large patterns. The tool itself has to
    check these.
    """
    expression = _compile(pattern)
    if expression is None or len(text) * _weight(pattern) > _MAX_PATTERN_WORK:
        return None
    return bool(expression.isinstance_python(text, strict=True))


@lru_cache(maxsize=256)
def _compile(pattern: str) -> SchemaValidator | None:
    """Compile with the engine of pydantic, the regex crate; it never backtracks."""
    from pydantic_core import SchemaError, SchemaValidator, core_schema

    if len(pattern) > _MAX_PATTERN_CHARS:
        return None
    try:
        schema = core_schema.str_schema(pattern=pattern, regex_engine="rust-regex")
        return SchemaValidator(schema)
    except (SchemaError, UnicodeEncodeError):
        return None


@lru_cache(maxsize=256)
def _weight(pattern: str) -> int:
    found = _REPETITION.findall(pattern)
    counts = [max(1, *(int(digits[:9]) for digits in pair if digits)) for pair in found]
    # Repetitions multiply only where a group is repeated.
    return len(pattern) * (prod(counts) if "){" in pattern else max(counts, default=1))


@lru_cache(maxsize=2)
def _validator_class(omitted: frozenset[str] = frozenset()) -> type[Draft202012Validator]:
    from jsonschema import Draft202012Validator
    from jsonschema.validators import extend

    original = Draft202012Validator
    keywords: dict[str, Keyword] = {
        **original.VALIDATORS,
        "pattern": _pattern,
        "patternProperties": _pattern_properties,
        "additionalProperties": _additional_properties,
        "uniqueItems": _unique_items,
    }
    bounded = {
        name: _passed_over if name in omitted else _within_limit(keyword)
        for name, keyword in keywords.items()
    }
    # The search for evaluated properties runs through references without calling a keyword.
    types = original.TYPE_CHECKER.redefine("boolean", _is_boolean)
    found: type[Draft202012Validator] = extend(original, bounded, type_checker=types)  # type: ignore[no-untyped-call]  # has no types
    # Otherwise a part of a schema that names a dialect, or a reference to the meta-schema, would
    # continue with a class of the library, which has no limits.
    found.evolve = _evolve  # type: ignore[assignment]
    return found


def _evolve(validator: Draft202012Validator, **changes: Any) -> Draft202012Validator:
    import attrs

    return attrs.evolve(validator, **changes)  # type: ignore[misc]  # the stubs hide that it is one


def _passed_over(
    _validator: Draft202012Validator, _wanted: object, _instance: object, _schema: object
) -> None:
    """Check nothing."""


def _check_limit() -> None:
    if time.thread_time() > _end.get():
        raise CheckTooCostly


def _within_limit(keyword: Keyword) -> Keyword:
    def check(
        validator: Draft202012Validator,
        wanted: Any,  # noqa: ANN401  # any JSON
        instance: Any,  # noqa: ANN401  # any JSON
        schema: Any,  # noqa: ANN401  # any JSON
    ) -> Iterable[ValidationError] | None:
        _check_limit()
        return keyword(validator, wanted, instance, schema)

    return check


def _is_boolean(_checker: object, instance: object) -> bool:
    _check_limit()
    return isinstance(instance, bool)


def _pattern(
    validator: Draft202012Validator, pattern: str, instance: object, _schema: dict[str, Any]
) -> Iterator[ValidationError]:
    from jsonschema.exceptions import ValidationError

    if isinstance(instance, str) and matches(pattern, instance) is False:
        yield ValidationError(f"does not match {pattern!r}")


def _pattern_properties(
    validator: Draft202012Validator,
    patterns: dict[str, Any],
    instance: object,
    _schema: dict[str, Any],
) -> Iterator[ValidationError]:
    if not isinstance(instance, dict):
        return
    for pattern, subschema in patterns.items():
        for name, value in instance.items():
            _check_limit()
            if matches(pattern, name):
                yield from validator.descend(value, subschema, path=name, schema_path=pattern)


def _additional_properties(
    validator: Draft202012Validator, wanted: object, instance: object, schema: dict[str, Any]
) -> Iterator[ValidationError]:
    from jsonschema.exceptions import ValidationError

    if not isinstance(instance, dict):
        return
    properties, patterns = schema.get("properties", {}), schema.get("patternProperties", {})
    extras = []
    for name in instance:
        _check_limit()
        if name not in properties and all(matches(each, name) is False for each in patterns):
            extras.append(name)
    if isinstance(wanted, dict):
        for name in extras:
            yield from validator.descend(instance[name], wanted, path=name)
    elif not wanted and extras:
        shown = ", ".join(repr(name) for name in extras[:10])
        yield ValidationError(f"additional properties are not allowed ({shown})")


def _unique_items(
    validator: Draft202012Validator, wanted: object, instance: object, _schema: dict[str, Any]
) -> Iterator[ValidationError]:
    from jsonschema.exceptions import ValidationError

    if not wanted or not isinstance(instance, list):
        return
    seen: set[str] = set()
    for item in instance:
        _check_limit()
        # Equal numbers in two spellings (1, 1.0) count as two, so such a list is accepted.
        seen.add(json.dumps(item, sort_keys=True))
    if len(seen) < len(instance):
        yield ValidationError("has items that are not unique")
