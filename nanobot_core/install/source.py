"""What the owner asks to install: a name, a wheel, a folder or a single file."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final, Literal, TypeAlias
from urllib.parse import urlsplit
from urllib.request import url2pathname

from packaging.requirements import InvalidRequirement, Requirement

from nanobot_core.config.environment import expand_home
from nanobot_core.errors import InstallError
from nanobot_core.plugins.metadata import normalise
from nanobot_core.plugins.published import Published
from nanobot_core.record import dataclass

Kind: TypeAlias = Literal["name", "wheel", "folder", "file"]
_DIRECT: Final = re.compile(r"([A-Za-z0-9][\w.-]*)\s*@\s*file:(.+)")
"""A requirement with a path, which may be relative, unlike in PEP 508."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """One thing to install.

    Attributes:
        kind: what it is.
        name: normalised name of the distribution; empty if its files say so.
        requirement: what an installer understands, for a name.
        path: where it is, for the other kinds.
    """

    kind: Kind
    name: str = ""
    requirement: str = ""
    path: Path | None = None


def parse_source(text: str, base: Path, published: Published) -> Source:
    """Return what `text` names.

    Args:
        text: such as ``nanobot-web>=0.1``, the id of a published plugin, ``./x.whl``, ``./folder``,
            ``./file.py`` or ``name @ file:../folder``.
        base: folder that relative paths start from.
        published: known plugins, for ids.

    Raises:
        InstallError: it is none of these, or does not exist.
    """
    direct = _DIRECT.fullmatch(text.strip())
    if direct is not None:
        path = url2pathname(urlsplit(direct[2]).path) if direct[2].startswith("//") else direct[2]
        return _local(text, base / expand_home(path), normalise(direct[1]))
    is_path = text.startswith((".", "~")) or "/" in text or text.endswith((".whl", ".py"))
    if is_path and "://" not in text and " @ " not in text:
        return _local(text, base / expand_home(text), "")
    try:
        requirement = Requirement(text)
    except InvalidRequirement as error:
        reason = "expected the name of a distribution, a wheel, a folder or a .py file"
        raise InstallError(f"cannot install '{_shown(text)}'", reason) from error
    if requirement.url is not None:
        reason = "addresses are not supported, because they cannot be locked"
        remedy = "name the distribution, or download its wheel and name that"
        raise InstallError(f"cannot install '{requirement.name}'", reason, remedy)
    name = normalise(requirement.name)
    if name not in published.plugins and (known := published.distribution_of(name)):
        extras = f"[{','.join(sorted(requirement.extras))}]" if requirement.extras else ""
        return Source(
            kind="name", name=known, requirement=f"{known}{extras}{requirement.specifier}"
        )
    return Source(kind="name", name=name, requirement=str(requirement))


def _shown(text: str) -> str:
    """Return a short form of what was typed, without the credentials of an address."""
    return text.rpartition("@")[2][:100] if "://" in text else text[:100]


def _local(text: str, path: Path, name: str) -> Source:
    path = path.absolute()
    kind: Kind
    if path.is_dir():
        kind = "folder"
    elif path.is_file() and path.suffix in {".whl", ".py"}:
        kind = "wheel" if path.suffix == ".whl" else "file"
    else:
        exists = (
            "it is neither a folder nor a .whl or .py file" if path.exists() else "no such file"
        )
        raise InstallError(f"cannot install '{_shown(text)}'", exists, f"looked for {path}")
    return Source(kind=kind, name=name, path=path)
