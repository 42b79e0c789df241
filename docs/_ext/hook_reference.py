"""The hook reference, rendered from the declarations."""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from docstrings import parse_docstring, render_docstring

import nanobot_core
import nanobot_core.chat
import nanobot_core.net
import nanobot_core.providers
import nanobot_core.testing
from nanobot_core import on
from nanobot_core.hooks.kinds import RULES, Kind
from nanobot_core.hooks.markers import HookPoint
from nanobot_core.tasks import PLUGIN_END_S

GROUPS: tuple[tuple[str, Callable[[Kind], bool]], ...] = (
    ("What a plugin gives", lambda kind: kind is Kind.CONTRIBUTE),
    ("A plugin's own life", lambda kind: kind is Kind.OWN),
    ("The work of the agent", lambda kind: kind not in {Kind.CONTRIBUTE, Kind.OWN}),
)
ALIASES = {
    "Content": ("TextBlock", "ImageBlock"),
    "Decision": ("Allow", "Rewrite", "Ask", "Deny"),
    "PanelPart": ("PanelText", "PanelDiff", "PanelTable", "PanelBars"),
}
"""Public names of unions to their members."""

_IDENTIFIER = re.compile(r"[A-Za-z_]\w*")
_HOMES = (
    nanobot_core,
    nanobot_core.providers,
    nanobot_core.chat,
    nanobot_core.net,
    nanobot_core.testing,
)
_WIDTH = 100
"""Longest signature on one line."""


def hook_points() -> dict[str, HookPoint[..., Any]]:
    """Return every hook by name, in the order of its declaration."""
    return {name: point for name, point in vars(on).items() if isinstance(point, HookPoint)}


def render_kinds() -> str:
    """Return the table of kinds."""
    rows = [
        f"| {kind.value} | {rule.summary} | {rule.limit_s:g} s |" for kind, rule in RULES.items()
    ]
    return "\n".join(["| kind | rule | limit |", "| --- | --- | --- |", *rows])


def render_hooks() -> str:
    """Return all hooks, grouped, each with kind, rule, signature and contract."""
    blocks: list[str] = []
    for title, belongs in GROUPS:
        blocks.append(f"## {title}")
        blocks += [_hook(point) for point in hook_points().values() if belongs(point.kind)]
    return "\n\n".join(blocks)


def render_events() -> str:
    """Return the events of all hooks, and then the types of their fields."""
    events = _named_in(point.declaration for point in hook_points().values())
    parts: dict[str, type] = {}
    queue = [*events.values()]
    while queue:
        for name, found in _named_in_fields(queue.pop()).items():
            if name not in events and name not in parts:
                parts[name] = found
                queue.append(found)
    given = {name for name in events if _module(events[name]) == "contracts"}
    blocks = ["## Events"]
    blocks += [render_dataclass(name) for name in sorted(events) if name not in given]
    blocks += ["## What a plugin gives and answers"]
    blocks += [render_dataclass(name) for name in sorted(given)]
    blocks += ["## Types of their fields"]
    blocks += [render_dataclass(name) for name in sorted(parts)]
    return "\n\n".join(blocks)


def render_dataclass(name: str) -> str:
    """Return a public dataclass: its docstring and its fields.

    Raises:
        TypeError: there is no public dataclass of that name.
    """
    found = _public(name)
    if not dataclasses.is_dataclass(found):
        msg = f"{name} is no dataclass"
        raise TypeError(msg)
    docs = [parse_docstring(vars(each).get("__doc__")) for each in found.__mro__]
    meanings: dict[str, str] = {}
    for doc in reversed(docs):
        meanings |= doc.entries.get("Attributes", {})
    lines = [f"### `{name}`", "", docs[0].text]
    fields = dataclasses.fields(found)
    if fields:
        rows = [("field", "type", "default", "meaning"), ("---",) * 4]
        rows += [
            (f"`{item.name}`", _type(item.type), _default(item), _cell(meanings.get(item.name, "")))
            for item in fields
        ]
        # Where the names say it all, the last column would be empty.
        width = 4 if meanings else 3
        lines += ["", *(f"| {' | '.join(row[:width])} |" for row in rows)]
    return "\n".join(lines)


def render_contract(name: str) -> str:
    """Return a public class with its attributes and methods, as an implementer needs them."""
    found = _public(name)
    return "\n\n".join([f"### `{name}`", render_docstring(found.__doc__), *_methods(vars(found))])


def render_class(name: str, *known: str) -> str:
    """Return a public class as its users need it: how to make one, and all its methods.

    Args:
        name: of the class.
        known: classes whose methods are described elsewhere.
    """
    found = _public(name)
    members: dict[str, Any] = {}
    for base in reversed(found.__mro__):
        if base.__module__.startswith("nanobot_core."):
            members |= vars(base)
    described = {method for each in known for method in vars(_public(each))}
    shown = {
        method: member
        for method, member in members.items()
        if method not in described and not method.startswith("test_")
    }
    blocks = [f"### `{name}`", render_docstring(found.__doc__)]
    if not inspect.isabstract(found):
        blocks.insert(1, _code(found))
    if call := members.get("__call__"):
        blocks += ["**A call**", _code(call), render_docstring(call.__doc__)]
    return "\n\n".join([*blocks, *_methods(shown)])


def render_function(name: str) -> str:
    """Return a public function with its signature."""
    found = _public(name)
    return "\n\n".join([f"### `{name}`", _code(found), render_docstring(found.__doc__)])


def _code(function: Callable[..., Any], head: str = "") -> str:
    return f"```{{code-block}} python\n{head}{_signature(function)}\n```"


def _methods(members: Mapping[str, Any]) -> list[str]:
    """Return the public methods and properties among the members of a class."""
    blocks: list[str] = []
    for method, member in members.items():
        function = member.fget if isinstance(member, property) else member
        if method.startswith("_") or not inspect.isfunction(function):
            continue
        required = " (required)" if getattr(function, "__isabstractmethod__", False) else ""
        head = "@property\n" if isinstance(member, property) else ""
        code = _code(function, head)
        blocks += [f"**`{method}`**{required}", code, render_docstring(function.__doc__)]
    return blocks


def _public(name: str) -> Any:  # noqa: ANN401 - a class of any kind
    """Return the public class `name` of the core, or of what providers or channels share."""
    return next(getattr(home, name) for home in _HOMES if name in home.__all__)


def _hook(point: HookPoint[..., Any]) -> str:
    rule = RULES[point.kind]
    facts = [f"*{point.kind.value}*", rule.summary]
    limit_s = PLUGIN_END_S if point.name == "stop" else point.limit_s
    if limit_s is not None:
        facts.append(f"at most {limit_s:g} s")
    if point.reaches:
        facts.append(f'shown to the owner as "{point.reaches}"')
    if point.field:
        facts.append(f"replaces `{point.field}` of the event")
    links = _links(point.declaration)
    return "\n\n".join(
        [
            f"### `{point.name}`",
            "; ".join(facts) + ".",
            _code(point.declaration, f"@on.{point.name}\n"),
            render_docstring(point.declaration.__doc__),
            *([f"See {', '.join(links)}."] if links else []),
        ]
    )


def _links(declaration: Callable[..., Any]) -> list[str]:
    found = _named_in([declaration])
    return [f"[`{name}`](#{name.lower()})" for name in found]


def _named_in(declarations: Iterable[Callable[..., Any]]) -> dict[str, type]:
    """Return the public dataclasses that signatures name."""
    found: dict[str, type] = {}
    for declaration in declarations:
        found |= _public_dataclasses(str(value) for value in declaration.__annotations__.values())
    return found


def _named_in_fields(holder: type) -> dict[str, type]:
    annotations = (str(item.type) for item in dataclasses.fields(holder))
    return _public_dataclasses(annotations)


def _public_dataclasses(annotations: Iterable[str]) -> dict[str, type]:
    found: dict[str, type] = {}
    for text in annotations:
        for name in _IDENTIFIER.findall(text):
            for part in ALIASES.get(name, (name,)):
                value = getattr(nanobot_core, part, None)
                if isinstance(value, type) and dataclasses.is_dataclass(value):
                    found[part] = value
    return found


def _module(found: type) -> str:
    return found.__module__.split(".")[1]


class _Verbatim(str):
    """An annotation that `inspect` shows as it is written, without quotes."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def _signature(function: Callable[..., Any]) -> str:
    """Return the head of a function, or how to make an object of a class.

    It has one parameter per line if it is long.
    """
    shown: list[str] = []
    for each in inspect.signature(function).parameters.values():
        if each.kind is each.KEYWORD_ONLY and "*" not in shown:
            shown.append("*")
        # A function is shown with its address, which is another one each time.
        default = _Verbatim("...") if inspect.isfunction(each.default) else each.default
        parameter = each.replace(default=default)
        if each.annotation is not each.empty:
            parameter = parameter.replace(annotation=_Verbatim(each.annotation))
        shown.append(str(parameter))
    start, end = f"{function.__name__}(", ")"
    if not isinstance(function, type):
        start = f"{'async def' if inspect.iscoroutinefunction(function) else 'def'} {start}"
        end += f" -> {function.__annotations__.get('return', 'None')}"
    line = start + ", ".join(shown) + end
    if len(line) <= _WIDTH:
        return line
    return "\n    ".join([start, *(f"{each}," for each in shown)]) + f"\n{end}"


def _type(annotation: object) -> str:
    text = annotation if isinstance(annotation, str) else getattr(annotation, "__name__", "")
    return _cell(f"`{text}`")


def _cell(text: str) -> str:
    """Return `text` for a table, where a bar would end the cell."""
    return text.replace("|", "\\|")


def _default(item: dataclasses.Field[Any]) -> str:
    value = item.default
    if callable(value):
        if any(value.__name__ in home.__all__ for home in _HOMES):
            return f"`{value.__name__}`"
        verb, _, rest = (inspect.getdoc(value) or "").partition(".")[0].partition(" ")
        return f"{verb.lower()}s {rest}"
    if isinstance(value, frozenset) and value:
        return f"`{{{', '.join(sorted(map(repr, value)))}}}`"
    if value is not dataclasses.MISSING:
        return f"`{value!r}`"
    if item.default_factory is not dataclasses.MISSING:
        name = getattr(item.default_factory, "__name__", "<lambda>")
        return "see there" if name == "<lambda>" else f"`{name}()`"
    return "required"
