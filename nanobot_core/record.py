"""Frozen dataclasses that take a quarter of the usual time to create.

The standard decorator compiles six functions for each class. The core has more than a hundred
frozen classes, and compiling takes a tenth of the time before the first request
(docs/performance.md). The decorator of this module compiles ``__init__`` only; the other methods
are closures. The result is a dataclass for `replace`, `fields` and `asdict` of `dataclasses`, for
pydantic and for type checkers.

Modules that import `dataclass` from `dataclasses` instead behave the same and start later. Remove
this module once the standard decorator is as fast.
"""

from __future__ import annotations

import dataclasses
from dataclasses import MISSING, FrozenInstanceError
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Callable
    from dataclasses import Field, dataclass as dataclass
else:

    def dataclass(
        *, frozen: Literal[True], slots: Literal[True], kw_only: bool = False
    ) -> Callable[[type], type]:
        """Return a decorator like the standard one with these options."""
        return lambda cls: _decorate(cls, kw_only)


def _decorate(cls: type, kw_only: bool) -> type:
    if any(dataclasses.is_dataclass(base) for base in cls.__bases__):
        return dataclasses.dataclass(frozen=True, slots=True, kw_only=kw_only)(cls)
    made: Any = dataclasses.dataclass(
        init=False, repr=False, eq=False, slots=True, kw_only=kw_only
    )(cls)
    # Otherwise the standard decorator refuses frozen classes that inherit from this one.
    made.__dataclass_params__.frozen = True
    fields = dataclasses.fields(made)
    init = _compile_init(fields, has_post_init=hasattr(made, "__post_init__"))
    init.__qualname__ = f"{made.__qualname__}.__init__"
    for name, method in {"__init__": init, **_methods(fields)}.items():
        if made.__dict__.get(name) is None:
            setattr(made, name, method)
    result: type = made
    return result


def _compile_init(fields: tuple[Field[Any], ...], *, has_post_init: bool) -> Callable[..., None]:
    """Return an ``__init__`` that sets one field after the other, as the standard one does."""
    names: dict[str, Any] = {"set_": object.__setattr__, "MISSING": MISSING}
    positional, by_name, body = ["self"], ["*"], []
    for field in fields:
        default, value = "", (name := field.name)
        if field.default is not MISSING:
            names[f"default_{name}"] = field.default
            default = f"=default_{name}"
        elif field.default_factory is not MISSING:
            names[f"make_{name}"] = field.default_factory
            default = "=MISSING"
            value = f"make_{name}() if {name} is MISSING else {name}"
        if field.init:
            (by_name if field.kw_only else positional).append(f"{name}{default}")
            body.append(f" set_(self, '{name}', {value})")
        elif default:
            value = f"make_{name}()" if f"make_{name}" in names else f"default_{name}"
            body.append(f" set_(self, '{name}', {value})")
    if has_post_init:
        body.append(" self.__post_init__()")
    parameters = ", ".join([*positional, *(by_name if len(by_name) > 1 else [])])
    lines = "\n".join(body or [" pass"])
    exec(f"def __init__({parameters}):\n{lines}", names)  # noqa: S102 - as `dataclasses` does
    init: Callable[..., None] = names["__init__"]
    init.__annotations__ = {field.name: field.type for field in fields if field.init}
    return init


def _methods(fields: tuple[Field[Any], ...]) -> dict[str, Any]:
    names = [field.name for field in fields]
    shown = [field.name for field in fields if field.repr]
    compared = [field.name for field in fields if field.compare]
    key: Callable[[object], object] = attrgetter(*compared) if compared else lambda _: ()

    def render(self: object) -> str:
        values = ", ".join(f"{name}={getattr(self, name)!r}" for name in shown)
        return f"{self.__class__.__qualname__}({values})"

    def equals(self: object, other: object) -> bool:
        return key(self) == key(other) if other.__class__ is self.__class__ else NotImplemented

    def set_state(self: object, state: list[object]) -> None:
        for name, value in zip(names, state, strict=True):
            object.__setattr__(self, name, value)

    return {
        "__repr__": render,
        "__eq__": equals,
        "__hash__": lambda self: hash(key(self)),
        "__getstate__": lambda self: [getattr(self, name) for name in names],
        "__setstate__": set_state,
        "__setattr__": _refuse_setting,
        "__delattr__": _refuse_deleting,
    }


def _refuse_setting(self: object, name: str, value: object) -> None:
    msg = f"cannot assign to field {name!r}"
    raise FrozenInstanceError(msg)


def _refuse_deleting(self: object, name: str) -> None:
    msg = f"cannot delete field {name!r}"
    raise FrozenInstanceError(msg)
