"""How a hook is declared, and how a function becomes an implementation of it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, TypeVar, overload

import pluggy

from nanobot_core.contracts.plugin import Refuse
from nanobot_core.hooks.kinds import RULES, Kind
from nanobot_core.record import dataclass

if TYPE_CHECKING:
    from nanobot_core.contracts.context import PluginContext

PROJECT = "nanobot"
P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S")
T = TypeVar("T")
E = TypeVar("E")
A = TypeVar("A")
_OPTIONS = "nanobot_options"
_POINT = "nanobot_point"

hookspec: pluggy.HookspecMarker = pluggy.HookspecMarker(PROJECT)
hookimpl: pluggy.HookimplMarker = pluggy.HookimplMarker(PROJECT)
"""Marks an implementation by the function's name; ``on.<hook>`` does the same with types."""


@dataclass(frozen=True, slots=True)
class ImplementationOptions:
    """Options of one implementation.

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
        reaches: what implementing it lets a plugin do, in words for the owner; empty if it
            neither sees, changes nor decides anything.
        limit_s: seconds one call may take; ``None`` if it waits for a person.
        revision: rises when the meaning of the hook changes.
        field: of a chain, the field of the event that implementations replace.
        refuse: of a gate, returns the answer that refuses, given a plugin's id and the reason.
        judges: of a gate or chain, what it judges, in words for people: ``tool call``.
        result: what an implementation may return besides None; of a gather hook, what it yields.
        declaration: the function in ``specs.py``, whose docstring is the contract.
    """

    def __init__(
        self,
        declaration: Callable[P, R],
        kind: Kind,
        reaches: str,
        *,
        field: str = "",
        result: tuple[type, ...] = (),
        refuse: Callable[[str, str], object] | None = None,
        judges: str = "",
        waits_for_person: bool = False,
        revision: int = 1,
    ) -> None:
        self.name: str = declaration.__name__
        self.kind = kind
        self.reaches = reaches
        self.limit_s: float | None = None if waits_for_person else RULES[kind].limit_s
        self.field = field
        self.result = result
        self.refuse = refuse
        self.judges = judges
        self.revision = revision
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
        self, function: Callable[Concatenate[S, P], Awaitable[R] | R | None], /
    ) -> Callable[Concatenate[S, P], Awaitable[R] | R | None]: ...
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
            function: sync or async; takes exactly the declared arguments. A sync function may
                return an awaitable where it cannot answer at once; only that takes a task.
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
    """Return the options of `implementation`; defaults for plain ``@hookimpl``."""
    found = getattr(implementation, _OPTIONS, None)
    return found if isinstance(found, ImplementationOptions) else ImplementationOptions()


def point_of(implementation: Callable[..., Any]) -> HookPoint[..., Any] | None:
    """Return the hook whose decorator marked `implementation`; ``None`` for plain ``@hookimpl``."""
    found = getattr(implementation, _POINT, None)
    return found if isinstance(found, HookPoint) else None


class OwnHook(HookPoint[[E], R], Generic[E, R, A]):
    """A hook of a plugin's own, which it calls with an event: ``await ctx.call(hook, event)``.

    Attributes:
        unanswered: returns the answer to an event if nothing implements the hook.
    """

    def __init__(
        self,
        declaration: Callable[[E], R],
        kind: Kind,
        unanswered: Callable[[E], A],
        *,
        revision: int,
        field: str = "",
        result: tuple[type, ...] = (),
    ) -> None:
        super().__init__(
            declaration,
            kind,
            _takes_part_in(declaration),
            field=field,
            result=result,
            refuse=_refuse if kind is Kind.GATE else None,
            revision=revision,
        )
        self.unanswered: Callable[[E], A] = unanswered


def _takes_part_in(declaration: Callable[..., object]) -> str:
    return f"takes part in {declaration.__name__}"


def _refuse(_plugin: str, reason: str) -> Refuse:
    return Refuse(reason)


def _no_answer(_event: object) -> None:
    """Return nothing: an observer has no answer, and a gate does not object."""


Contribution = Callable[["PluginContext"], Iterable[T]]


@overload
def declare_contribution(
    declaration: Contribution[T], /
) -> HookPoint[[PluginContext], Iterable[T]]: ...
@overload
def declare_contribution(
    *, item: type[T], revision: int = ...
) -> Callable[[Contribution[T]], HookPoint[[PluginContext], Iterable[T]]]: ...
def declare_contribution(
    declaration: Contribution[Any] | None = None,
    /,
    *,
    item: type | None = None,
    revision: int = 1,
) -> Any:
    """Declare a plugin's own hook, with which other plugins contribute to it.

    The hook is named after the function; its name begins with the plugin's id and an underscore
    (``-`` written as ``_``), its docstring is its contract. The plugin names it in
    ``contribute_hookspecs`` and reads the contributions with ``ctx.contributed``. The others
    import it and use it as a decorator, so they depend on the plugin's distribution; or they
    implement it by its name, with ``@hookimpl(optionalhook=True)``.

    Args:
        declaration: takes the context of the contributing plugin and returns its contributions;
            the body is not used.
        item: class of the contributions, for ``@declare_contribution(item=Recipe)``; what others
            contribute is then checked.
        revision: rises when the meaning of the hook changes; plugins that were built for another
            one are left out.
    """

    def declared(function: Contribution[Any]) -> HookPoint[[PluginContext], Iterable[Any]]:
        words, items = _takes_part_in(function), () if item is None else (item,)
        return HookPoint(function, Kind.CONTRIBUTE, words, result=items, revision=revision)

    return declared if declaration is None else declared(declaration)


def declare_observer(
    *, revision: int = 1
) -> Callable[[Callable[[E], None]], OwnHook[E, None, None]]:
    """Declare a plugin's own hook that tells other plugins of an event, in order.

    Name, docstring and implementations are as with `declare_contribution`. The plugin calls it
    with ``await ctx.call(hook, event)``; a failure is logged and counted.

    Args:
        revision: as with `declare_contribution`.
    """
    return lambda declaration: OwnHook(declaration, Kind.OBSERVE, _no_answer, revision=revision)


def declare_gate(
    *, revision: int = 1
) -> Callable[[Callable[[E], Refuse | None]], OwnHook[E, Refuse | None, Refuse | None]]:
    """Declare a plugin's own hook by which other plugins may refuse something.

    ``await ctx.call(hook, event)`` returns the first `Refuse`, or None if none objects. An
    implementation that fails refuses, and so does a plugin that its owner wants and that does not
    run. Otherwise as `declare_observer`.

    Args:
        revision: as with `declare_contribution`.
    """
    return lambda declaration: OwnHook(
        declaration, Kind.GATE, _no_answer, revision=revision, result=(Refuse,)
    )


def declare_chain(
    field: str, result: type[T], *, revision: int = 1
) -> Callable[[Callable[[E], T | None]], OwnHook[E, T | None, T]]:
    """Declare a plugin's own hook by which other plugins replace one field of an event.

    Each sees the result of the one before, and None means unchanged. ``await ctx.call(hook,
    event)`` returns the field as the last one left it. Otherwise as `declare_observer`.

    Args:
        field: name of the field; the event is a dataclass.
        result: class of the field; another answer is a failure.
        revision: as with `declare_contribution`.
    """
    return lambda declaration: OwnHook(
        declaration, Kind.CHAIN, attrgetter(field), revision=revision, field=field, result=(result,)
    )


OWN_KINDS = frozenset({Kind.CONTRIBUTE, Kind.OBSERVE, Kind.GATE, Kind.CHAIN})
"""The kinds of hooks that a plugin can declare."""


def declare(
    kind: Kind,
    reaches: str = "",
    *result: type,
    field: str = "",
    refuse: Callable[[str, str], object] | None = None,
    judges: str = "",
    waits_for_person: bool = False,
    revision: int = 1,
) -> Callable[[Callable[P, R]], HookPoint[P, R]]:
    """Declare a hook of `kind`; the arguments are attributes of `HookPoint`."""
    return lambda declaration: HookPoint(
        declaration,
        kind,
        reaches,
        field=field,
        result=result,
        refuse=refuse,
        judges=judges,
        waits_for_person=waits_for_person,
        revision=revision,
    )
