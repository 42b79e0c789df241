"""The settings reference, rendered from the pydantic models of the core and of its plugins."""

from __future__ import annotations

import ast
import importlib
import inspect
import json
import sys
import textwrap
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Literal, Union, get_args, get_origin

from docstrings import parse_docstring
from pydantic import BaseModel, SecretStr
from pydantic.alias_generators import to_camel
from pydantic.fields import FieldInfo

from nanobot_core import ChannelSettings, GroupSettings, ProviderSettings, Settings
from nanobot_core.plugins.index import InstalledPlugin, scan_installed

REPOSITORY = Path(__file__).resolve().parents[2]
_SUFFIXES: dict[object, str] = {list: "[]", dict: ".<name>"}
_NAMES: dict[object, str] = {
    SecretStr: "secret text",
    NoneType: "none",
    bool: "true or false",
    dict: "mapping",
    float: "number",
    int: "whole number",
    list: "list",
    Path: "path",
    str: "text",
    tuple: "list",
}


def render_core_settings() -> str:
    """Return the core's sections, with those that each channel and each provider has."""
    places: dict[type[BaseModel], list[str]] = {Settings: []}
    for path, model in _nested("", Settings):
        places.setdefault(model, []).append(path)
    places[ChannelSettings] = ["channels.<name>"]
    places[GroupSettings] = ["channels.<name>.groups.<chat id>"]
    places[ProviderSettings] = ["providers.<name>"]
    return "\n\n".join(_section(paths, model) for model, paths in places.items())


def render_plugin_settings() -> str:
    """Return the sections of those plugins of this repository that are installed."""
    blocks = []
    for plugin in scan_installed():
        if plugin.manifest is None or not (REPOSITORY / "plugins" / plugin.distribution).is_dir():
            continue
        sections = list(_sections_of(plugin))
        if sections:
            blocks += [f"### {plugin.distribution}", *sections]
    return "\n\n".join(blocks)


def _sections_of(plugin: InstalledPlugin) -> Iterator[str]:
    manifest = plugin.manifest
    places: dict[type[BaseModel], list[str]] = {}
    for section in manifest.settings if manifest else ():
        model = _load(section.model)
        places.setdefault(model, []).append(section.path)
        for path, inner in _nested(section.path, model):
            if not inner.__module__.startswith("nanobot_core."):
                places.setdefault(inner, []).append(path)
    yield from (_section(paths, model, level=4) for model, paths in places.items() if _table(model))
    providers: dict[str, list[str]] = {}
    for item in manifest.of_kind("providers") if manifest else ():
        providers.setdefault(str(item.detail["settings"]), []).append(item.name)
    for dotted, names in providers.items():
        sections = ", ".join(f"`providers.{name}`" for name in names)
        model = _load(dotted)
        if model is ProviderSettings:
            yield f"{sections}: the keys of `providers.<name>` above."
        else:
            yield f"{sections}:\n\n{_table(model)}"


def _load(dotted: str) -> type[BaseModel]:
    module, _, name = dotted.partition(":")
    model = getattr(importlib.import_module(module), name)
    if not (isinstance(model, type) and issubclass(model, BaseModel)):
        msg = f"{dotted} is no settings model"
        raise TypeError(msg)
    return model


def _section(paths: list[str], model: type[BaseModel], level: int = 3) -> str:
    title = ", ".join(f"`{path}`" for path in paths) or "The top of the file"
    intro = "" if level > 3 else parse_docstring(model.__doc__).text
    if level > 3 and issubclass(model, ChannelSettings):
        intro = "Besides the keys of `channels.<name>` above:"
    return "\n\n".join(part for part in (f"{'#' * level} {title}", intro, _table(model)) if part)


def _nested(path: str, model: type[BaseModel]) -> Iterator[tuple[str, type[BaseModel]]]:
    """Yield the models inside `model` with their key paths."""
    for name, info in model.model_fields.items():
        inner, suffix = _model_in(info.annotation)
        if inner is not None:
            at = f"{path}.{name}".lstrip(".") + suffix
            yield at, inner
            yield from _nested(at, inner)
    if (named := _model_of_names(model)) is not None:
        at = f"{path}.<name>"
        yield at, named
        yield from _nested(at, named)


def _model_of_names(model: type[BaseModel]) -> type[BaseModel] | None:
    """Return the model of what stands under names that the owner chooses, if it has one."""
    for base in model.__mro__:
        text = vars(base).get("__annotations__", {}).get("__pydantic_extra__")
        if isinstance(text, str) and base is not BaseModel:
            annotation = eval(text, vars(sys.modules[base.__module__]))  # noqa: S307 - our own text
            return _model_in(annotation)[0]
    return None


def _model_in(annotation: object) -> tuple[type[BaseModel] | None, str]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation, ""
    for part in get_args(annotation):
        found, _ = _model_in(part)
        if found is not None:
            return found, _SUFFIXES.get(get_origin(annotation), "")
    return None, ""


def _table(model: type[BaseModel]) -> str:
    """Return the keys of a section; of a channel's, those that not every channel has."""
    meanings = _meanings(model)
    rows = []
    is_channel = issubclass(model, ChannelSettings) and model is not ChannelSettings
    for name, info in model.model_fields.items():
        if is_channel and name in ChannelSettings.model_fields:
            continue
        is_renamed = info.alias not in {None, to_camel(name)}
        cells = (_type(info.annotation), _default(info), meanings.get(name, ""))
        rows.append(f"| `{info.alias if is_renamed else name}` | {' | '.join(cells)} |")
    if not rows:
        return ""
    return "\n".join(["| key | value | default | meaning |", "| --- | --- | --- | --- |", *rows])


def _meanings(model: type[BaseModel]) -> dict[str, str]:
    """Return what each field means: its description, the text below it, or the class's list."""
    found: dict[str, str] = {}
    for base in reversed(model.__mro__):
        if issubclass(base, BaseModel) and base is not BaseModel:
            found |= parse_docstring(base.__doc__).entries.get("Attributes", {})
            found |= _texts_below(base)
    described = {
        name: info.description for name, info in model.model_fields.items() if info.description
    }
    return found | described


def _texts_below(model: type[BaseModel]) -> dict[str, str]:
    """Return the string literals below fields."""
    (tree,) = ast.parse(textwrap.dedent(inspect.getsource(model))).body
    body = tree.body if isinstance(tree, ast.ClassDef) else []
    found: dict[str, str] = {}
    for field, text in pairwise(body):
        if (
            isinstance(field, ast.AnnAssign)
            and isinstance(field.target, ast.Name)
            and isinstance(text, ast.Expr)
            and isinstance(text.value, ast.Constant)
        ):
            lines = inspect.cleandoc(str(text.value.value)).splitlines()
            found[field.target.id] = " ".join(lines).replace("``", "`")
    return found


def _type(annotation: object) -> str:
    origin, args = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _type(args[0])
    if origin is Literal:
        return ", ".join(f"`{value}`" for value in args)
    if origin in {Union, UnionType}:
        return " or ".join(_type(part) for part in args if part is not NoneType)
    if origin in {list, tuple, set, frozenset}:
        return f"list of {_type(args[0])}"
    if origin is dict:
        return f"mapping to {_type(args[1])}"
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return "section"
    return _NAMES.get(annotation, "any")


def _default(info: FieldInfo) -> str:
    if info.is_required():
        return "required"
    value = info.get_default(call_default_factory=True, validated_data={})
    if value is None:
        return "none"
    if isinstance(value, BaseModel):
        return ""
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, float) and value.is_integer():
        return f"`{int(value)}`"
    if value == "" or (isinstance(value, SecretStr) and not value.get_secret_value()):
        return "empty"
    plain = list(value) if isinstance(value, tuple | frozenset) else value
    return f"`{plain if isinstance(plain, str) else json.dumps(plain, default=str)}`"
