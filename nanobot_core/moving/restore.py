"""Restores a backup, whose content is not trusted before all of it has been checked."""

from __future__ import annotations

import gzip
import hashlib
import os
import shutil
import tarfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Final

from pydantic import ValidationError

from nanobot_core.moving.backup import COPY_BYTES, FORMAT, MANIFEST, Manifest
from nanobot_core.moving.place import MovingError, new_home, require_place
from nanobot_core.moving.tree import leads_inside

if TYPE_CHECKING:
    from nanobot_core.moving.backup import Part

_MAX_MEMBERS: Final = 2_000_000
_MAX_READ_BYTES: Final = 1 << 28
"""Bytes that a member other than a file may have: the manifest, or a long name."""
_MAX_PATH_CHARS: Final = 4_096


def read_backup(file: Path, part: Part) -> Manifest:
    """Check a backup from beginning to end, and return its manifest. Blocks.

    Args:
        file: the backup.
        part: what it should hold.

    Raises:
        MovingError: it is no backup, damaged, of a newer release, or would write outside of a
            home.
        OSError: it cannot be read.
    """
    if not file.is_file():
        raise MovingError(f"'{file}' is no file")
    found: dict[str, str] = {}
    manifest: Manifest | None = None
    with _members(file) as (tar, members):
        for member in members:
            if manifest is not None:
                raise _damaged(file, f"'{member.name}' follows its end")
            if member.name == MANIFEST:
                manifest = _manifest(file, tar, member)
                continue
            _check(file, member)
            if member.name in found:
                raise _damaged(file, f"'{member.name}' is in it twice")
            found[member.name] = _content(file, tar, member)
            if len(found) > _MAX_MEMBERS:
                raise _damaged(file, f"it has more than {_MAX_MEMBERS:,} members")
    if manifest is None:
        raise _damaged(file, "it was cut short")
    if manifest.members != found:
        wrong = next(iter(manifest.members.items() ^ found.items()))[0]
        raise _damaged(file, f"'{wrong}' is not what was written")
    if manifest.part != part:
        name = {"home": "the backup of a home", "secrets": "a file with secrets"}
        raise MovingError(f"'{file}' is {name[manifest.part]}, not {name[part]}")
    return manifest


def restore(
    file: Path, home: Path, *, secrets_file: Path | None = None, replace: bool = False
) -> Manifest:
    """Make a home from a backup, in one step, and return the manifest of the backup. Blocks.

    Args:
        file: the backup.
        home: nanobot's folder.
        secrets_file: the backup's secrets; ``None`` if they are not at hand.
        replace: whether a home in use may be replaced; it keeps another name.

    Raises:
        MovingError: a backup cannot be used, or the home may not be replaced; nothing has changed.
        OSError: a file cannot be read or written; nothing has changed.
    """
    require_place(home, replace=replace)
    manifest = read_backup(file, "home")
    parts = [(file, manifest)]
    if secrets_file is not None:
        apart = read_backup(secrets_file, "secrets")
        if apart.id != manifest.id:
            msg = f"'{secrets_file}' has the secrets of another backup than '{file}'"
            raise MovingError(msg)
        parts.insert(0, (secrets_file, apart))
    with new_home(home, replace=replace) as staging:
        for source, checked in parts:
            try:
                _extract(source, checked, staging)
            except (FileExistsError, NotADirectoryError, IsADirectoryError) as error:
                name = Path(str(error.filename2 or error.filename)).relative_to(staging)
                raise _damaged(source, f"'{name}' is in the way of another member") from error
    return manifest


@contextmanager
def _members(file: Path) -> Iterator[tuple[tarfile.TarFile, Iterator[tarfile.TarInfo]]]:
    """Open an archive, and report whatever is wrong with it as damage."""
    try:
        with (
            file.open("rb") as raw,
            _Unpacked(fileobj=raw) as unpacked,
            tarfile.open(fileobj=unpacked, mode="r:") as tar,
        ):
            yield tar, iter(tar)
            if len(unpacked.read(COPY_BYTES)) == COPY_BYTES:  # up to the checksum of gzip
                raise _damaged(file, "something follows its end")
    except (tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile, ValueError) as error:
        raise _damaged(file, str(error) or "it was cut short") from error


class _Unpacked(gzip.GzipFile):
    """Reads no more at a time than fits into memory.

    `tarfile` reads long names in one piece, whose size the archive decides.
    """

    def read(self, size: int | None = -1) -> bytes:
        """Return the next bytes.

        Raises:
            ValueError: they are too many.
        """
        if size is None or not 0 <= size <= _MAX_READ_BYTES:
            msg = f"a name or list in it is longer than {_MAX_READ_BYTES:,} bytes"
            raise ValueError(msg)
        return super().read(size)


def _check(file: Path, member: tarfile.TarInfo) -> None:
    """Refuse a member that would not become a file, folder or link inside of a home."""
    path = PurePosixPath(member.name)
    is_plain = member.name == str(path) and ".." not in path.parts and path.parts
    if not is_plain or path.is_absolute() or not member.name.isprintable():
        raise _damaged(file, f"{member.name[:200]!r} is no path in a home")
    if len(member.name) > _MAX_PATH_CHARS:
        raise _damaged(file, "it has a path that is too long")
    if member.issym() and not leads_inside(path, PurePosixPath(member.linkname)):
        raise _damaged(file, f"'{path}' is a link that leads out of the home")
    if not (member.isreg() or member.isdir() or member.issym()) or member.issparse():
        raise _damaged(file, f"'{path}' is no file, folder or link")


def _content(file: Path, tar: tarfile.TarFile, member: tarfile.TarInfo) -> str:
    """Return what a manifest says of a member; a file is read."""
    if member.isdir():
        return "folder"
    if member.issym():
        return f"link:{member.linkname}"
    digest = hashlib.sha256()
    for piece in _pieces(file, tar, member):
        digest.update(piece)
    return digest.hexdigest()


def _pieces(file: Path, tar: tarfile.TarFile, member: tarfile.TarInfo) -> Iterator[bytes]:
    source = tar.extractfile(member)
    if source is None:
        raise _damaged(file, f"'{member.name}' is no file")
    while piece := source.read(COPY_BYTES):
        yield piece


def _manifest(file: Path, tar: tarfile.TarFile, member: tarfile.TarInfo) -> Manifest:
    if not member.isreg() or member.size > _MAX_READ_BYTES:
        raise _damaged(file, "its list of members is unusable")
    data = b"".join(_pieces(file, tar, member))
    try:
        manifest = Manifest.model_validate_json(data)
    except ValidationError as error:
        raise _damaged(file, "its list of members is unusable") from error
    if manifest.format > FORMAT:
        msg = f"'{file}' was made by nanobot {manifest.version}, which is newer; upgrade first"
        raise MovingError(msg)
    return manifest


def _extract(file: Path, manifest: Manifest, staging: Path) -> None:
    """Write what was checked. Links come last, so that nothing is written through one."""
    links = []
    room = shutil.disk_usage(staging).free
    with _members(file) as (tar, members):
        for member in members:
            path = staging / member.name
            if member.name == MANIFEST or (path.is_file() and "/" not in member.name):
                continue  # the configuration of the secrets' part comes first and counts
            _check(file, member)
            if member.size > room:
                msg = f"'{staging.parent}' has no room for what '{file}' holds; make room"
                raise MovingError(msg)
            room -= member.size
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            if member.isdir():
                path.mkdir(mode=0o700, exist_ok=True)
                found = "folder"
            elif member.issym():
                links.append((path, member.linkname))
                found = f"link:{member.linkname}"
            else:
                found = _write(file, tar, member, path)
            if manifest.members.get(member.name) != found:
                raise _damaged(file, f"'{member.name}' has changed while it was read")
    for path, target in links:
        path.symlink_to(target)


def _write(file: Path, tar: tarfile.TarFile, member: tarfile.TarInfo, path: Path) -> str:
    digest = hashlib.sha256()
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with os.fdopen(os.open(path, flags, 0o600 | (member.mode & 0o100)), "wb") as target:
        for piece in _pieces(file, tar, member):
            digest.update(piece)
            target.write(piece)
    os.utime(path, (member.mtime, member.mtime))
    return digest.hexdigest()


def _damaged(file: Path, reason: str) -> MovingError:
    return MovingError(f"'{file}' is no usable backup: {reason}")
