"""Compiles plugin objects into hooks; pluggy only checks them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any, Literal, TypeVar

import pluggy

from nanobot_core.errors import PluginRejected
from nanobot_core.hooks.account import Account, Circuit, PluginCosts
from nanobot_core.hooks.caller import DetachedQueues, Hooks, declared_hooks
from nanobot_core.hooks.implementation import HookRuntime, Implementation
from nanobot_core.hooks.kinds import Kind
from nanobot_core.hooks.markers import OWN_KINDS, PROJECT, HookPoint, options_of, point_of
from nanobot_core.text import nearest


@dataclass(frozen=True, slots=True)
class Registrant:
    """A plugin as the hooks see it: a module, or an instance of the class it names."""

    id: str
    version: str
    namespace: object


@dataclass(slots=True)
class HookStats:
    """Accounts and circuits by (plugin, hook), and other costs; they outlive generations.

    Attributes:
        now_s: monotonic seconds.
        on_open: called with the plugin's id each time one of its circuits opens.
        costs: what the plugin costs besides the calls of its hooks.
    """

    now_s: Callable[[], float]
    on_open: Callable[[str], None] = lambda _plugin: None
    accounts: dict[tuple[str, str], tuple[Account, Circuit]] = field(default_factory=dict)
    costs: PluginCosts = field(default_factory=PluginCosts)

    def entry(self, plugin: str, hook: str) -> tuple[Account, Circuit]:
        """Return the account and the circuit of one plugin and hook."""
        key = (plugin, hook)
        if key not in self.accounts:
            circuit = Circuit(self.now_s, on_open=lambda: self.on_open(plugin))
            self.accounts[key] = (Account(), circuit)
        return self.accounts[key]


V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class OwnerRules:
    """What the owner has set for hooks; keys are names of hooks, or ``plugin.hook``.

    Attributes:
        limits: seconds one implementation may take.
        failures: whether a gate that fails refuses, and a chain stops (``closed``), or what they
            process passes (``open``).
    """

    limits: Mapping[str, float] = field(default_factory=dict)
    failures: Mapping[str, Literal["open", "closed"]] = field(default_factory=dict)


NO_RULES = OwnerRules()


def of_hook(values: Mapping[str, V], plugin: str, hook: str) -> V | None:
    """Return what the owner has set for a hook of a plugin, or else for the hook."""
    found = values.get(f"{plugin}.{hook}")
    return values.get(hook) if found is None else found


CompiledPlugin = Mapping[str, Sequence[Implementation]]
"""The implementations of one plugin by hook name, in the order of its code."""


def compile_plugin(
    registrant: Registrant, stats: HookStats, rules: OwnerRules = NO_RULES
) -> CompiledPlugin:
    """Check one plugin and return what it implements.

    Args:
        registrant: the plugin.
        stats: accounts and circuits, shared by all generations.
        rules: what the owner has set instead of the rules of the kinds.

    Raises:
        PluginRejected: an implementation does not fit its hook, or the hook does not exist.
    """
    manager = _manager_for(registrant)
    points = declared_hooks()
    compiled: dict[str, Sequence[Implementation]] = {}
    for caller in manager.get_hookcallers(registrant.namespace) or ():
        point = points.get(caller.name) or _point_of_another(manager, registrant, caller)
        if point is None and all(item.optionalhook for item in caller.get_hookimpls()):
            compiled[caller.name] = _by_name(registrant, caller, stats)
            continue
        if point is None:
            close = " or ".join(f"'{name}'" for name in nearest(caller.name, points))
            raise PluginRejected(
                registrant.id,
                f"it implements hook '{caller.name}', which does not exist",
                f"did you mean {close}" if close else "see the hook reference",
            )
        compiled[caller.name] = _compile_caller(registrant, caller, point, stats, rules)
    return compiled


def compile_hook(
    registrant: Registrant,
    point: HookPoint[..., Any],
    stats: HookStats,
    rules: OwnerRules = NO_RULES,
) -> Sequence[Implementation]:
    """Return what one plugin implements of a hook that another plugin declares.

    Its implementations are those with the hook's name, however they are marked. Arguments and
    errors as those of `compile_plugin`.
    """
    manager = pluggy.PluginManager(PROJECT)
    _declare(manager, registrant, point)
    try:
        manager.register(registrant.namespace, name=registrant.id)
    except pluggy.PluginValidationError as error:
        raise PluginRejected(registrant.id, " ".join(str(error).split())) from error
    caller: pluggy.HookCaller = getattr(manager.hook, point.name)
    return _compile_caller(registrant, caller, point, stats, rules)


def in_order(
    implementations: Sequence[Implementation], first: Sequence[str]
) -> list[Implementation]:
    """Return the implementations of one hook as they are called.

    Args:
        implementations: in the order of the plugins.
        first: ids of plugins that the owner puts in front, in this order.
    """
    places = {plugin: place for place, plugin in enumerate(first)}
    # Sorting is stable: equal implementations stay in the order of the plugins.
    return sorted(
        implementations, key=lambda each: (places.get(each.plugin, len(places)), each.priority)
    )


def join_hooks(
    plugins: Sequence[CompiledPlugin],
    runtime: HookRuntime,
    *,
    order: Mapping[str, Sequence[str]] | None = None,
    queues: DetachedQueues | None = None,
) -> Hooks:
    """Return one generation.

    Args:
        plugins: compiled plugins in calling order.
        runtime: what calls need from the application.
        order: by hook, ids of plugins that come first, in this order.
        queues: those of the former generation.
    """
    joined: dict[str, list[Implementation]] = {}
    for plugin in plugins:
        for name, implementations in plugin.items():
            joined.setdefault(name, []).extend(implementations)
    ordered = {name: in_order(found, (order or {}).get(name, ())) for name, found in joined.items()}
    return Hooks(runtime, ordered, queues)


def build_hooks(
    registrants: Sequence[Registrant],
    runtime: HookRuntime,
    stats: HookStats,
    *,
    rules: OwnerRules = NO_RULES,
    order: Mapping[str, Sequence[str]] | None = None,
) -> Hooks:
    """Compile plugins and return them as one generation; arguments as above."""
    plugins = [compile_plugin(registrant, stats, rules) for registrant in registrants]
    return join_hooks(plugins, runtime, order=order)


def _compile_caller(
    registrant: Registrant,
    caller: pluggy.HookCaller,
    point: HookPoint[..., Any],
    stats: HookStats,
    rules: OwnerRules,
) -> Sequence[Implementation]:
    found = caller.get_hookimpls()
    if len(found) > 1 and point.kind in {Kind.CONTRIBUTE, Kind.OWN}:
        reason = f"it implements hook '{caller.name}' {len(found)} times"
        raise PluginRejected(registrant.id, reason, "make one function of them")
    for item in found:
        _check_form(registrant, item, point)
    return tuple(_compile(registrant, item, point, stats, rules) for item in found)


def _by_name(
    registrant: Registrant, caller: pluggy.HookCaller, stats: HookStats
) -> Sequence[Implementation]:
    """Return implementations of a hook that is not known here, to name it in the manifest.

    They are not called: `compile_hook` checks them against the declaration first.
    """
    _, circuit = stats.entry(registrant.id, caller.name)
    return tuple(
        Implementation(
            plugin=registrant.id, hook=caller.name, function=item.function, circuit=circuit
        )
        for item in caller.get_hookimpls()
    )


def _compile(
    registrant: Registrant,
    found: pluggy.HookImpl,
    point: HookPoint[..., Any],
    stats: HookStats,
    rules: OwnerRules,
) -> Implementation:
    account, circuit = stats.entry(registrant.id, point.name)
    return Implementation(
        plugin=registrant.id,
        version=registrant.version,
        hook=point.name,
        function=_with_declared_arguments(found, point.declaration),
        options=options_of(found.function),
        failure=of_hook(rules.failures, registrant.id, point.name),
        priority=-1 if found.tryfirst else 1 if found.trylast else 0,
        limit_s=of_hook(rules.limits, registrant.id, point.name) or point.limit_s,
        revision=point.revision,
        account=account,
        circuit=circuit,
    )


def _manager_for(registrant: Registrant) -> pluggy.PluginManager:
    """Register one plugin; pluggy checks its names and signatures."""
    manager = pluggy.PluginManager(PROJECT)
    declarations = ModuleType("nanobot hooks")
    for name, point in declared_hooks().items():
        setattr(declarations, name, point.declaration)
    manager.add_hookspecs(declarations)
    try:
        manager.register(registrant.namespace, name=registrant.id)
    except (pluggy.PluginValidationError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise PluginRejected(
            registrant.id, *(_unknown_argument(registrant) or (reason, "see nanobot explain hook"))
        ) from error
    return manager


def _unknown_argument(registrant: Registrant) -> tuple[str, str] | None:
    """Return reason and remedy for an argument that a hook does not have, or ``None``."""
    points = declared_hooks()
    for name in sorted(set(dir(registrant.namespace)) & points.keys()):
        function = getattr(registrant.namespace, name)
        if not inspect.isroutine(function):
            continue
        known = tuple(inspect.signature(points[name].declaration).parameters)
        unknown = [each for each in inspect.signature(function).parameters if each not in known]
        if unknown:
            close = nearest(unknown[0], known, limit=1)
            hint = f"did you mean '{close[0]}'? " if close else ""
            allowed = ", ".join(known) or "none"
            return f"hook '{name}' has no argument '{unknown[0]}'", f"{hint}it has: {allowed}"
    return None


def _point_of_another(
    manager: pluggy.PluginManager, registrant: Registrant, caller: pluggy.HookCaller
) -> HookPoint[..., Any] | None:
    """Return the hook of another plugin that the function implements, checked by pluggy.

    Its decorator is the declaration, so the plugin that declares the hook need not be active.
    """
    point = point_of(caller.get_hookimpls()[0].function)
    if point is None or point.name != caller.name or point.kind not in OWN_KINDS:
        return None
    _declare(manager, registrant, point)
    return point


def _declare(
    manager: pluggy.PluginManager, registrant: Registrant, point: HookPoint[..., Any]
) -> None:
    """Let pluggy know the declaration of a hook; it checks implementations that are registered."""
    declarations = ModuleType("hooks of another plugin")
    setattr(declarations, point.name, point.declaration)
    try:
        manager.add_hookspecs(declarations)
    except pluggy.PluginValidationError as error:
        raise PluginRejected(registrant.id, " ".join(str(error).split())) from error


def _check_form(registrant: Registrant, found: pluggy.HookImpl, point: HookPoint[..., Any]) -> None:
    """Refuse functions that pluggy accepts and nanobot cannot call; show a valid form."""
    function, hook = found.function, point.name
    form = f"write def {hook}({', '.join(inspect.signature(point.declaration).parameters)})"
    is_async = inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function)
    yields = inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function)
    if found.wrapper or found.hookwrapper:
        reason = f"hook '{hook}' is a wrapper of pluggy, which nanobot does not call"
        raise PluginRejected(registrant.id, reason, f"{form} without wrapper or hookwrapper")
    if point.kind is Kind.CONTRIBUTE and is_async:
        raise PluginRejected(
            registrant.id, f"hook '{hook}' is called without a loop", "make it a plain function"
        )
    # What collects items runs a plain generator, but in the loop.
    collects = point.kind in {Kind.CONTRIBUTE, Kind.GATHER} and not is_async
    if yields and not (collects and not options_of(function).blocking):
        reason = f"hook '{hook}' is a generator function, which is never run"
        raise PluginRejected(registrant.id, reason, f"{form} that returns its result")
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY:
            raise PluginRejected(
                registrant.id,
                f"hook '{hook}' takes no keyword-only argument '{parameter.name}'",
                "remove the '*' from its signature",
            )
        if parameter.kind in {inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD}:
            reason = f"hook '{hook}' is called with the arguments that it names, not '{parameter}'"
            raise PluginRejected(registrant.id, reason, form)


def _with_declared_arguments(
    found: pluggy.HookImpl, declaration: Callable[..., Any]
) -> Callable[..., Any]:
    """Return a function of all declared arguments, for one that may take fewer."""
    declared = tuple(inspect.signature(declaration).parameters)
    wanted = [declared.index(name) for name in found.argnames]
    if wanted == list(range(len(declared))):
        return found.function
    function = found.function
    return lambda *args: function(*[args[index] for index in wanted])
