"""The text of a configuration without its secrets."""

from __future__ import annotations

import re
from collections.abc import Collection
from itertools import count
from typing import TYPE_CHECKING, Final

import yaml

from nanobot_core.config.secrets import MASK, names_secret, resembles_secret

if TYPE_CHECKING:
    from nanobot_core.config.secrets import Redactor

_WORD = re.compile(r"\S+")
_NO_NAME = re.compile(r"[^A-Z0-9]+")
_NO_SECRETS: Final = frozenset({"tag:yaml.org,2002:bool", "tag:yaml.org,2002:null"})


def without_secrets(text: str, redactor: Redactor) -> tuple[str, dict[str, str]] | None:
    """Return a configuration with ``${NAME}`` in place of each secret.

    Everything else stays as it is, comments included; only what resembles a secret in a comment is
    masked.

    Args:
        text: YAML or JSON.
        redactor: knows the secrets.

    Returns:
        The text, and key path to name; ``None`` if the secrets cannot be separated, because the
        text is damaged or refers to a secret from several places.
    """
    pieces, names, done = list[str](), dict[str, str](), 0
    try:
        for where, node in _scalars(yaml.compose(text, yaml.SafeLoader)):
            start, end = node.start_mark.index, node.end_mark.index
            pieces.append(_masked(text[done:start]))
            if _is_secret(where, node, redactor):
                names[where] = _name(where, names.values())
                pieces.append(f'"${{{names[where]}}}"')
            else:
                pieces.append(text[start:end])
            done = end
        pieces.append(_masked(text[done:]))
        result = "".join(pieces)
        left = _scalars(yaml.compose(result, yaml.SafeLoader))
    except (yaml.YAMLError, RecursionError):
        return None
    is_clean = not any(_is_secret(where, node, redactor) for where, node in left)
    return (result, names) if is_clean else None


def _scalars(root: yaml.Node | None) -> list[tuple[str, yaml.ScalarNode]]:
    """Return the values of a document with their key paths, in the order of the text."""
    found: dict[int, tuple[str, yaml.ScalarNode]] = {}
    waiting: list[tuple[str, yaml.Node]] = [("", root)] if root is not None else []
    seen: set[int] = set()
    while waiting:
        where, node = waiting.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        if isinstance(node, yaml.ScalarNode):
            found[node.start_mark.index] = (where, node)
        elif isinstance(node, yaml.MappingNode):
            for key, value in node.value:
                name = key.value if isinstance(key, yaml.ScalarNode) else "?"
                waiting.append((f"{where}.{name}".lstrip("."), value))
        elif isinstance(node, yaml.SequenceNode):
            waiting += [(f"{where}[{number}]", each) for number, each in enumerate(node.value)]
    return [found[start] for start in sorted(found)]


def _is_secret(where: str, node: yaml.ScalarNode, redactor: Redactor) -> bool:
    value: str = node.value
    if value.startswith("${") or node.tag in _NO_SECRETS:
        return False
    if any(map(names_secret, where.split("."))) or value in redactor.secrets:
        return bool(value)
    return redactor.redact(value) != value


def _name(where: str, taken: Collection[str]) -> str:
    """Return a name for a variable, unique among those taken."""
    name = _NO_NAME.sub("_", where.upper()).strip("_") or "SECRET"
    name = f"_{name}" if name[0].isdigit() else name
    names = (f"{name}_{number}" for number in count(2))
    return name if name not in taken else next(each for each in names if each not in taken)


def _masked(between: str) -> str:
    """Mask what resembles a secret in the text between two values, which is in a comment."""
    return _WORD.sub(lambda word: MASK if resembles_secret(word[0]) else word[0], between)
