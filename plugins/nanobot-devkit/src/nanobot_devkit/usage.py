"""The hooks, fields and calls of Python code, compared with what a release of the core offers."""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Iterator, Mapping

from nanobot_devkit.code import CodeModule, Misfit
from nanobot_devkit.release import ClassFacts, Release

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_Function = ast.FunctionDef | ast.AsyncFunctionDef
_OPTIONAL = re.compile(r"\s*\|\s*None\s*$")


class Usage:
    """Compares the hooks of a module, the fields that it reads, and the calls that it makes."""

    def __init__(self, module: CodeModule, release: Release) -> None:
        self._module = module
        self._release = release

    def misfits(self) -> Iterator[Misfit]:
        """Yield what does not fit."""
        for node in ast.walk(self._module.tree):
            if isinstance(node, ast.Attribute) and self._is_on(node.value):
                yield from self._hook(node)
            elif isinstance(node, ast.Call):
                yield from self._public_call(node)
            elif isinstance(node, FUNCTIONS):
                hook = self._hook_of(node)
                if hook in self._release.hooks:
                    yield from self._arguments(node, hook)
                yield from self._body(node, hook)

    def _is_on(self, node: ast.expr) -> bool:
        return self._module.resolve(node) == "on"

    def _hook(self, node: ast.Attribute) -> Iterator[Misfit]:
        place, name = self._module.place(node.lineno), node.attr
        found = self._release.deprecation(f"on.{name}")
        is_missing = name not in self._release.hooks
        if found is not None:
            message = f"hook '{name}' is deprecated since {found.since}"
            if is_missing:
                message = f"hook '{name}' is gone since {found.removed_in}"
            yield Misfit("hook", place, message, f"use {found.replacement}", not is_missing)
        elif is_missing:
            message = f"{self._release.release} has no hook '{name}'"
            yield Misfit("hook", place, message, "see the changelog of nanobot-core")

    def _hook_of(self, node: _Function) -> str:
        """Return the hook that a function implements; empty if none."""
        for each in node.decorator_list:
            call = each.func if isinstance(each, ast.Call) else each
            if isinstance(call, ast.Attribute) and self._is_on(call.value):
                return call.attr
            if self._module.resolve(call) == "hookimpl":
                keywords = each.keywords if isinstance(each, ast.Call) else []
                named = [item.value for item in keywords if item.arg == "specname"]
                value = named[0] if named else None
                is_text = isinstance(value, ast.Constant) and isinstance(value.value, str)
                return (
                    str(value.value) if isinstance(value, ast.Constant) and is_text else node.name
                )
        return ""

    def _arguments(self, node: _Function, hook: str) -> Iterator[Misfit]:
        known = self._release.hooks[hook].arguments
        for parameter in positional(node.args):
            if parameter.arg not in known and parameter.arg != "self":
                allowed = ", ".join(known) or "none"
                message = f"hook '{hook}' has no argument '{parameter.arg}'"
                yield Misfit("hook", self._module.place(node.lineno), message, f"it has: {allowed}")

    def _body(self, node: _Function, hook: str) -> Iterator[Misfit]:
        types = self._types_of(node, hook)
        if not types:
            return
        for statement in node.body:
            for inner in ast.walk(statement):
                if isinstance(inner, ast.Attribute):
                    yield from self._field(inner, types)
                elif isinstance(inner, ast.Call) and isinstance(inner.func, ast.Attribute):
                    owner = self._type(inner.func.value, types)
                    facts = self._release.classes.get(owner)
                    if facts and inner.func.attr in facts.methods:
                        name = f"{owner}.{inner.func.attr}"
                        yield from self._call(inner, name, facts.methods[inner.func.attr])

    def _types_of(self, node: _Function, hook: str) -> dict[str, str]:
        """Return the local names whose class is certain: parameters, and copies of their fields."""
        hooks = self._release.hooks
        arguments = hooks[hook].arguments if hook in hooks else {}
        types: dict[str, str] = {}
        for parameter in (*positional(node.args), *node.args.kwonlyargs):
            declared = arguments.get(parameter.arg, "")
            if parameter.annotation is not None:
                declared = self._annotation(parameter.annotation)
            if declared in self._release.classes:
                types[parameter.arg] = declared
        stored: dict[str, int] = {}
        for inner in ast.walk(node):
            if isinstance(inner, ast.Name) and not isinstance(inner.ctx, ast.Load):
                stored[inner.id] = stored.get(inner.id, 0) + 1
            elif isinstance(inner, (*FUNCTIONS, ast.Lambda)) and inner is not node:
                for parameter in positional(inner.args):
                    stored[parameter.arg] = 2
        uncertain = stored.keys() | _narrowed(node)
        types = {name: kind for name, kind in types.items() if name not in uncertain}
        for inner in ast.walk(node):
            if isinstance(inner, ast.Assign) and isinstance(inner.targets[0], ast.Name):
                name = inner.targets[0].id
                if stored.get(name) == 1 and (kind := self._type(inner.value, types)):
                    types[name] = kind
        return types

    def _annotation(self, node: ast.expr) -> str:
        """Return the public class that an annotation names; empty if it is anything else."""
        text = node.value if isinstance(node, ast.Constant) else ast.unparse(node)
        try:
            parsed = ast.parse(_OPTIONAL.sub("", str(text)), mode="eval").body
        except (SyntaxError, ValueError):
            return ""
        return "" if isinstance(parsed, ast.Subscript) else self._module.resolve(parsed)

    def _type(self, node: ast.expr, types: Mapping[str, str]) -> str:
        """Return the class of an expression of names and attributes; empty if not certain."""
        if isinstance(node, ast.Name):
            return types.get(node.id, "")
        if not isinstance(node, ast.Attribute):
            return ""
        facts = self._release.classes.get(self._type(node.value, types))
        kind = _OPTIONAL.sub("", facts.fields.get(node.attr, "")) if facts else ""
        return kind if kind in self._release.classes else ""

    def _field(self, node: ast.Attribute, types: Mapping[str, str]) -> Iterator[Misfit]:
        owner, name = self._type(node.value, types), node.attr
        facts = self._release.classes.get(owner)
        if facts is None or name.startswith("__") or _has_member(facts, name):
            yield from self._deprecated_field(node, owner)
            return
        message = f"{owner} of {self._release.release} has no '{name}'"
        remedy = "read it only if it is there, or require a release that has it"
        yield Misfit("field", self._module.place(node.lineno), message, remedy)

    def _deprecated_field(self, node: ast.Attribute, owner: str) -> Iterator[Misfit]:
        if found := self._release.deprecation(f"{owner}.{node.attr}"):
            message = f"{found.name} is deprecated since {found.since}"
            place = self._module.place(node.lineno)
            yield Misfit("field", place, message, f"use {found.replacement}", is_warning=True)

    def _public_call(self, node: ast.Call) -> Iterator[Misfit]:
        name = self._module.resolve(node.func)
        facts = self._release.classes.get(name)
        parameters = facts.call if facts else self._release.functions.get(name, "")
        if parameters:
            yield from self._call(node, name, parameters)

    def _call(self, node: ast.Call, name: str, parameters: str) -> Iterator[Misfit]:
        """Compare a call with the parameters of a release."""
        known = parse_parameters(parameters)
        by_position = positional(known)
        place, remedy = self._module.place(node.lineno), f"it takes {parameters}"
        keywords = {each.arg for each in node.keywords}
        names = {each.arg for each in (*by_position, *known.kwonlyargs)}
        for keyword in sorted(each for each in keywords - names if each is not None):
            if known.kwarg is None:
                yield Misfit("call", place, f"{name} takes no '{keyword}'", remedy)
        if None in keywords or any(isinstance(each, ast.Starred) for each in node.args):
            return
        if len(node.args) > len(by_position) and known.vararg is None:
            message = f"{name} takes {len(by_position)} arguments by position, not {len(node.args)}"
            yield Misfit("call", place, message, remedy)
        for missing in sorted(
            required_names(known) - {each.arg for each in by_position[: len(node.args)]}
        ):
            if missing not in keywords:
                yield Misfit("call", place, f"{name} requires '{missing}'", remedy)


def positional(arguments: ast.arguments) -> list[ast.arg]:
    """Return the parameters that can be given by position."""
    return [*arguments.posonlyargs, *arguments.args]


def parse_parameters(text: str) -> ast.arguments:
    """Return parameters that are written as Python writes them, such as ``(a, *, b=...)``."""
    lambdas = (each for each in ast.walk(ast.parse(f"lambda {text[1:-1]}: 0")))
    return next(each.args for each in lambdas if isinstance(each, ast.Lambda))


def required_names(arguments: ast.arguments) -> set[str]:
    """Return the parameters that have no default."""
    by_position = positional(arguments)
    given = by_position[: len(by_position) - len(arguments.defaults)]
    named = zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    return {each.arg for each in given} | {each.arg for each, value in named if value is None}


def _narrowed(node: _Function) -> set[str]:
    """Return the names that a function tests for a narrower class."""
    found: set[str] = set()
    for inner in ast.walk(node):
        tested: ast.expr | None = None
        if isinstance(inner, ast.Match):
            tested = inner.subject
        elif isinstance(inner, ast.Call) and ast.unparse(inner.func) == "isinstance" and inner.args:
            tested = inner.args[0]
        if isinstance(tested, ast.Name):
            found.add(tested.id)
    return found


def _has_member(facts: ClassFacts, name: str) -> bool:
    if name in facts.fields or name in facts.methods:
        return True
    for base in facts.bases:
        module, _, base_name = base.rpartition(".")
        known = getattr(builtins, base_name, None) if module == "builtins" else None
        if known is None or hasattr(known, name):
            return True
    return False
