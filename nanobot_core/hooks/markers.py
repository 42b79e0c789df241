"""How a hook is declared, and how a function becomes an implementation of it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, TypeVar, overload

import pluggy

from nanobot_core.hooks.kinds import Kind

if TYPE_CHECKING:
    from nanobot_core.contracts.context import PluginContext

PROJECT = "nanobot"
P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S")
T = TypeVar("T")
_OPTIONS = "nanobot_options"
_POINT = "nanobot_point"

hookspec: pluggy.HookspecMarker = pluggy.HookspecMarker(PROJECT)
hookimpl: pluggy.HookimplMarker = pluggy.HookimplMarker(PROJECT)
"""Marks an implementation by its name alone; ``on.<hook>`` does the same with types."""


@dataclass(frozen=True, slots=True)
class ImplementationOptions:
    """What an author says of one implementation.

    Attributes:
        blocking: a sync function that may wait; it runs in a thread.
        critical: a failure of a chain stops instead of being skipped (redaction).
        when: condition for activation, such as ``channel:telegram``; empty means always.
    """

    blocking: bool = False
    critical: bool = False
    when: str = ""


class HookPoint(Generic[P, R]):
    """A declared hook. Used as a decorator, it marks an implementation of it.

    Attributes:
        name: the hook's name.
        kind: how it is called.
        generation: rises when the meaning of the hook changes.
        field: of a chain, the field of the event that implementations replace.
        result: what an implementation may return besides None; of a gather hook, what it yields.
        declaration: the function in ``specs.py``, whose docstring is the contract.
    """

    def __init__(
        self,
        declaration: Callable[P, R],
        kind: Kind,
        *,
        field: str = "",
        result: tuple[type, ...] = (),
    ) -> None:
        self.name: str = declaration.__name__
        self.kind = kind
        self.field = field
        self.result = result
        self.generation = 1
        self.declaration = declaration
        hookspec(declaration)

    @overload
    def __call__(self, function: Callable[P, R], /) -> Callable[P, R]: ...  # type: ignore[overload-overlap]  # no declared hook returns an awaitable
    @overload
    def __call__(self, function: Callable[P, Awaitable[R]], /) -> Callable[P, Awaitable[R]]: ...
    @overload
    def __call__(
        self, function: Callable[Concatenate[S, P], R], /
    ) -> Callable[Concatenate[S, P], R]: ...
    @overload
    def __call__(
        self, function: Callable[Concatenate[S, P], Awaitable[R]], /
    ) -> Callable[Concatenate[S, P], Awaitable[R]]: ...
    @overload
    def __call__(
        self,
        /,
        *,
        blocking: bool = ...,
        critical: bool = ...,
        when: str = ...,
        tryfirst: bool = ...,
        trylast: bool = ...,
    ) -> HookPoint[P, R]: ...
    def __call__(
        self,
        function: Callable[..., Any] | None = None,
        /,
        *,
        blocking: bool = False,
        critical: bool = False,
        when: str = "",
        tryfirst: bool = False,
        trylast: bool = False,
    ) -> Any:
        """Mark `function` as an implementation.

        Args:
            function: sync or async; takes exactly the declared arguments.
            blocking: the function may wait without awaiting; it runs in a thread.
            critical: a failure stops what follows (chains only).
            when: activate only if this holds, such as ``channel:telegram``.
            tryfirst: run before the others.
            trylast: run after the others.
        """
        options = ImplementationOptions(blocking=blocking, critical=critical, when=when)

        def mark(implementation: Callable[..., Any]) -> Callable[..., Any]:
            setattr(implementation, _OPTIONS, options)
            setattr(implementation, _POINT, self)
            return hookimpl(implementation, specname=self.name, tryfirst=tryfirst, trylast=trylast)

        return mark if function is None else mark(function)


def options_of(implementation: Callable[..., Any]) -> ImplementationOptions:
    """Return what the author said of `implementation`; defaults for plain ``@hookimpl``."""
    found = getattr(implementation, _OPTIONS, None)
    return found if isinstance(found, ImplementationOptions) else ImplementationOptions()


def point_of(implementation: Callable[..., Any]) -> HookPoint[..., Any] | None:
    """Return the hook whose decorator marked `implementation`; ``None`` for plain ``@hookimpl``."""
    found = getattr(implementation, _POINT, None)
    return found if isinstance(found, HookPoint) else None


def declare_contribution(
    declaration: Callable[[PluginContext], Iterable[T]],
) -> HookPoint[[PluginContext], Iterable[T]]:
    """Declare a hook of a plugin's own, by which other plugins give it something.

    The hook is named after the function; its name begins with the plugin's id and an underscore
    (``-`` written as ``_``), its docstring is its contract. The plugin names it in
    ``contribute_hookspecs`` and reads what the others gave with ``ctx.contributed``. The others
    import it and use it as a decorator, and so depend on the plugin's distribution.

    Args:
        declaration: takes the context of the plugin that contributes, returns what it gives; its
            body is not used.
    """
    return HookPoint(declaration, Kind.CONTRIBUTE)


def contribute(declaration: Callable[P, R]) -> HookPoint[P, R]:
    """Declare a hook by which plugins give something."""
    return HookPoint(declaration, Kind.CONTRIBUTE)


def own(declaration: Callable[P, R]) -> HookPoint[P, R]:
    """Declare a hook of a plugin's own life."""
    return HookPoint(declaration, Kind.OWN)


def observe(declaration: Callable[P, R]) -> HookPoint[P, R]:
    """Declare a hook that is told of something and waited for."""
    return HookPoint(declaration, Kind.OBSERVE)


def detached(declaration: Callable[P, R]) -> HookPoint[P, R]:
    """Declare a hook that is told of something later."""
    return HookPoint(declaration, Kind.DETACHED)


def gate(*result: type) -> Callable[[Callable[P, R]], HookPoint[P, R]]:
    """Declare a hook that may refuse, answering with one of `result`."""
    return lambda declaration: HookPoint(declaration, Kind.GATE, result=result)


def first(result: type) -> Callable[[Callable[P, R]], HookPoint[P, R]]:
    """Declare a hook whose first answer counts."""
    return lambda declaration: HookPoint(declaration, Kind.FIRST, result=(result,))


def gather(item: type) -> Callable[[Callable[P, R]], HookPoint[P, R]]:
    """Declare a hook that collects instances of `item` side by side."""
    return lambda declaration: HookPoint(declaration, Kind.GATHER, result=(item,))


def wrap(result: type) -> Callable[[Callable[P, R]], HookPoint[P, R]]:
    """Declare a hook that stands around something which gives a `result`."""
    return lambda declaration: HookPoint(declaration, Kind.WRAP, result=(result,))


def chain(field: str, result: type) -> Callable[[Callable[P, R]], HookPoint[P, R]]:
    """Declare a hook whose implementations replace `field` of the event one after another."""
    return lambda declaration: HookPoint(declaration, Kind.CHAIN, field=field, result=(result,))
