"""Distributions that are not installed yet, read and checked without importing or running them."""

from __future__ import annotations

import base64
import csv
import hashlib
import re
import zipfile
from collections.abc import Iterator, Mapping
from importlib.metadata import Distribution, PathDistribution
from pathlib import Path, PurePosixPath
from typing import IO, TYPE_CHECKING, Final

from packaging.utils import InvalidWheelFilename, parse_wheel_filename

from nanobot_core.errors import InstallError
from nanobot_core.plugins import metadata
from nanobot_core.plugins.index import ENTRY_POINT_GROUP, MANIFEST_FILE, MANIFEST_GROUP, id_problem
from nanobot_core.plugins.manifest import Manifest, parse_manifest
from nanobot_core.record import dataclass

if TYPE_CHECKING:
    from nanobot_core.install.environment import Interpreter

_RUN_AT_START: Final = frozenset({"sitecustomize", "usercustomize"})
"""Modules that each start of Python imports; files that end in ``.pth`` are run as well."""
_DATA: Final = re.compile(r"[^/]+\.data/([^/]+)/(.+)")
_OF_INSTALLERS: Final = frozenset(
    {"RECORD", "RECORD.jws", "RECORD.p7s", "INSTALLER", "REQUESTED", "direct_url.json"}
)
"""Files of a dist-info folder that are not the same wherever the distribution is installed."""
_BESIDE_SITE: Final = frozenset({"..", "bin", "share", "etc", "include"})
_CHUNK_BYTES: Final = 1_000_000
_SCRIPT_GROUPS: Final = ("console_scripts", "gui_scripts")


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidatePlugin:
    """A plugin of a distribution that is not installed yet.

    Attributes:
        id: its id.
        manifest: what it contributes, or ``None`` if the distribution does not describe it.
    """

    id: str
    manifest: Manifest | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A distribution that could be installed.

    Attributes:
        name: its name, normalised.
        version: its version.
        python: its ``Requires-Python``, or an empty string.
        requires: lines of its ``Requires-Dist``.
        plugins: its plugins, by entry point.
        hashes: path in ``site-packages`` to the hash that its RECORD has for the file.
        files: all paths that it may create, relative to the scheme that the key names.
    """

    name: str
    version: str
    python: str
    requires: tuple[str, ...]
    plugins: tuple[CandidatePlugin, ...]
    hashes: Mapping[str, str]
    files: Mapping[str, tuple[str, ...]]

    @property
    def label(self) -> str:
        """Name and version."""
        return f"{self.name} {self.version}"

    @property
    def digest(self) -> str:
        """A hash of all its code, equal before and after the installation."""
        return digest_of(self.hashes)

    def paths(self, interpreter: Interpreter) -> tuple[Path, ...]:
        """Return every path that its installation may create; some may never exist."""
        roots = {
            "site": interpreter.site,
            "scripts": interpreter.scripts,
            "data": interpreter.prefix,
            "headers": interpreter.prefix / "include" / "site" / interpreter.site.parent.name,
        }
        found = [roots[scheme] / path for scheme, paths in self.files.items() for path in paths]
        infos = {path.parent for path in found if path.parent.name.endswith(".dist-info")}
        return (*found, *infos)


def read_wheel(file: Path) -> Candidate:
    """Return the distribution in a wheel, each of its files checked against its RECORD.

    Raises:
        InstallError: it is damaged, contradicts its name, or has files that no plugin may have.
    """
    what = f"wheel '{file.name}'"
    try:
        name, version, *_ = parse_wheel_filename(file.name)
    except InvalidWheelFilename as error:
        reason = "its name is not that of a wheel"
        raise InstallError(what, reason, "name it as its author did") from error
    try:
        with zipfile.ZipFile(file) as archive:
            infos = {path.partition("/")[0] for path in archive.namelist() if ".dist-info/" in path}
            if len(infos) != 1:
                raise InstallError(what, f"expected one dist-info folder, found {len(infos)}")
            distribution = PathDistribution(zipfile.Path(archive, f"{infos.pop()}/"))
            _check_record(what, archive, distribution)
            found = read_distribution(what, distribution, zipfile.Path(archive))
    except (OSError, EOFError, zipfile.BadZipFile, NotImplementedError, RuntimeError) as error:
        reason = f"it cannot be read ({error})"
        raise InstallError(what, reason, "it may be incomplete; download it again") from error
    if (found.name, found.version) != (name, str(version)):
        reason = f"its metadata is that of {found.label}, its file name says {name} {version}"
        raise InstallError(what, reason, "do not install it; ask its author")
    return found


def read_distribution(
    what: str, distribution: Distribution, root: Path | zipfile.Path
) -> Candidate:
    """Return a distribution in a wheel, or in a folder that is not on the search path.

    Args:
        what: what it is, for messages.
        distribution: its metadata.
        root: its files.

    Raises:
        InstallError: its metadata is damaged, or it has files that no plugin may have.
    """
    from packaging.version import InvalidVersion, Version

    try:
        version = str(Version(distribution.version))
        entries = distribution.entry_points
    except (InvalidVersion, TypeError, KeyError, ValueError) as error:
        raise InstallError(what, f"its metadata is damaged ({error})") from error
    hashes = dict(_hashes(distribution))
    files = _by_scheme(what, [path for path, _ in _record(distribution)])
    scripts = [entry.name for entry in entries if entry.group in _SCRIPT_GROUPS]
    files["scripts"] = (*files["scripts"], *_checked(what, scripts))
    manifests = {entry.name: entry.value for entry in entries if entry.group == MANIFEST_GROUP}
    found = Candidate(
        name=metadata.normalise(metadata.header(distribution, "Name")),
        version=version,
        python=metadata.header(distribution, "Requires-Python"),
        requires=tuple(distribution.requires or ()),
        plugins=tuple(
            CandidatePlugin(
                id=entry.name,
                manifest=_read_manifest(what, root, entry.name, manifests.get(entry.name)),
            )
            for entry in entries
            if entry.group == ENTRY_POINT_GROUP
        ),
        hashes=hashes,
        files=files,
    )
    _refuse_start_files(what, found)
    return found


def installed_hashes(distribution: Distribution) -> dict[str, str]:
    """Return path in ``site-packages`` to the hash in the RECORD of an installed distribution."""
    return dict(_hashes(distribution))


def digest_of(hashes: Mapping[str, str]) -> str:
    """Return the digest of a distribution from the hashes of its files."""
    text = "\n".join(f"{path} {value}" for path, value in sorted(hashes.items()))
    return hashlib.sha256(text.encode()).hexdigest()


def _record(distribution: Distribution) -> Iterator[tuple[str, str]]:
    """Yield path and hash of each line of a RECORD."""
    for row in csv.reader((distribution.read_text("RECORD") or "").splitlines()):
        if row:
            yield row[0], row[1] if len(row) > 1 else ""


def _hashes(distribution: Distribution) -> Iterator[tuple[str, str]]:
    for path, value in _record(distribution):
        in_data = _DATA.fullmatch(path)
        if in_data and in_data[1] in {"purelib", "platlib"}:
            path = in_data[2]  # noqa: PLW2901 - it is installed there
        elif in_data:
            continue
        parts = PurePosixPath(path).parts
        of_installer = parts[0].endswith(".dist-info") and (
            parts[-1] in _OF_INSTALLERS or parts[-1].startswith("uv_")
        )
        if not of_installer and parts[0] not in _BESIDE_SITE and value and parts[0] != "/":
            yield path, value


def _check_record(what: str, archive: zipfile.ZipFile, distribution: Distribution) -> None:
    """Refuse a wheel of which a file differs from the RECORD, or is not in it.

    Installers copy the lines of a RECORD without comparing them, and locks rest on these lines.
    """
    listed = dict(_record(distribution))
    if not listed:
        raise InstallError(what, "it has no RECORD of its files", "build it again")
    for info in archive.infolist():
        parts = PurePosixPath(info.filename).parts
        if info.is_dir() or (parts[-1].startswith("RECORD") and parts[0].endswith(".dist-info")):
            continue
        algorithm, _, value = listed.get(info.filename, "").partition("=")
        if algorithm not in {"sha256", "sha384", "sha512"}:
            raise InstallError(
                what, f"its RECORD has no hash of '{info.filename}'", "build it again"
            )
        with archive.open(info) as content:
            if _hash(algorithm, content) != value:
                reason = f"'{info.filename}' differs from its RECORD"
                raise InstallError(what, reason, "do not install it; ask its author")


def _hash(algorithm: str, content: IO[bytes]) -> str:
    digest = hashlib.new(algorithm)
    while chunk := content.read(_CHUNK_BYTES):
        digest.update(chunk)
    return base64.urlsafe_b64encode(digest.digest()).rstrip(b"=").decode()


def _by_scheme(what: str, paths: list[str]) -> dict[str, tuple[str, ...]]:
    """Return the paths of a RECORD by the folder that they are relative to."""
    found: dict[str, list[str]] = {"site": [], "scripts": [], "data": [], "headers": []}
    for path in _checked(what, paths):
        in_data = _DATA.fullmatch(path)
        if in_data is None:
            found["site"].append(path)
            if PurePosixPath(path).parts[0] in _BESIDE_SITE:  # a folder that uv has installed into
                found["data"].append(path)
        elif in_data[1] in {"purelib", "platlib"}:
            found["site"].append(in_data[2])
        elif in_data[1] == "headers":
            found["headers"].append(f"{path.partition('-')[0]}/{in_data[2]}")
        elif in_data[1] in found:
            found[in_data[1]].append(in_data[2])
        else:
            raise InstallError(what, f"it has files of an unknown kind: '{path}'")
    return {scheme: tuple(each) for scheme, each in found.items()}


def _checked(what: str, paths: list[str]) -> list[str]:
    for path in paths:
        parts = PurePosixPath(path).parts
        if not parts or ".." in parts or path.startswith("/") or "\\" in path:
            reason = f"its file '{path}' would be outside of the environment"
            raise InstallError(what, reason, "do not install it; ask its author")
    return paths


def _refuse_start_files(what: str, candidate: Candidate) -> None:
    in_site = ((path, len(PurePosixPath(path).parts) == 1) for path in candidate.files["site"])
    in_data = ((path, "-packages/" in path) for path in candidate.files["data"])
    for path, is_top in (*in_site, *in_data):
        first = PurePosixPath(path).parts[0].partition(".")[0]
        if (is_top and path.endswith(".pth")) or first in _RUN_AT_START:
            reason = f"it contains '{path}', which runs at each start of Python"
            remedy = "if you trust it, install it yourself with the environment's own installer"
            raise InstallError(what, reason, remedy)


def _read_manifest(
    what: str, root: Path | zipfile.Path, plugin_id: str, package: str | None
) -> Manifest | None:
    if problem := id_problem(plugin_id):
        raise InstallError(what, problem, "ask its author")
    if package is None or not (file := root / package / MANIFEST_FILE).is_file():
        return None
    try:
        manifest = parse_manifest(file.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        reason = " ".join(str(error).split())[:200]
        raise InstallError(
            what, f"its manifest cannot be used: {reason}", "ask its author"
        ) from error
    if manifest.id != plugin_id:
        reason = f"its manifest is that of plugin '{manifest.id}'"
        raise InstallError(what, reason, "ask its author to run nanobot plugins build")
    return manifest
