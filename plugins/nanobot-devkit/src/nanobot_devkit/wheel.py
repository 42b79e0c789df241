"""A plugin's wheel, read without running its code."""

from __future__ import annotations

import configparser
import zipfile
from collections.abc import Iterable
from dataclasses import dataclass, field
from email.parser import HeaderParser
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from pydantic import BaseModel, ConfigDict, ValidationError

from nanobot_core import NanobotError

CORE = "nanobot-core"
MAX_FILE_BYTES = 2_000_000
MAX_BYTES = 50_000_000
"""Of all files that are read together."""
_MANIFEST = "nanobot-plugin.json"


class WheelUnusable(NanobotError):
    """A file is not a wheel of a plugin; the message says why."""


class _Contribution(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)
    kind: str
    name: str = ""


class ManifestFacts(BaseModel):
    """What a manifest says that depends on the release of the core.

    Attributes:
        schema_version: version of its format.
        hooks: hook to the generation that it was written for.
        declarations: contributions.
    """

    model_config = ConfigDict(extra="ignore", frozen=True)
    schema_version: int
    hooks: dict[str, int] = {}
    declarations: tuple[_Contribution, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginCode:
    """The code of a package, and what is said about it.

    Attributes:
        name: name of the distribution.
        version: its version.
        core: releases of nanobot-core that it accepts; ``None`` if it does not say.
        manifests: path of each manifest to its content.
        sources: path of each Python file to its text.
    """

    name: str
    version: str
    core: SpecifierSet | None
    manifests: dict[str, ManifestFacts] = field(default_factory=dict)
    sources: dict[str, str] = field(default_factory=dict)


def read_wheel(file: Path) -> PluginCode:
    """Return the code in a wheel. Nothing is unpacked, imported or run.

    Raises:
        WheelUnusable: the file is damaged, too large, or not a wheel with a nanobot plugin.
    """
    try:
        with zipfile.ZipFile(file) as archive:
            return _read(archive, file)
    except (OSError, zipfile.BadZipFile, EOFError, ValueError, NotImplementedError) as error:
        if isinstance(error, FileNotFoundError):
            msg = f"there is no file '{file}'; give the path of a wheel, such as dist/x-1.0.whl"
        else:
            msg = f"'{file}' is not a readable wheel: {error}; build it again"
        raise WheelUnusable(msg) from error


def _read(archive: zipfile.ZipFile, file: Path) -> PluginCode:
    texts: dict[str, str] = {}
    total = 0
    for item in archive.infolist():
        folder, _, name = item.filename.rpartition("/")
        is_metadata = folder.endswith(".dist-info") and name in {"METADATA", "entry_points.txt"}
        if not (is_metadata or name.endswith(".py") or name == _MANIFEST):
            continue
        total += item.file_size
        if item.file_size > MAX_FILE_BYTES or total > MAX_BYTES:
            msg = f"'{file}' has too large a file '{item.filename}' ({item.file_size} bytes)"
            raise WheelUnusable(msg)
        texts[item.filename] = archive.read(item).decode("utf-8", errors="replace")
    metadata = next((text for name, text in texts.items() if name.endswith("/METADATA")), None)
    if metadata is None:
        msg = f"'{file}' has no METADATA, so it is no wheel"
        raise WheelUnusable(msg)
    points = "\n".join(text for name, text in texts.items() if name.endswith("entry_points.txt"))
    if not _has_plugin(points):
        msg = f"'{file}' has no entry point in the group 'nanobot', so it holds no plugin"
        raise WheelUnusable(msg)
    headers = HeaderParser().parsestr(metadata)
    return PluginCode(
        name=str(headers["Name"]),
        version=str(headers["Version"]),
        core=core_range(str(each) for each in headers.get_all("Requires-Dist", [])),
        manifests={
            name: _manifest(text, name) for name, text in texts.items() if name.endswith(_MANIFEST)
        },
        sources={name: text for name, text in texts.items() if name.endswith(".py")},
    )


def read_folder(code: Path) -> PluginCode:
    """Return the code of an installed package or module, without manifests and requirements.

    Args:
        code: folder of the package, or a single module.
    """
    found = sorted(code.rglob("*.py")) if code.is_dir() else [code]
    sources = {
        str(each.relative_to(code.parent)): each.read_text("utf-8", errors="replace")
        for each in found
        if each.stat().st_size <= MAX_FILE_BYTES
    }
    return PluginCode(name=code.name, version="", core=None, sources=sources)


def core_range(requirements: Iterable[str]) -> SpecifierSet | None:
    """Return the releases of nanobot-core that requirements accept; ``None`` if none names it."""
    for text in requirements:
        try:
            requirement = Requirement(text)
        except InvalidRequirement:
            continue
        if canonicalize_name(requirement.name) == CORE and requirement.marker is None:
            return requirement.specifier
    return None


def _has_plugin(entry_points: str) -> bool:
    parser = configparser.ConfigParser(delimiters=("=",), interpolation=None)
    try:
        parser.read_string(entry_points)
    except configparser.Error:
        return False
    return parser.has_section("nanobot") and bool(parser.options("nanobot"))


def _manifest(text: str, name: str) -> ManifestFacts:
    try:
        return ManifestFacts.model_validate_json(text)
    except ValidationError as error:
        msg = f"'{name}' is not a manifest; run nanobot plugins build, and build the wheel again"
        raise WheelUnusable(msg) from error
