"""What a release of nanobot-core offers to plugins, as its ``hookspecs`` file says."""

from __future__ import annotations

import zipfile
from collections.abc import Iterable, Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path, PurePosixPath

from packaging.version import InvalidVersion, Version
from pydantic import BaseModel, ConfigDict, ValidationError

from nanobot_core import NanobotError, __version__

SCHEMA_VERSION = 1
FOLDER = "nanobot_core/hookspecs/"
MAX_BYTES = 5_000_000


class ReleaseUnknown(NanobotError):
    """There is no usable description of a release; the message says what to give instead."""


class _Record(BaseModel):
    # Later releases may add keys.
    model_config = ConfigDict(extra="ignore", frozen=True)


class HookFacts(_Record):
    """A hook.

    Attributes:
        kind: how it is called.
        generation: rises when its meaning changes.
        arguments: argument to its type.
        returns: type of the result.
    """

    kind: str
    generation: int
    arguments: dict[str, str]
    returns: str


class ClassFacts(_Record):
    """A public class.

    Attributes:
        fields: attribute or property to its type.
        methods: method to its parameters, as Python writes them.
        required: methods and properties that a subclass must define.
        call: parameters of its constructor; empty if not known.
        bases: its bases outside of the core.
    """

    fields: dict[str, str] = {}
    methods: dict[str, str] = {}
    required: tuple[str, ...] = ()
    call: str = ""
    bases: tuple[str, ...] = ()


class DeprecationFacts(_Record):
    """A name that goes in a later release.

    Attributes:
        name: ``nanobot_core.Name``, ``on.hook`` or ``Class.field``.
        since: release that deprecated it.
        removed_in: first release without it.
        removed_on: day before which no such release appears.
        replacement: what to use instead.
    """

    name: str
    since: str
    removed_in: str
    removed_on: str
    replacement: str


class Release(_Record):
    """A release of nanobot-core.

    Attributes:
        release: its version.
        manifest_version: version of the format of manifests that it reads.
        names: public module to the names that it exports.
        hooks: its hooks.
        contributions: kind of a declaration in a manifest to the hook that gives it.
        classes: public classes by name.
        functions: public function to its parameters.
        deprecated: names that go in a later release, or are gone.
    """

    release: str
    manifest_version: int
    names: dict[str, tuple[str, ...]]
    hooks: dict[str, HookFacts]
    contributions: dict[str, str]
    classes: dict[str, ClassFacts]
    functions: dict[str, str]
    deprecated: tuple[DeprecationFacts, ...] = ()

    def deprecation(self, name: str) -> DeprecationFacts | None:
        """Return what is said about a name; ``None`` if it is not deprecated."""
        return next((each for each in self.deprecated if each.name == name), None)


def select_releases(against: Sequence[str]) -> list[Release]:
    """Return the releases to compare with, oldest first.

    Args:
        against: versions, ranges such as ``0.1..0.3``, files as published with a release, or wheels
            of nanobot-core; nothing means the installed release.

    Raises:
        ReleaseUnknown: one of them names no known release.
    """
    found: dict[str, Release] = {}
    for text in against or (__version__,):
        for each in _selected(text):
            found[each.release] = each
    return sorted(found.values(), key=lambda each: Version(each.release))


def compatible_range(version: str) -> str:
    """Return the releases of nanobot-core that a plugin written for `version` may use.

    Until 1.0 a minor release may break plugins, afterwards only a major one.
    """
    major, minor = (int(part) for part in version.split(".")[:2])
    return f">={major}.{minor},<{major}.{minor + 1}" if major == 0 else f">={major},<{major + 1}"


@cache
def shipped_releases() -> tuple[Release, ...]:
    """Return the releases that the installed core knows, oldest first: its own and former ones."""
    folder = files("nanobot_core") / "hookspecs"
    found = [each for each in folder.iterdir() if each.name.endswith(".json")]
    releases = (parse_release(each.read_bytes(), each.name) for each in found)
    return tuple(sorted(releases, key=lambda each: Version(each.release)))


def parse_release(data: bytes, name: str) -> Release:
    """Return the release that a file describes.

    Args:
        data: content of the file.
        name: of the file, for the error.

    Raises:
        ReleaseUnknown: it is no such file.
    """
    try:
        release = Release.model_validate_json(data)
        Version(release.release)
    except (ValidationError, InvalidVersion) as error:
        msg = f"'{name}' does not describe a release; give a file of nanobot_core/hookspecs"
        raise ReleaseUnknown(msg) from error
    return release


def _selected(text: str) -> Iterable[Release]:
    file = Path(text)
    if file.suffix in {".json", ".whl"}:
        return _read(file)
    first, dots, last = text.partition("..")
    try:
        low = Version(first) if first else None
        high = Version(last if dots else first) if last or not dots else None
    except InvalidVersion as error:
        msg = f"'{text}' is no version, range such as 0.1..0.3, .json file or wheel"
        raise ReleaseUnknown(msg) from error
    found = [
        each
        for each in shipped_releases()
        if (low is None or Version(each.release) >= low)
        and (high is None or _at_most(Version(each.release), high))
    ]
    if not found:
        known = ", ".join(each.release for each in shipped_releases())
        msg = (
            f"no release known here is in '{text}'; known are {known}. For another one, give the "
            "wheel of nanobot-core or its file in nanobot_core/hookspecs"
        )
        raise ReleaseUnknown(msg)
    return found


def _at_most(version: Version, high: Version) -> bool:
    """Whether a version is at most `high`, of which ``0.3`` means the last 0.3."""
    return version <= high or version.release[: len(high.release)] == high.release


def _read(file: Path) -> list[Release]:
    try:
        if file.suffix == ".json":
            return [parse_release(file.read_bytes(), str(file))]
        with zipfile.ZipFile(file) as archive:
            names = [each for each in archive.infolist() if each.filename.startswith(FOLDER)]
            found = [
                parse_release(archive.read(each), each.filename)
                for each in names
                if each.filename.endswith(".json") and each.file_size <= MAX_BYTES
            ]
    except (OSError, zipfile.BadZipFile) as error:
        msg = f"cannot read '{file}': {error}"
        raise ReleaseUnknown(msg) from error
    # A wheel also has the files of former releases.
    version = PurePosixPath(file.name).name.split("-")[1] if "-" in file.name else ""
    own = [each for each in found if each.release == version]
    if not own:
        msg = f"'{file}' has no {FOLDER}{version or 'VERSION'}.json; give a wheel of nanobot-core"
        raise ReleaseUnknown(msg)
    return own
