"""Classes that implement contracts of the core, compared with what a release requires of them."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from nanobot_devkit.code import CodeModule, Misfit
from nanobot_devkit.release import Release
from nanobot_devkit.usage import FUNCTIONS, parse_parameters, positional, required_names

_BARE = frozenset({"Generic", "object"})


@dataclass(frozen=True, slots=True, eq=False)
class _Class:
    """A class of the package.

    Attributes:
        contracts: public classes of the core that it derives from.
        others: its other bases, by their last name.
        members: what it defines.
    """

    module: CodeModule
    node: ast.ClassDef
    contracts: tuple[str, ...]
    others: tuple[str, ...]
    members: Mapping[str, ast.stmt]


def contract_misfits(modules: Sequence[CodeModule], release: Release) -> Iterator[Misfit]:
    """Yield the methods that classes lack, and those that take other arguments.

    A class that others extend may leave methods to them. Nothing is said of a class with a base
    that is neither of the core nor of the package.
    """
    classes = {
        node.name: _read(module, node)
        for module in modules
        for node in ast.walk(module.tree)
        if isinstance(node, ast.ClassDef)
    }
    extended = {base for each in classes.values() for base in each.others}
    for name, each in classes.items():
        lineage = _lineage(each, classes)
        contracts = {base for member in lineage for base in member.contracts}
        yield from _signatures(each, sorted(contracts & release.classes.keys()), release)
        is_whole = all(base in {*classes, *_BARE} for member in lineage for base in member.others)
        if is_whole and name not in extended and not _is_abstract(each.node):
            yield from _missing(each, lineage, release)


def _read(module: CodeModule, node: ast.ClassDef) -> _Class:
    members: dict[str, ast.stmt] = {}
    for statement in node.body:
        if isinstance(statement, FUNCTIONS):
            members[statement.name] = statement
        elif isinstance(statement, ast.Assign):
            members |= {
                each.id: statement for each in statement.targets if isinstance(each, ast.Name)
            }
        elif isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            members[statement.target.id] = statement
    contracts = [module.resolve(base) for base in node.bases]
    others = [
        _last_name(base)
        for base, contract in zip(node.bases, contracts, strict=True)
        if not contract
    ]
    return _Class(module, node, tuple(filter(None, contracts)), tuple(others), members)


def _last_name(node: ast.expr) -> str:
    plain = node.value if isinstance(node, ast.Subscript) else node
    return ast.unparse(plain).rpartition(".")[2]


def _is_abstract(node: ast.ClassDef) -> bool:
    marks = [
        ast.unparse(mark)
        for statement in node.body
        if isinstance(statement, FUNCTIONS)
        for mark in statement.decorator_list
    ]
    bases = [_last_name(base) for base in node.bases]
    return any("abstract" in mark for mark in marks) or bool({"ABC", "Protocol"} & {*bases})


def _lineage(each: _Class, classes: Mapping[str, _Class]) -> list[_Class]:
    """Return a class and the classes of the package that it derives from."""
    found = [each]
    for member in found:
        found += [classes[base] for base in member.others if classes.get(base, each) not in found]
    return found


def _missing(each: _Class, lineage: Sequence[_Class], release: Release) -> Iterator[Misfit]:
    """Yield what a class that is used as it is does not define."""
    defined = {name for member in lineage for name in member.members}
    contracts = {base for member in lineage for base in member.contracts}
    facts = [release.classes[name] for name in contracts & release.classes.keys()]
    required = {name for fact in facts for name in fact.required}
    given = {
        name
        for fact in facts
        for name in (*fact.fields, *fact.methods)
        if name not in fact.required
    }
    for name in sorted(required - defined - given):
        message = f"class {each.node.name} lacks '{name}', which {release.release} requires"
        yield Misfit("contract", each.module.place(each.node.lineno), message, "implement it")


def _signatures(each: _Class, contracts: Sequence[str], release: Release) -> Iterator[Misfit]:
    """Yield the methods that cannot be called as a release calls them."""
    for contract in contracts:
        for name, parameters in release.classes[contract].methods.items():
            found = each.members.get(name)
            if not isinstance(found, FUNCTIONS) or found.args.vararg or found.args.kwarg:
                continue
            if any("static" in ast.unparse(mark) for mark in found.decorator_list):
                continue
            if problem := _difference(found.args, parse_parameters(parameters)):
                message = f"{each.node.name}.{name} {problem}"
                remedy = f"{release.release} calls it with {parameters}"
                yield Misfit("contract", each.module.place(found.lineno), message, remedy)


def _difference(own: ast.arguments, contract: ast.arguments) -> str:
    """Return why a method cannot be called with the parameters of a contract; empty if it can."""
    expected, taken = len(positional(contract)), positional(own)[1:]
    if len(taken) < expected:
        return f"takes {len(taken)} arguments instead of {expected}"
    names = {each.arg for each in (*taken, *own.kwonlyargs)}
    for each in contract.kwonlyargs:
        if each.arg not in names:
            return f"does not take '{each.arg}'"
    by_position = {each.arg for each in taken[:expected]} | {"self", "cls"}
    extra = required_names(own) - by_position - {each.arg for each in contract.kwonlyargs}
    first = positional(own)[:1]
    extra -= {each.arg for each in first}
    return f"requires '{min(extra)}', which it does not get" if extra else ""
