"""A backup: one file with all of a home that cannot be made again, and a second one for secrets.

A backup is a tar archive, compressed with gzip (POSIX.1-2001 and RFC 1952). Its last member is a
`Manifest`, which lists all others with their digests, so that a file that was cut short or changed
is noticed before anything is restored.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import secrets
import sqlite3
import stat
import tarfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from fnmatch import fnmatchcase
from pathlib import Path, PurePath
from tempfile import NamedTemporaryFile, SpooledTemporaryFile
from typing import IO, TYPE_CHECKING, ClassVar, Final, Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict

from nanobot_core._version import __version__
from nanobot_core.config.environment import CONFIG_NAMES
from nanobot_core.disk import sync_folder
from nanobot_core.folder import Folder
from nanobot_core.moving.place import MovingError
from nanobot_core.moving.redacted import without_secrets
from nanobot_core.moving.tree import LeftOut, obstacle, walk
from nanobot_core.record import dataclass

if TYPE_CHECKING:
    from nanobot_core.clock import Clock
    from nanobot_core.config.loading import LoadedConfig
    from nanobot_core.plugins.catalogue import Catalogue

FORMAT: Final = 1
MANIFEST: Final = "nanobot-backup.json"
WORKSPACE: Final = PurePath("workspace")
_PLUGINS: Final = PurePath("plugins")
_MADE_AGAIN: Final = frozenset({"cache", "installing", "locks", "logs"})
_IN_FLIGHT: Final = ("bus.sqlite*", "approvals.json", "lock", "pid", "control.sock")
"""Files of a running gateway; see docs/decisions/0018-backups-hold-no-messages-in-flight.md."""
_OF_DATABASES: Final = ("-wal", "-shm", "-journal")
_SECRET_FILES: Final = frozenset({"gateway.env"})
_SQLITE: Final = b"SQLite format 3\0"
_SQLITE_WAIT_S: Final = 10.0
COPY_BYTES: Final = 1 << 20
_IN_MEMORY_BYTES: Final = 1 << 23

Part = Literal["home", "secrets"]


class Secret(BaseModel):
    """Something that the backup of a home does not hold.

    Attributes:
        where: key path in the configuration, or a file of the home.
        variable: what the configuration has in its place, as ``${NAME}``; empty for a file.
    """

    model_config: ClassVar[ConfigDict] = ConfigDict(frozen=True)

    where: str
    variable: str = ""


class Manifest(BaseModel):
    """The last member of a backup.

    Attributes:
        format: `FORMAT` of the release that made it.
        id: the same in the backup of a home and in that of its secrets.
        part: which of the two it is.
        version: of nanobot.
        made_at: when.
        members: path in the home to the SHA-256 digest of a file, in hexadecimal; ``folder``; or
            ``link:`` and the target.
        plugins: id of each installed plugin to its distribution; empty for a single file.
        secrets: what the other part holds.
    """

    model_config: ClassVar[ConfigDict] = ConfigDict(frozen=True)

    format: int
    id: str
    part: Part
    version: str
    made_at: AwareDatetime
    members: Mapping[str, str]
    plugins: Mapping[str, str] = {}
    secrets: tuple[Secret, ...] = ()


@dataclass(frozen=True, slots=True)
class Backup:
    """What was written.

    Attributes:
        manifest: of the home's part.
        size: bytes of the archive.
        left_out: what could not be read; what can be made again is not listed.
    """

    manifest: Manifest
    size: int
    left_out: tuple[LeftOut, ...]


def write_backup(
    loaded: LoadedConfig,
    catalogue: Catalogue,
    clock: Clock,
    file: Path,
    *,
    secrets_file: Path | None = None,
    replace: bool = False,
    progress: Callable[[str], None] = lambda _: None,
) -> Backup:
    """Write a home to one file, and its secrets to another. Blocks.

    A gateway may run meanwhile: databases are copied by SQLite's backup, and logs of records up to
    their last whole record. A file gets its name when it is complete.

    Args:
        loaded: the configuration of the home.
        catalogue: the installed plugins, whose secrets are known.
        clock: source of time.
        file: the backup, readable by its owner only.
        secrets_file: the same for secrets; ``None`` leaves them out.
        replace: whether existing files may be replaced.
        progress: called with the name of each part of the home.

    Raises:
        MovingError: there is nothing to keep, or a file exists or is in the home; nothing has
            changed.
        OSError: a file cannot be written; it has not changed.
    """
    targets = [file, *([secrets_file] if secrets_file else [])]
    _require_targets(loaded, targets, replace=replace)
    left_out: list[LeftOut] = []
    with ExitStack() as stack:
        main = stack.enter_context(_archive(file, replace=replace))
        apart = None
        if secrets_file is not None:
            apart = stack.enter_context(_archive(secrets_file, replace=replace))
        chosen = _add_config(loaded, main, apart)
        for entry in _entries(loaded):
            progress("".join(entry.target.parts[:1]))
            is_secret = _is_secret(entry.target, loaded, catalogue)
            archive = apart if is_secret else main
            if archive is not None and (reason := archive.add(entry)):
                left_out.append(LeftOut(entry.target, reason))
            elif is_secret and not entry.is_folder:
                chosen.append(Secret(where=str(entry.target)))
        shared = Manifest(
            format=FORMAT,
            id=secrets.token_hex(16),
            part="secrets",
            version=__version__,
            made_at=clock.now(),
            members={},
        )
        if apart is not None:
            apart.close(shared.model_copy(update={"members": apart.members}))
        manifest = shared.model_copy(
            update={
                "part": "home",
                "members": main.members,
                "plugins": _installed(catalogue),
                "secrets": tuple(chosen),
            }
        )
        main.close(manifest)
    return Backup(manifest, file.stat().st_size, tuple(left_out))


@dataclass(frozen=True, slots=True)
class _Entry:
    """Something below a folder, and its place in the home."""

    folder: Folder
    source: PurePath
    target: PurePath
    facts: os.stat_result | OSError

    @property
    def is_folder(self) -> bool:
        return not isinstance(self.facts, OSError) and stat.S_ISDIR(self.facts.st_mode)


class _Archive:
    """An archive under a temporary name."""

    def __init__(self, file: IO[bytes], folder: Path) -> None:
        self.members: dict[str, str] = {}
        self._folder = folder
        self._tar = tarfile.open(fileobj=file, mode="w:gz", format=tarfile.PAX_FORMAT)  # noqa: SIM115 - `close` ends it

    def add(self, entry: _Entry) -> str:
        """Add something; return why it cannot be read, empty if it was added.

        Raises:
            OSError: the archive cannot be written.
        """
        facts = entry.facts
        reason = obstacle(entry.folder, entry.source, facts)
        if reason or isinstance(facts, OSError):
            return reason
        name = str(entry.target)
        if not name.isprintable():
            return "its name has characters that cannot be printed"
        info = tarfile.TarInfo(name)
        info.mtime, info.mode = int(facts.st_mtime), 0o600 | (facts.st_mode & 0o100)
        if stat.S_ISDIR(facts.st_mode):
            info.type, info.mode = tarfile.DIRTYPE, 0o700
            self.members[name] = "folder"
            self._tar.addfile(info)
        elif stat.S_ISLNK(facts.st_mode):
            info.type, info.linkname = (
                tarfile.SYMTYPE,
                str((entry.folder.path / entry.source).readlink()),
            )
            self.members[name] = f"link:{info.linkname}"
            self._tar.addfile(info)
        else:
            with SpooledTemporaryFile(_IN_MEMORY_BYTES, dir=str(self._folder)) as copy:
                if reason := _copy(entry, copy):
                    return reason
                self._put(info, copy)
        return ""

    def add_text(self, name: PurePath, text: str) -> None:
        """Add a file with a text."""
        info = tarfile.TarInfo(str(name))
        info.mode = 0o600
        self._put(info, io.BytesIO(text.encode()))

    def close(self, manifest: Manifest) -> None:
        """Add the manifest and end the archive."""
        data = json.dumps(manifest.model_dump(mode="json"), indent=1).encode()
        info = tarfile.TarInfo(MANIFEST)
        info.size, info.mode = len(data), 0o600
        self._tar.addfile(info, io.BytesIO(data))
        self._tar.close()

    def _put(self, info: tarfile.TarInfo, copy: IO[bytes]) -> None:
        copy.seek(0)
        digest = hashlib.sha256()
        while piece := copy.read(COPY_BYTES):
            digest.update(piece)
        self.members[info.name] = digest.hexdigest()
        info.size = copy.tell()
        copy.seek(0)
        self._tar.addfile(info, copy)


@contextmanager
def _archive(file: Path, *, replace: bool) -> Iterator[_Archive]:
    """Yield an archive that gets the name `file` when the block ends without an error."""
    for left in file.parent.glob(f".{file.name}.*.part"):  # of a process that was killed
        left.unlink(missing_ok=True)
    temporary = NamedTemporaryFile(  # noqa: SIM115 - it is renamed
        dir=file.parent, prefix=f".{file.name}.", suffix=".part", delete=False
    )
    path = Path(temporary.name)
    try:
        with temporary:
            yield _Archive(temporary, file.parent)
            temporary.flush()
            os.fsync(temporary.fileno())
        # A hard link would never replace a file, but sticks and network drives may have none.
        if not replace and os.path.lexists(file):
            raise _exists(file)
        path.replace(file)
    finally:
        path.unlink(missing_ok=True)
    sync_folder(file.parent)


def _require_targets(loaded: LoadedConfig, files: list[Path], *, replace: bool) -> None:
    if not loaded.home.is_dir():
        raise MovingError(f"'{loaded.home}' does not exist, so there is nothing to keep")
    for file in files:
        if not file.parent.is_dir():
            raise MovingError(f"the folder '{file.parent}' does not exist; create it first")
        if file.parent.resolve().is_relative_to(loaded.home.resolve()):
            raise MovingError(f"'{file}' is in nanobot's folder; name a file outside of it")
        if os.path.lexists(file) and not (replace and file.is_file()):
            raise _exists(file)
    if len({file.absolute() for file in files}) < len(files):
        raise MovingError(f"'{files[0]}' cannot be both files; name another one for the secrets")


def _exists(file: Path) -> MovingError:
    return MovingError(f"'{file}' exists; name another file, or add --replace")


def _entries(loaded: LoadedConfig) -> Iterator[_Entry]:
    """Yield what is kept; a workspace elsewhere counts as the one of the home."""
    home = Folder(loaded.home)
    outside = not loaded.workspace.resolve().is_relative_to(loaded.home.resolve())
    for path, facts in walk(home):
        is_workspace = path.parts[:1] == WORKSPACE.parts
        if (
            not _is_left_out(path)
            and str(path) not in CONFIG_NAMES
            and not (outside and is_workspace)
        ):
            yield _Entry(home, path, path, facts)
    if outside:
        workspace = Folder(loaded.workspace)
        for path, facts in walk(workspace):
            yield _Entry(workspace, path, WORKSPACE / path, facts)


def _is_left_out(path: PurePath) -> bool:
    """Whether something in a home can be made again, or belongs to a running process."""
    top, name = path.parts[0] if path.parts else "", path.name
    if top in _MADE_AGAIN:
        return True
    if top == "gateway" and any(fnmatchcase(name, pattern) for pattern in _IN_FLIGHT):
        return True
    is_own = top != WORKSPACE.name
    is_temporary = name.startswith(".") and name.endswith((".lock", ".tmp"))
    return is_own and (is_temporary or name.endswith(_OF_DATABASES))


def _is_secret(path: PurePath, loaded: LoadedConfig, catalogue: Catalogue) -> bool:
    """Whether a file holds credentials, or is of a plugin that cannot declare whether it does."""
    if path.name in _SECRET_FILES and len(path.parts) == 1:
        return True
    if loaded.home / path in loaded.secret_files:
        return True
    if path.parts[:1] != _PLUGINS.parts or len(path.parts) < len(_PLUGINS.parts) + 2:
        return False
    plugin, inner = path.parts[1], "/".join(path.parts[2:])
    selection = catalogue.selections.get(plugin)
    if selection is None or selection.plugin.manifest is None:
        return True
    return any(fnmatchcase(inner, each) for each in selection.plugin.manifest.facts.secret_files)


def _add_config(loaded: LoadedConfig, main: _Archive, apart: _Archive | None) -> list[Secret]:
    """Add the configuration without secrets to the one archive, and as it is to the other."""
    if loaded.path is None or not loaded.path.is_file():
        return []
    text = loaded.path.read_text("utf-8")
    name = PurePath(CONFIG_NAMES[-1] if loaded.path.suffix == ".json" else CONFIG_NAMES[0])
    if apart is not None:
        apart.add_text(name, text)
    redacted = without_secrets(text, loaded.redactor)
    if redacted is None:
        return [Secret(where=str(name))]
    main.add_text(name, redacted[0])
    found = redacted[1]
    return [Secret(where=where, variable=name) for where, name in found.items()]


def _installed(catalogue: Catalogue) -> dict[str, str]:
    found = catalogue.selections.values()
    return {each.plugin.id: each.plugin.distribution or "" for each in found}


def _copy(entry: _Entry, copy: IO[bytes]) -> str:
    """Copy a file as it is at one moment; return why it cannot be read, empty if it was copied."""
    try:
        source = entry.folder.open_read(entry.source)
    except OSError as error:
        return f"it cannot be read ({error.strerror or error})"
    is_own = entry.target.parts[:1] != WORKSPACE.parts
    with source:
        if is_own and source.peek(len(_SQLITE)).startswith(_SQLITE):
            return _copy_database(entry.folder.path / entry.source, copy)
        left = os.fstat(source.fileno()).st_size  # what is written meanwhile is not copied
        while left and (piece := source.read(min(COPY_BYTES, left))):
            copy.write(piece)
            left -= len(piece)
    if entry.target.suffix == ".jsonl":
        _end_after_record(copy)
    return ""


def _end_after_record(copy: IO[bytes]) -> None:
    """Remove a last line that was only half written."""
    size = copy.seek(0, os.SEEK_END)
    copy.seek(max(size - COPY_BYTES, 0))
    tail = copy.read()
    end = tail.rfind(b"\n") + 1
    if end and end < len(tail):
        copy.truncate(size - len(tail) + end)


def _copy_database(path: Path, copy: IO[bytes]) -> str:
    """Copy a database that may be in use (https://www.sqlite.org/backup.html)."""
    try:
        with (
            NamedTemporaryFile(prefix="nanobot-backup-") as file,
            closing(sqlite3.connect(path, timeout=_SQLITE_WAIT_S)) as database,
            closing(sqlite3.connect(file.name)) as target,
        ):
            database.backup(target)
            while piece := file.read(COPY_BYTES):
                copy.write(piece)
    except sqlite3.Error as error:
        return f"the database cannot be read ({error})"
    return ""
