"""Files of Python code, and the names of nanobot-core that they import. No code is run."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from nanobot_devkit.release import Release

ROOT = "nanobot_core"


@dataclass(frozen=True, slots=True)
class Misfit:
    """One thing that does not fit a release.

    Attributes:
        rule: what it concerns, in a word.
        place: file and line, or the part of the package that says it.
        message: what was found.
        remedy: what to do.
        is_warning: the plugin works with the release nevertheless.
    """

    rule: str
    place: str
    message: str
    remedy: str
    is_warning: bool = False

    def __str__(self) -> str:
        return f"{self.place}: {self.rule}: {self.message}; {self.remedy}"


@dataclass(frozen=True, slots=True)
class Use:
    """A use of a name of the core.

    Attributes:
        line: where it is.
        module: the module that should have it.
        name: the name; empty if the module itself is imported.
        is_typing: only type checkers see it.
    """

    line: int
    module: str
    name: str
    is_typing: bool


@dataclass(frozen=True, slots=True, eq=False)
class CodeModule:
    """One file.

    Attributes:
        path: of the file in the wheel.
        tree: its code.
        public: local name to the name in the core that it stands for.
        modules: local name to the module of the core that it stands for.
        uses: what it takes from the core, without imports whose failure it handles.
    """

    path: str
    tree: ast.Module
    public: Mapping[str, str]
    modules: Mapping[str, str]
    uses: tuple[Use, ...]

    def place(self, line: int) -> str:
        """Return file and line."""
        return f"{self.path}:{line}"

    def resolve(self, node: ast.expr) -> str:
        """Return the name of the core that an expression means; empty if none."""
        if isinstance(node, ast.Subscript):
            return self.resolve(node.value)
        if isinstance(node, ast.Name):
            return self.public.get(node.id, "")
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            return node.attr if node.value.id in self.modules else ""
        return ""

    def misfits(self, release: Release) -> Iterator[Misfit]:
        """Yield the names that a release lacks, or that go in a later one."""
        for use in self.uses:
            place = self.place(use.line)
            if use.module not in release.names:
                if f"{use.module}.{use.name}" not in release.names:
                    message = f"{use.module} is no public module of {release.release}"
                    remedy = "import only what the page Public names lists"
                    yield Misfit("name", place, message, remedy, use.is_typing)
            elif use.name and not use.name.startswith("__"):
                yield from _name(use, place, release)


def parse_modules(
    sources: Mapping[str, str], public_modules: Collection[str]
) -> tuple[list[CodeModule], list[Misfit]]:
    """Return the files that can be parsed, and what is wrong with the others.

    Args:
        sources: path to text.
        public_modules: names of the modules that plugins may import from the core.
    """
    modules: list[CodeModule] = []
    broken: list[Misfit] = []
    for path, text in sorted(sources.items()):
        try:
            modules.append(_read(path, ast.parse(text), public_modules))
        except (SyntaxError, ValueError, RecursionError) as error:
            line = getattr(error, "lineno", None) or 1
            reason = error.msg if isinstance(error, SyntaxError) else str(error)
            broken.append(Misfit("syntax", f"{path}:{line}", reason, "correct the code"))
    return modules, broken


def _read(path: str, tree: ast.Module, public_modules: Collection[str]) -> CodeModule:
    optional = {each for node in ast.walk(tree) for each in _optional(node)}
    typing = {each for node in ast.walk(tree) for each in _for_type_checkers(node)}
    public: dict[str, str] = {}
    modules: dict[str, str] = {}
    uses: list[Use] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and not node.level and _is_core(node.module or ""):
            source = node.module or ""
            for alias in node.names:
                local, full = alias.asname or alias.name, f"{source}.{alias.name}"
                if full in public_modules:
                    modules[local] = full
                else:
                    public[local] = alias.name
                if node not in optional:
                    name = alias.name if alias.name != "*" else ""
                    uses.append(Use(node.lineno, source, name, node in typing))
        elif isinstance(node, ast.Import):
            for alias in filter(lambda each: _is_core(each.name), node.names):
                modules[alias.asname or ROOT] = alias.name if alias.asname else ROOT
                if node not in optional:
                    uses.append(Use(node.lineno, alias.name, "", node in typing))
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and (source := modules.get(_name_of(node.value), "")):
            full = f"{source}.{node.attr}"
            if full not in public_modules:
                uses.append(Use(node.lineno, source, node.attr, is_typing=False))
    return CodeModule(path, tree, public, modules, tuple(uses))


def _name_of(node: ast.expr) -> str:
    return node.id if isinstance(node, ast.Name) else ""


def _is_core(name: str) -> bool:
    return name == ROOT or name.startswith(f"{ROOT}.")


def _optional(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the imports of a ``try`` that continues if they fail."""
    if isinstance(node, ast.Try):
        caught = " ".join(ast.unparse(each.type) for each in node.handlers if each.type)
        if re.search(r"ImportError|ModuleNotFoundError|\bException\b", caught):
            for statement in node.body:
                yield from ast.walk(statement)


def _for_type_checkers(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
        for statement in node.body:
            yield from ast.walk(statement)


def _name(use: Use, place: str, release: Release) -> Iterator[Misfit]:
    full = f"{use.module}.{use.name}"
    is_missing = use.name not in release.names[use.module] and full not in release.names
    found = release.deprecation(full)
    if found is not None:
        message = f"{full} is deprecated since {found.since} and goes with {found.removed_in}"
        if is_missing:
            message = f"{full} is gone since {found.removed_in}"
        is_warning = not is_missing or use.is_typing
        yield Misfit("name", place, message, f"use {found.replacement}", is_warning)
    elif is_missing:
        elsewhere = [other for other, names in release.names.items() if use.name in names]
        remedy = f"import it from {elsewhere[0]}" if elsewhere else "see the page Public names"
        message = f"{release.release} has no public name {full}"
        yield Misfit("name", place, message, remedy, use.is_typing)
