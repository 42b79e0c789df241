"""pip and uv as child processes: what they would install, its files, and the installation.

Both get the owner's own configuration of indexes, and none of the other secrets of this process.
Nothing is built from source except the folder that the owner names, because a build runs code.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import distributions
from pathlib import Path
from typing import ClassVar, Final
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, ValidationError

from nanobot_core.config.environment import process_environment
from nanobot_core.errors import InstallError
from nanobot_core.install.candidate import Candidate, read_distribution, read_wheel
from nanobot_core.install.environment import Environment
from nanobot_core.plugins.metadata import normalise
from nanobot_core.record import dataclass

LIMIT_S: Final = 600.0
"""Seconds that one call of pip or uv may take."""
_PASSED: Final = re.compile(
    r"PATH|HOME|USER|LOGNAME|LANG|LC_\w+|TMPDIR|NETRC|PIP_\w+|UV_\w+|XDG_\w+|SSL_CERT_\w+"
    r"|REQUESTS_CA_BUNDLE|CURL_CA_BUNDLE|(?:https?|all|no)_proxy|SYSTEMROOT|SOURCE_DATE_EPOCH",
    re.IGNORECASE,
)
_ELSEWHERE: Final = frozenset(
    {"PIP_TARGET", "PIP_PREFIX", "PIP_ROOT", "PIP_USER", "PIP_DRY_RUN", "PIP_REPORT", "PIP_PYTHON"}
)
"""Variables that would install into another environment, or nothing."""
_CREDENTIALS: Final = re.compile(r"(\w+://)[^/\s@]+@")
_QUERY: Final = re.compile(r"(\w+://[^\s?]+\?)\S+")
_REASON_CHARS: Final = 700


@dataclass(frozen=True, slots=True, kw_only=True)
class Pin:
    """A distribution that a resolution would install, at its exact version."""

    name: str
    version: str

    def __str__(self) -> str:
        return f"{self.name}=={self.version}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What to resolve.

    Attributes:
        requirements: as the owner named them.
        wheels: local wheels to install besides.
        constraints: versions that must not change.
        upgrade: take the newest versions of what `requirements` name.
        alone: leave out what they depend on.
    """

    requirements: Sequence[str] = ()
    wheels: Sequence[Path] = ()
    constraints: Sequence[Pin] = ()
    upgrade: bool = False
    alone: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """A release that an index offers.

    Attributes:
        name: the distribution.
        version: its version.
        indexes: addresses of the indexes that it may come from, best first; empty if none does.
        sha256: of the wheel, or an empty string if it is not known.
    """

    name: str
    version: str
    indexes: tuple[str, ...] = ()
    sha256: str = ""


class Installer(ABC):
    """Installs into one environment.

    Args:
        environment: the environment.
        folder: private folder for files of this installation, which exists.
    """

    def __init__(self, environment: Environment, folder: Path) -> None:
        self._python = environment.interpreter.python
        self._uv = environment.interpreter.uv or "uv"
        self._folder = folder
        self._wheels = folder / "wheels"
        self._wheels.mkdir(exist_ok=True)

    def take_wheel(self, file: Path) -> Path:
        """Copy a local wheel, so that what is installed is what was checked; return the copy.

        Raises:
            OSError: it cannot be read.
        """
        return Path(shutil.copy(file, self._wheels / file.name))

    @abstractmethod
    def build(self, folder: Path) -> Path:
        """Return a wheel built from a folder; this runs the code of its build backend.

        Raises:
            InstallError: the folder cannot be built.
        """

    @abstractmethod
    def resolve(self, request: Request) -> tuple[Pin, ...]:
        """Return what would be installed or replaced; nothing is changed.

        Raises:
            InstallError: no set of versions fits.
        """

    @abstractmethod
    def fetch(self, pins: Sequence[Pin]) -> tuple[Candidate, ...]:
        """Download these distributions and read them; local wheels are already here.

        Raises:
            InstallError: one cannot be downloaded, or must not be installed.
        """

    @abstractmethod
    def releases(self, pins: Sequence[Pin]) -> tuple[Release, ...]:
        """Return where these distributions come from, after `resolve`.

        Raises:
            InstallError: the program does not say.
        """

    @abstractmethod
    def install(self, pins: Sequence[Pin], named: Sequence[str]) -> None:
        """Install what was fetched.

        Args:
            pins: all of it.
            named: names among them that the owner asked for; the others are dependencies.

        Raises:
            InstallError: it failed; the environment may be incomplete.
        """

    @abstractmethod
    def uninstall(self, names: Sequence[str]) -> None:
        """Remove distributions.

        Raises:
            InstallError: it failed; the environment may be incomplete.
        """

    def local_names(self) -> dict[str, Path]:
        """Return the local wheels by the name of their distribution."""
        return {read_wheel(file).name: file for file in sorted(self._wheels.glob("*.whl"))}

    def run(
        self, command: Sequence[str], what: str, remedy: str, *, own_settings: bool = True
    ) -> str:
        """Run a program and return its standard output.

        Args:
            command: the program and its arguments.
            what: what failed if it fails.
            remedy: what to do then.
            own_settings: it reads the owner's configuration of pip.

        Raises:
            InstallError: it does not start, fails, or overruns `LIMIT_S`.
        """
        try:
            done = subprocess.run(
                command,
                env=_child_variables(own_settings=own_settings),
                cwd=self._folder,  # so that no file of the current folder is imported
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=LIMIT_S,
                check=False,
            )
        except OSError as error:
            reason = f"{command[0]} does not start: {error.strerror}"
            raise InstallError(what, reason, remedy) from error
        except subprocess.TimeoutExpired as error:
            reason = f"it did not end within {LIMIT_S:g} s"
            raise InstallError(what, reason, "check the network, then try again") from error
        if done.returncode:
            raise InstallError(what, _reason_in(done.stderr, done.returncode), remedy)
        return done.stdout

    def write_lines(self, name: str, lines: Sequence[object]) -> str:
        """Write a file of requirements or constraints, and return its path."""
        file = self._folder / name
        file.write_text("".join(f"{line}\n" for line in lines), "utf-8")
        return str(file)


class _Metadata(BaseModel):
    name: str
    version: str


class _Archive(BaseModel):
    hashes: dict[str, str] = {}


class _Download(BaseModel):
    url: str = ""
    archive_info: _Archive = _Archive()


class _ReportItem(BaseModel):
    metadata: _Metadata
    download_info: _Download = _Download()


class _PipReport(BaseModel):
    """The report of ``pip install --report``, as far as it is used."""

    model_config: ClassVar[ConfigDict] = ConfigDict(extra="ignore")

    install: list[_ReportItem]


class Pip(Installer):
    """The environment's own pip."""

    def __init__(self, environment: Environment, folder: Path) -> None:
        super().__init__(environment, folder)
        self._downloads: dict[Pin, _Download] = {}

    def build(self, folder: Path) -> Path:
        """Return a wheel; see `Installer.build`."""
        target = Path(tempfile.mkdtemp(dir=self._folder))
        options = ["--no-deps", "--wheel-dir", str(target), str(folder)]
        remedy = "build it yourself for the whole output, such as python3 -m build"
        self._pip(["wheel", *options], f"cannot build {folder}", remedy)
        return _only_wheel(target, folder)

    def resolve(self, request: Request) -> tuple[Pin, ...]:
        """Return what would be installed; see `Installer.resolve`."""
        report = self._folder / "report.json"
        self._pip(
            [
                *("install", "--dry-run", "--only-binary", ":all:", "--report", str(report)),
                *("-c", self.write_lines("constraints.txt", request.constraints)),
                *(["--upgrade"] if request.upgrade else []),
                *(["--no-deps"] if request.alone else []),
                *("-r", self.write_lines("wanted.txt", request.requirements)),
                *map(str, request.wheels),
            ],
            "cannot be resolved",
            "check the name and the network; nothing has changed",
        )
        try:
            found = _PipReport.model_validate_json(report.read_bytes())
        except (OSError, ValidationError) as error:
            raise _unknown_output("pip", "22.2") from error
        pins = tuple(_pin(item.metadata.name, item.metadata.version) for item in found.install)
        self._downloads = {
            pin: item.download_info for pin, item in zip(pins, found.install, strict=True)
        }
        return pins

    def fetch(self, pins: Sequence[Pin]) -> tuple[Candidate, ...]:
        """Download wheels; see `Installer.fetch`."""
        local = self.local_names()
        remote = [pin for pin in pins if pin.name not in local]
        if remote:
            options = ["--no-deps", "--only-binary", ":all:", "--dest", str(self._wheels)]
            file = self.write_lines("remote.txt", remote)
            self._pip(["download", *options, "-r", file], "cannot be downloaded", _TRY_AGAIN)
        found = {read.name: read for read in map(read_wheel, sorted(self._wheels.glob("*.whl")))}
        return _exactly(pins, found)

    def releases(self, pins: Sequence[Pin]) -> tuple[Release, ...]:
        """Return where distributions come from; see `Installer.releases`."""
        found = {pin: self._downloads.get(pin, _Download()) for pin in pins}
        is_remote = {pin: urlsplit(each.url).scheme in _HTTP for pin, each in found.items()}
        indexes = self._indexes() if any(is_remote.values()) else ()
        return tuple(
            Release(
                name=pin.name,
                version=pin.version,
                indexes=indexes if is_remote[pin] else (),
                sha256=each.archive_info.hashes.get("sha256", ""),
            )
            for pin, each in found.items()
        )

    def _indexes(self) -> tuple[str, ...]:
        """Return the indexes that pip is configured with; if none is, the one in its help."""
        what = "cannot ask pip for its index"
        lines = self._pip(["config", "list"], what, _TRY_AGAIN).splitlines()
        matches = filter(None, map(_CONFIGURED.fullmatch, lines))
        found = {match[1]: match[2] for match in matches}
        own = _first_set(found, "index-url")
        if not own and (named := _DEFAULT.search(self._pip(["download", "--help"], what, ""))):
            own = [named[1]]
        return tuple(
            each
            for each in (*own, *_first_set(found, "extra-index-url"))
            if urlsplit(each).scheme in _HTTP
        )

    def install(self, pins: Sequence[Pin], named: Sequence[str]) -> None:
        """Install the wheels here; see `Installer.install`."""
        wanted = [pin for pin in pins if pin.name in named]
        self._pip(
            [
                *("install", "--no-index", "--no-compile", "--find-links", str(self._wheels)),
                *("-c", self.write_lines("pins.txt", pins)),
                *("-r", self.write_lines("named.txt", wanted or pins)),
            ],
            "cannot be installed",
            _TRY_AGAIN,
            own_settings=False,
        )

    def uninstall(self, names: Sequence[str]) -> None:
        """Remove distributions; see `Installer.uninstall`."""
        command = ["uninstall", "--yes", *names]
        self._pip(command, "cannot be removed", _TRY_AGAIN, own_settings=False)

    def _pip(
        self, arguments: Sequence[str], what: str, remedy: str, *, own_settings: bool = True
    ) -> str:
        command = [self._python, "-P", "-m", "pip", *arguments]
        options = ["--quiet", "--no-input", "--disable-pip-version-check"]
        asks = arguments[0] == "config" or "--help" in arguments  # quiet, they would not answer
        given = options[1:] if asks else options
        return self.run([*command, *given], what, remedy, own_settings=own_settings)


class _Change(BaseModel):
    name: str
    version: str
    action: str


class _UvReport(BaseModel):
    """The output of ``uv pip install --output-format json``, as far as it is used."""

    model_config: ClassVar[ConfigDict] = ConfigDict(extra="ignore")

    changes: list[_Change]


class Uv(Installer):
    """uv, for environments that have no pip.

    uv does not store wheels. What it downloads is unpacked into a folder to read it, and comes from
    its cache when it is installed.
    """

    _INSTALLED: ClassVar = frozenset({"installed", "added", "reinstalled", "upgraded", "updated"})

    def build(self, folder: Path) -> Path:
        """Return a wheel; see `Installer.build`."""
        target = Path(tempfile.mkdtemp(dir=self._folder))
        command = [self._uv, "build", "--quiet", "--wheel", "--out-dir", str(target)]
        command += ["--python", self._python, str(folder)]
        self.run(command, f"cannot build {folder}", "run uv build there for the whole output")
        return _only_wheel(target, folder)

    def resolve(self, request: Request) -> tuple[Pin, ...]:
        """Return what would be installed; see `Installer.resolve`."""
        output = self._pip_install(
            [
                *("--dry-run", "--output-format", "json", "--no-build"),
                *("-c", self.write_lines("constraints.txt", request.constraints)),
                *(["--upgrade"] if request.upgrade else []),
                *(["--no-deps"] if request.alone else []),
                *("-r", self.write_lines("wanted.txt", request.requirements)),
                *map(str, request.wheels),
            ],
            "cannot be resolved",
        )
        try:
            found = _UvReport.model_validate_json(output)
        except ValidationError as error:
            raise _unknown_output("uv", "0.9") from error
        return tuple(
            _pin(change.name, change.version)
            for change in found.changes
            if change.action in self._INSTALLED
        )

    def fetch(self, pins: Sequence[Pin]) -> tuple[Candidate, ...]:
        """Unpack the distributions into a folder; see `Installer.fetch`."""
        local = self.local_names()
        found = {name: read_wheel(file) for name, file in local.items()}
        remote = [pin for pin in pins if pin.name not in local]
        if remote:
            target = self._folder / "unpacked"
            file = self.write_lines("remote.txt", remote)
            options = ["--no-deps", "--no-build", "--target", str(target)]
            self._pip_install([*options, "-r", file], "cannot be downloaded")
            for distribution in distributions(path=[str(target)]):
                what = f"distribution '{distribution.name}'"
                read = read_distribution(what, distribution, target)
                found[read.name] = read
        return _exactly(pins, found)

    def releases(self, pins: Sequence[Pin]) -> tuple[Release, ...]:
        """Return where distributions come from; see `Installer.releases`."""
        file = self.write_lines("releases.txt", pins)
        command = [self._uv, "pip", "compile", "--quiet", "--python", self._python, "--no-deps"]
        options = ["--no-build", "--no-header", "--no-annotate", "--emit-index-annotation", file]
        output = self.run([*command, *options], "cannot ask uv for its index", _TRY_AGAIN)
        indexes = {
            normalise(match[1]): match[2]
            for match in _ANNOTATED.finditer(output)
            if urlsplit(match[2]).scheme in _HTTP
        }
        return tuple(
            Release(
                name=pin.name,
                version=pin.version,
                indexes=(indexes[pin.name],) if pin.name in indexes else (),
            )
            for pin in pins
        )

    def install(self, pins: Sequence[Pin], named: Sequence[str]) -> None:
        """Install from the cache and the local wheels; see `Installer.install`."""
        local = self.local_names()
        if here := [pin for pin in pins if pin.name in local]:
            links = ["--no-index", "--find-links", str(self._wheels)]
            file = self.write_lines("local.txt", here)
            self._pip_install(["--no-deps", *links, "-r", file], "cannot be installed")
        # What is installed by now stays.
        wanted = [pin for pin in pins if pin.name in named]
        pinned = ["-c", self.write_lines("pins.txt", pins)]
        file = self.write_lines("named.txt", wanted or pins)
        self._pip_install(["--no-build", *pinned, "-r", file], "cannot be installed")

    def uninstall(self, names: Sequence[str]) -> None:
        """Remove distributions; see `Installer.uninstall`."""
        command = [self._uv, "pip", "uninstall", "--quiet", "--python", self._python, *names]
        self.run(command, "cannot be removed", _TRY_AGAIN)

    def _pip_install(self, arguments: Sequence[str], what: str) -> str:
        command = [self._uv, "pip", "install", "--python", self._python, "--no-progress"]
        return self.run([*command, *arguments], what, _TRY_AGAIN)


_HTTP: Final = frozenset({"http", "https"})
_CONFIGURED: Final = re.compile(r"(\S+?)='(.*)'")
"""A line of ``pip config list``: section and name, and the value as Python writes it."""
_SECTIONS: Final = (":env:", "download", "install", "global")
_DEFAULT: Final = re.compile(r"--index-url <url>[^(]*\(default\s+(\S+?)\)")
_ANNOTATED: Final = re.compile(r"^([\w.-]+)==[^\n]*\n\s+# from (\S+)$", re.MULTILINE)


def _first_set(found: Mapping[str, str], option: str) -> list[str]:
    """Return the addresses of an option of pip, from the section that counts."""
    for section in _SECTIONS:
        if value := found.get(f"{section}.{option}"):
            return value.replace("\\n", " ").split()
    return []


_TRY_AGAIN: Final = "the environment is as before; correct the cause, then try again"


def installer_for(environment: Environment, folder: Path) -> Installer:
    """Return what installs into an environment; arguments as `Installer`."""
    return Uv(environment, folder) if environment.uses_uv else Pip(environment, folder)


def mask(text: str) -> str:
    """Return `text` without the credentials and queries of its addresses."""
    return _QUERY.sub(r"\1***", _CREDENTIALS.sub(r"\1***@", text))


def _child_variables(*, own_settings: bool) -> dict[str, str]:
    found = {
        name: value
        for name, value in process_environment().items()
        if _PASSED.fullmatch(name) and name not in _ELSEWHERE
    }
    if not own_settings:
        # Only the files that were shown are installed, wherever the owner's pip looks otherwise.
        found = {name: value for name, value in found.items() if not name.startswith("PIP_")}
        found["PIP_CONFIG_FILE"] = os.devnull
    # The files of an environment are those of its wheels, and nothing remains after a removal.
    return {**found, "PYTHONDONTWRITEBYTECODE": "1", "PIP_USER": "0", "NO_COLOR": "1"}


def _reason_in(output: str, code: int) -> str:
    """Return what a program says of its failure, for people only."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    errors = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR:")]
    text = " ".join(mask(" ".join(errors or lines)).split())
    return f"{text[:_REASON_CHARS]}…" if len(text) > _REASON_CHARS else text or f"exit code {code}"


def _pin(name: str, version: str) -> Pin:
    from packaging.version import Version

    return Pin(name=normalise(name), version=str(Version(version)))


def _only_wheel(target: Path, folder: Path) -> Path:
    for wheel in target.glob("*.whl"):
        return wheel
    raise InstallError(f"cannot build {folder}", "its build backend wrote no wheel")


def _unknown_output(program: str, version: str) -> InstallError:
    reason = f"this {program} does not report in JSON what it would install"
    return InstallError("cannot be resolved", reason, f"upgrade {program} to {version} or newer")


def _exactly(pins: Sequence[Pin], found: dict[str, Candidate]) -> tuple[Candidate, ...]:
    """Return the candidates of `pins`.

    Raises:
        InstallError: another version was downloaded, or nothing.
    """

    def check() -> Iterator[Candidate]:
        for pin in pins:
            candidate = found.get(pin.name)
            if candidate is None or candidate.version != pin.version:
                got = candidate.label if candidate else "nothing"
                raise InstallError(str(pin), f"{got} was downloaded instead", _TRY_AGAIN)
            yield candidate

    return tuple(check())
