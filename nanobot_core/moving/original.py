"""What a home of nanobot-ai holds, and where each part goes in a home of ours.

Its releases differ in where they keep sessions and jobs:

=================  ===========================  ==============
releases           sessions                     jobs
=================  ===========================  ==============
0.1.3              ``sessions``                 ``cron``
0.1.4              ``workspace/sessions``       ``cron``
0.1.5 to 0.3.0     ``workspace/sessions``       ``workspace/cron``
since 0.3.5        ``sessions/<workspace id>``  ``workspace/cron``
=================  ===========================  ==============

Our sessions, and the plugins for jobs, memory and skills, read all of these where they are. So the
parts keep their places; only the configuration and the approved senders are converted.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path, PurePath
from stat import S_ISREG
from typing import TYPE_CHECKING, Any, Final

from nanobot_core.config.environment import expand_home
from nanobot_core.disk import make_folder
from nanobot_core.errors import ConfigError
from nanobot_core.folder import Folder
from nanobot_core.moving.place import MovingError
from nanobot_core.moving.settings import original_workspace
from nanobot_core.moving.tree import Extent, LeftOut, copy_file, copy_tree, measure, walk
from nanobot_core.record import dataclass

if TYPE_CHECKING:
    from nanobot_core.messages import JsonObject

_CONFIG: Final = "config.json"
_WORKSPACE: Final = "workspace"
_PAIRING: Final = "pairing.json"
_JOBS: Final = "jobs.json"
ASIDE: Final = "nanobot-ai"
"""Folder of the new home for what nobody reads here."""
_KNOWN: Final = (
    ("sessions", "conversations", ""),
    ("cron", "scheduled jobs", "cron"),
    ("memory", "memory", "memory"),
    ("skills", "skills", "skills"),
)
"""Folders, what they hold, and the section of the plugin that reads them."""
_OURS: Final = ("config.yaml", "gateway/bus.sqlite", "gateway/pairing.json")
_JOBS_VERSION: Final = 1
_MAX_JSON_BYTES: Final = 50_000_000
_MAX_CHECKED_BYTES: Final = 200_000_000
_AGAIN: Final = "it belongs to another program; sign in again with nanobot channels login"
_NOT_MOVED: Final = {
    "logs": "our log is a new one",
    "run": "it describes running processes",
    "bin": "it holds programs of nanobot-ai",
    "bridge": "it is the program of the WhatsApp bridge; it runs where it is",
    "history": "the terminal's input history has another form",
    "webui": "it is the display of conversations that are in the sessions",
    "cli-apps": "there are no CLI apps",
    "whatsapp-auth": _AGAIN,
    "weixin": _AGAIN,
    "matrix-store": _AGAIN,
    "mochat": "the channel finds its place in each conversation itself",
    "auth": "sign in again with nanobot providers login and nanobot mcp login",
}
_IN_WORKSPACE: Final = {
    "plugins": "agent plugins are copied and not used; their skills can be moved to skills/",
    "triggers": "local triggers are copied and not used",
    "prompts": "its texts are copied and not used; ours are in the folder prompts of the home",
}
"""Folders of the workspace that have no counterpart, with the reason."""


@dataclass(frozen=True, slots=True)
class Part:
    """Something that is copied as it is.

    Attributes:
        what: in words.
        root: the folder below which links may lead.
        at: a folder or file below it.
        target: its place in the new home.
        section: section of the configuration that its plugin reads; empty if the core reads it.
        skip: names in the folder that are other parts.
    """

    what: str
    root: Path
    at: PurePath
    target: PurePath
    section: str = ""
    skip: frozenset[str] = frozenset()

    @property
    def source(self) -> Path:
        """The folder or file."""
        return self.root / self.at

    def measure(self) -> Extent:
        """Return what is copied, and what cannot be. Blocks."""
        if self.source.is_dir() and not self.source.is_symlink():
            return measure(Folder(self.root), self.at, skip=self.skip)
        try:
            return Extent(1, Folder(self.root).stat(self.at).st_size)
        except OSError as error:
            return Extent(0, 0, (LeftOut(self.at, f"it cannot be read ({error.strerror})"),))

    def copy(self, home: Path) -> Iterator[LeftOut]:
        """Copy it into a new home; yield what is left out. Blocks.

        Raises:
            OSError: the new home cannot be written.
        """
        folder, target = Folder(self.root), home / self.target
        if self.source.is_dir() and not self.source.is_symlink():
            yield from copy_tree(folder, self.at, target, skip=self.skip)
            return
        make_folder(target.parent)
        if reason := copy_file(folder, self.at, target):
            yield LeftOut(self.at, reason)


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that is not moved, or moved in part.

    Attributes:
        where: path or key path in the original.
        reason: why, as a clause.
        remedy: what to do; empty for nothing.
        kept: its place in the new home, if a copy is kept aside.
    """

    where: str
    reason: str
    remedy: str = ""
    kept: str = ""


class OriginalHome:
    """A home of nanobot-ai, which is only read. All methods block.

    Args:
        path: the folder, or its ``config.json``.

    Raises:
        MovingError: it is not one.
    """

    def __init__(self, path: Path) -> None:
        path = expand_home(path).absolute()
        config = path if path.suffix == ".json" and path.is_file() else path / _CONFIG
        self.path: Path = config.parent.resolve()
        self.config: Path | None = config if config.is_file() else None
        self.config_problem: str = ""
        if any((self.path / name).exists() for name in _OURS):
            msg = f"'{self.path}' is already in use by this nanobot"
            raise MovingError(msg)
        named = ""
        if self.config is not None:
            try:
                named = original_workspace(self.config)
            except ConfigError as error:
                self.config_problem = str(error)
        self.workspace: Path | None = self._find_workspace(named)
        if self.config is None and self.workspace is None:
            msg = f"'{self.path}' is no home of nanobot-ai: it has no {_CONFIG} and no {_WORKSPACE}"
            raise MovingError(msg)

    def _find_workspace(self, named: str) -> Path | None:
        """Return the workspace; that of a home which was copied from elsewhere is inside it."""
        if "/.nanobot/" in named:
            inside = self.path / named.partition("/.nanobot/")[2]
            if inside.is_dir():
                return inside.resolve()
        candidates = [expand_home(named)] if named else []
        for candidate in (*candidates, self.path / _WORKSPACE):
            if candidate.is_absolute() and candidate.is_dir():
                return candidate.resolve()
        return None

    def parts(self) -> Iterator[Part]:
        """Yield what is copied."""
        if self.workspace is not None:
            present = _names(self.workspace)
            for name, what, section in _KNOWN:
                if name in present:
                    target = PurePath(_WORKSPACE, name)
                    yield Part(what, self.workspace, PurePath(name), target, section)
            skip = {name for name, _, _ in _KNOWN}
            if self.workspace == self.path:
                skip |= {_CONFIG, _PAIRING, "media", *_NOT_MOVED}
            target = PurePath(_WORKSPACE)
            yield Part("workspace", self.workspace, PurePath(), target, skip=frozenset(skip))
        if self.workspace == self.path:
            return
        for name, what, section in (*_KNOWN[:2], ("media", "received files", "")):
            is_newest = name != "cron" or not self._has_newer_jobs()
            if _names(self.path, name) and is_newest:
                yield Part(what, self.path, PurePath(name), PurePath(name), section)

    def _has_newer_jobs(self) -> bool:
        """Whether the jobs of the home are those of a release before 0.1.5, which were moved."""
        return bool(_names(self.workspace, "cron") & {_JOBS, "action.jsonl"})

    def asides(self) -> Iterator[Part]:
        """Yield what nobody reads here, and of which a copy is kept aside."""
        known = {_CONFIG, _PAIRING, "sessions", "media", "cache", *_NOT_MOVED}
        if not self._has_newer_jobs():
            known.add("cron")
        if self.workspace == self.path:
            return
        for entry in Folder(self.path).scan():
            if entry.name not in known and (self.path / entry.name).resolve() != self.workspace:
                at = PurePath(entry.name)
                yield Part("unknown", self.path, at, PurePath(ASIDE, entry.name))

    def findings(self) -> Iterator[Finding]:
        """Yield what is not moved, or is damaged."""
        for name, reason in _NOT_MOVED.items():
            if _names(self.path, name):
                yield Finding(name, reason)
        if self.workspace is None:
            yield Finding(_WORKSPACE, "there is no such folder")
        for name, reason in _IN_WORKSPACE.items():
            if _names(self.workspace, name) - {"README.md"}:
                yield Finding(f"{_WORKSPACE}/{name}", reason)
        for root in (self.path, self.workspace):
            if root is not None:
                yield from _check_jobs(root)
                yield from _check_sessions(root, self.path)
        found = self._workspace_id()
        for name in sorted(_names(self.path, "sessions")) if found is not None else ():
            if name != found and _names(self.path, f"sessions/{name}"):
                reason = "they are conversations of another workspace; copied and not read"
                yield Finding(f"sessions/{name}", reason)

    def _workspace_id(self) -> str | None:
        """Return the id of the workspace, ``None`` if it has none."""
        if self.workspace is None:
            return None
        try:
            data = Folder(self.workspace).read(".nanobot/workspace-id", 100)
        except OSError:
            return None
        return data.decode("ascii", "replace").strip()

    def approved(self) -> dict[str, list[str]]:
        """Return the senders whom the owner has approved, by channel.

        Raises:
            ValueError: the file is damaged.
        """
        content = _read_json(self.path, _PAIRING)
        approved = content.get("approved")
        return {
            str(channel): [str(each) for each in ids]
            for channel, ids in (approved.items() if isinstance(approved, dict) else ())
            if isinstance(ids, list)
        }


def _names(root: Path | None, name: str = "") -> set[str]:
    """Return the names in a folder; none if it is a link or no folder, or cannot be read."""
    try:
        return {entry.name for entry in Folder(root).scan(name)} if root else set()
    except OSError:
        return set()


def _check_jobs(root: Path) -> Iterator[Finding]:
    where = f"{root.name}/cron/{_JOBS}"
    try:
        content = _read_json(root, f"cron/{_JOBS}")
    except ValueError as error:
        remedy = "correct the copy in the new home; it is read when the gateway starts"
        yield Finding(where, f"it cannot be read: {error}", remedy)
        return
    if content.get("version", _JOBS_VERSION) != _JOBS_VERSION:
        yield Finding(where, f"version {content['version']} is unknown; it is read as version 1")


def _check_sessions(root: Path, home: Path) -> Iterator[Finding]:
    """Yield a finding for each session with lines that cannot be read."""
    folder = Folder(root)
    for path, facts in walk(folder, PurePath("sessions")) if _names(root, "sessions") else ():
        # What is no regular file is reported with what cannot be copied.
        if isinstance(facts, OSError) or path.suffix != ".jsonl" or not S_ISREG(facts.st_mode):
            continue
        where = os.path.relpath(root / path, home)
        if facts.st_size > _MAX_CHECKED_BYTES:
            yield Finding(where, "it is too large to be checked; it is copied")
            continue
        with suppress(OSError), folder.open_read(path) as file:
            damaged = sum(not _is_object(line) for line in file if line.strip())
            if damaged:
                lines = "one line" if damaged == 1 else f"{damaged} lines"
                yield Finding(where, f"{lines} cannot be read; set aside when it is next used")


def _is_object(line: bytes) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False


def _read_json(folder: Path, name: str) -> dict[str, Any]:
    """Return the object in a file; an empty one if there is no file.

    Raises:
        ValueError: it is damaged or no regular file.
    """
    try:
        data = Folder(folder).read(name, _MAX_JSON_BYTES + 1)
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise ValueError(error.strerror or str(error)) from error
    try:
        content: JsonObject | None = json.loads(data)
    except RecursionError:
        content = None
    if not isinstance(content, dict):
        msg = "expected a JSON object"
        raise ValueError(msg)
    return content
