"""Writes what this release offers to plugins: ``python docs/_ext/hookspecs.py``.

`nanobot plugins compat` reads the file to say whether a wheel fits the release. The files of former
releases stay as they are.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import json
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from public_names import MODULES

import nanobot_core
from nanobot_core import on
from nanobot_core.deprecation import DEPRECATED
from nanobot_core.hooks.markers import HookPoint
from nanobot_core.plugins import manifest

SCHEMA_VERSION = 1
FOLDER = Path(nanobot_core.__file__).with_name("hookspecs")
FILE = FOLDER / f"{nanobot_core.__version__}.json"
_WITHOUT_MEMBERS = "nanobot_core.testing"
"""Its names are listed only: tests are not part of a wheel."""
_PLUMBING = {"builtins", "abc", "typing"}


def render_hookspecs() -> str:
    """Return the file of this release."""
    public = {name: importlib.import_module(name) for name in MODULES}
    found = {
        name: getattr(module, name)
        for module_name, module in public.items()
        if module_name != _WITHOUT_MEMBERS
        for name in module.__all__
    }
    data = {
        "schema_version": SCHEMA_VERSION,
        "release": nanobot_core.__version__,
        "manifest_version": manifest.SCHEMA_VERSION,
        "names": {name: sorted(module.__all__) for name, module in public.items()},
        "hooks": {
            name: _hook(point)
            for name, point in sorted(vars(on).items())
            if isinstance(point, HookPoint)
        },
        "contributions": dict(sorted(manifest.KINDS.items())),
        "classes": {
            name: _class(value) for name, value in sorted(found.items()) if inspect.isclass(value)
        },
        "functions": {
            name: _signature(value)
            for name, value in sorted(found.items())
            if inspect.isfunction(value)
        },
        "deprecated": [
            {
                "name": item.name,
                "since": item.since,
                "removed_in": item.removed_in,
                "removed_on": item.removed_on,
                "replacement": item.replacement,
            }
            for item in DEPRECATED
        ],
    }
    return json.dumps(data, indent=1, ensure_ascii=False) + "\n"


def _hook(point: HookPoint[..., Any]) -> dict[str, object]:
    signature = inspect.signature(point.declaration)
    return {
        "kind": point.kind.value,
        "generation": point.revision,
        "arguments": {name: _type(each.annotation) for name, each in signature.parameters.items()},
        "returns": _type(signature.return_annotation),
    }


def _class(found: type) -> dict[str, object]:
    """Return the fields and methods of a class, with those of its bases in the core."""
    own = [each for each in found.__mro__ if each.__module__.partition(".")[0] == "nanobot_core"]
    fields: dict[str, str] = {}
    methods: dict[str, str] = {}
    for each in reversed(own):
        fields |= dict(_fields(each))
        for name, member in list(vars(each).items()):
            function = getattr(member, "__func__", member)
            if name.startswith("_") or not inspect.isfunction(function):
                continue
            methods[name] = _signature(function)
    foreign = [each for each in found.__mro__ if each not in own and not _is_plumbing(each)]
    data = {
        "fields": {name: fields[name] for name in sorted(fields)},
        "methods": {name: methods[name] for name in sorted(methods)},
        "required": sorted(getattr(found, "__abstractmethods__", ())),
        "call": _constructor(found),
        "bases": [f"{each.__module__}.{each.__qualname__}" for each in foreign],
    }
    return {key: value for key, value in data.items() if value}


def _is_plumbing(base: type) -> bool:
    """Whether a class is one that gives an object no members of interest."""
    is_exception = issubclass(base, BaseException)
    return base.__module__ in _PLUMBING and not is_exception and base is not dict


def _fields(found: type) -> Iterator[tuple[str, str]]:
    """Yield annotated attributes, properties, and attributes that methods assign."""
    for name, annotation in inspect.get_annotations(found).items():
        if not name.startswith("_") and name != "model_config":
            yield name, _type(annotation)
    for name, member in list(vars(found).items()):
        if isinstance(member, property) and not name.startswith("_"):
            yield name, _type(inspect.get_annotations(member.fget or _class).get("return"))
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(found)))
    except OSError:  # made at run time
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.AnnAssign):
            yield from ((name, ast.unparse(node.annotation)) for name in _assigned(node.target))
        elif isinstance(node, ast.Assign):
            yield from ((name, "object") for target in node.targets for name in _assigned(target))


def _assigned(target: ast.expr) -> Iterator[str]:
    """Yield the public attribute of `self` that is assigned, if it is one."""
    is_own = isinstance(target, ast.Attribute) and ast.unparse(target.value) == "self"
    if is_own and not target.attr.startswith("_"):
        yield target.attr


def _constructor(found: type) -> str:
    """Return how a class is called; empty if a class outside of the core decides on it."""
    definer = next(each for each in found.__mro__ if "__init__" in vars(each))
    is_ours = definer.__module__.partition(".")[0] == "nanobot_core"
    return _signature(found) if is_ours and not getattr(found, "_is_protocol", False) else ""


def _signature(function: Callable[..., object]) -> str:
    """Return the parameters as Python would read them: no types, and ``...`` for any default."""
    parameters = [
        each.replace(
            annotation=inspect.Parameter.empty,
            default=each.empty if each.default is each.empty else ...,
        )
        for name, each in inspect.signature(function).parameters.items()
        if name not in {"self", "cls"}
    ]
    return str(inspect.Signature(parameters)).replace("Ellipsis", "...")


def _type(annotation: object) -> str:
    if annotation is None or annotation is inspect.Signature.empty:
        return "object"
    return annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    FILE.write_text(render_hookspecs(), "utf-8")
