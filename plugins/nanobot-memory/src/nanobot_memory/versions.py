"""Changes of the memory files: made so that a kill loses nothing, shown and reverted."""

from __future__ import annotations

import contextlib
import re
from collections import Counter
from datetime import datetime
from typing import TYPE_CHECKING, Final

from loguru import logger

from nanobot_memory.batch import (
    Aside,
    DreamBusy,
    FileChange,
    Pending,
    dream_lock,
    drop_pending,
    load_pending,
    load_state,
    save_pending,
    save_state,
)
from nanobot_memory.files import MAX_FILE_BYTES
from nanobot_memory.merge import merge
from nanobot_memory.repository import (
    DREAM,
    PERSON,
    Repository,
    RepositoryDamaged,
    RestoreConflict,
    Version,
    VersionUnknown,
)

if TYPE_CHECKING:
    from nanobot_memory.files import MemoryFiles

ENTRIES: Final = "Dream-Entries"
"""Trailer of a commit with the history entries that it comes from."""
CURSOR: Final = "Dream-Cursor"
"""Trailer of a commit with Dream's cursor after it."""
_SHOWN = 15
_MAX_DIFF_CHARS = 20_000
_EDITED = "edited by hand or by a tool"


class EditedMeanwhile(ValueError):
    """A person has changed the same lines since Dream has read them."""


REFUSALS = (VersionUnknown, RestoreConflict, RepositoryDamaged, DreamBusy, EditedMeanwhile)
"""Why `revert` changes nothing."""


def paths_of(files: MemoryFiles) -> frozenset[str]:
    """Return the paths of the files whose versions are kept, topic files included. Blocks."""
    return frozenset(str(files.path_of(name)) for name in (*files.names, *files.topics()))


def read_path(files: MemoryFiles, path: str) -> bytes | None:
    """Return the content of a file of the workspace, or ``None`` if it is missing. Blocks."""
    try:
        data = files.root.read(path, MAX_FILE_BYTES + 1)
    except (FileNotFoundError, NotADirectoryError):
        return None
    if len(data) > MAX_FILE_BYTES:
        raise OSError(f"{path} has more than {MAX_FILE_BYTES:,} bytes; shorten it")
    return data


def apply(files: MemoryFiles, pending: Pending, now: datetime) -> str | None:
    """Make a change: journal, files, commit, cursor. Blocks; needs `dream_lock`.

    What a person has changed since the last version is committed first, as theirs. If they have
    changed a file since `pending` was prepared, both changes are merged.

    Returns:
        The version's hash; ``None`` if nothing has changed.

    Raises:
        EditedMeanwhile: a person has changed the same lines; nothing is changed.
    """
    with files.locked():
        present = {path: read_path(files, path) for path in pending.changes}
        merged = {
            path: FileChange(before=present[path], after=_merged(path, change, present[path]))
            for path, change in pending.changes.items()
        }
        keep_edits(files, now)
        pending = pending.model_copy(update={"changes": merged})
        save_pending(files, pending)
        return _finish(files, pending, now)


def finish_pending(files: MemoryFiles, now: datetime) -> None:
    """Finish a change that a killed process has begun. Blocks; needs `dream_lock`."""
    with files.locked():
        if (pending := load_pending(files)) is not None:
            applied = {
                path: change.after
                for path, change in pending.changes.items()
                if read_path(files, path) == change.after
            }
            keep_edits(files, now, besides=frozenset(pending.changes))
            logger.info("finishing a change of {} memory files", len(pending.changes))
            _finish(files, pending, now, done=frozenset(applied))


def keep_edits(
    files: MemoryFiles, now: datetime, *, besides: frozenset[str] = frozenset()
) -> str | None:
    """Commit what was changed since the last version, as a person's. Blocks; needs `dream_lock`.

    Args:
        besides: paths to leave out.
    """
    repository = Repository(files.root)
    paths = paths_of(files)
    with contextlib.suppress(RepositoryDamaged):
        paths |= _scope_paths(files, repository)  # with those that were deleted
    contents = {path: read_path(files, path) for path in paths - besides}
    return repository.commit(contents, author=PERSON, message=_EDITED, time=now)


def show_log(files: MemoryFiles, name: str = "", *, command: str = "/dream-") -> str:
    """Return the newest changes, or the diff of one of them, in Markdown. Blocks.

    Args:
        name: the beginning of a version's hash.
        command: what ``log`` and ``restore`` are called with.
    """
    try:
        return _show_log(files, name, command)
    except (VersionUnknown, RepositoryDamaged) as error:
        return f"{error}."


def versions_of(files: MemoryFiles, limit: int) -> list[Version]:
    """Return the newest changes of a memory, the newest first. Blocks.

    Raises:
        RepositoryDamaged: they cannot be read.
    """
    repository = Repository(files.root)
    return repository.log(limit, _scope_paths(files, repository))


def show_diff(files: MemoryFiles, name: str) -> tuple[Version, str]:
    """Return one change and the beginning of its diff. Blocks.

    Args:
        name: the beginning of a version's hash; empty for the newest change of Dream.

    Raises:
        VersionUnknown: no version has this name, or it belongs to another memory.
        RepositoryDamaged: it cannot be read.
    """
    repository = Repository(files.root)
    version = _find(files, repository, name)
    diff = repository.diff(version)
    if len(diff) > _MAX_DIFF_CHARS:
        diff = f"{diff[:_MAX_DIFF_CHARS]}\n[… {len(diff) - _MAX_DIFF_CHARS:,} more characters]"
    return version, diff


def _show_log(files: MemoryFiles, name: str, command: str) -> str:
    if name:
        version, diff = show_diff(files, name)
        fence = "~" * (1 + max(map(len, ["~~", *re.findall("~+", diff)])))
        return f"{_line(version)}\n\n{fence}diff\n{diff}\n{fence}"
    versions = versions_of(files, _SHOWN)
    if not versions:
        return "The memory files have not changed yet."
    lines = "\n".join(f"- {_line(version)}" for version in versions)
    return f"{lines}\n\n`{command}log ID` shows a change, `{command}restore ID` reverts it."


def restore(files: MemoryFiles, name: str, now: datetime) -> str:
    """Revert one change and return a report in Markdown, also if nothing was reverted. Blocks.

    Args:
        name: the beginning of a version's hash; empty for the newest change of Dream.
        now: the time.
    """
    try:
        return revert(files, name, now)
    except REFUSALS as error:
        return f"Nothing was reverted: {error}."


def revert(files: MemoryFiles, name: str, now: datetime) -> str:
    """Revert one change and return a report in Markdown. Blocks.

    Later changes of other lines and files stay. The history entries that the change came from are
    set aside; ``/dream retry`` reads them again.

    Args:
        name: the beginning of a version's hash; empty for the newest change of Dream.
        now: the time.

    Raises:
        REFUSALS: nothing was changed; the text says why.
    """
    repository = Repository(files.root)
    with dream_lock(files):
        finish_pending(files, now)
        keep_edits(files, now)
        version = _find(files, repository, name)
        contents = repository.reverted(version, lambda path: read_path(files, path))
        changes = {
            path: FileChange(before=read_path(files, path), after=data)
            for path, data in contents.items()
        }
        state, entries = load_state(files), _entries(version)
        if entries is not None:
            reason = f"the change {version.id[:7]} was reverted"
            aside = Aside(first=entries[0], last=entries[1], reason=reason)
            state = state.model_copy(update={"aside": (*state.aside, aside)})
        message = f"restore: revert {version.id[:7]}\n\nReverts: {version.id}\n"
        pending = Pending(changes=changes, message=message, cursor=None, state=state)
        made = apply(files, pending, now)
    if made is None:
        return f"Nothing was reverted: the files are as they were before {version.id[:7]}."
    again = (
        "" if entries is None else (" `/dream retry` reads the history that it came from again.")
    )
    return f"Reverted {version.id[:7]} in {', '.join(sorted(contents))} (now {made[:7]}).{again}"


def _finish(
    files: MemoryFiles, pending: Pending, now: datetime, done: frozenset[str] = frozenset()
) -> str | None:
    for path, change in pending.changes.items():
        if path not in done:
            data = _merged_again(path, change, read_path(files, path))
            if data is not None:
                files.root.replace(path, data)
            elif change.before is not None:
                with contextlib.suppress(FileNotFoundError):
                    files.root.remove(path)
    versioned = paths_of(files)
    prefix = f"{files.folder}/topics/"
    contents = {
        path: read_path(files, path)
        for path in pending.changes
        if path in versioned or path.startswith(prefix)
    }
    made = (
        Repository(files.root).commit(contents, author=DREAM, message=pending.message, time=now)
        if contents
        else None
    )
    if pending.cursor is not None and pending.cursor > files.dream_cursor:
        files.dream_cursor = pending.cursor
    save_state(files, pending.state)
    drop_pending(files)
    return made


def _merged(path: str, change: FileChange, present: bytes | None) -> bytes | None:
    if present == change.before or present == change.after:
        return change.after
    if change.before is None:
        raise EditedMeanwhile(f"{path} was created meanwhile")
    text = merge(_text(change.before), _text(change.after), _text(present))
    if text is None:
        raise EditedMeanwhile(f"{path} was edited in the same lines meanwhile")
    return text.encode("utf-8", "surrogateescape")


def _merged_again(path: str, change: FileChange, present: bytes | None) -> bytes | None:
    """Return the content after a kill, when a person can have edited the file before or after."""
    before, after, now = (
        Counter(_text(data).splitlines()) for data in (change.before, change.after, present)
    )
    if not (after - before) - now and present != change.before:
        return present  # it has all new lines
    try:
        return _merged(path, change, present)
    except EditedMeanwhile as error:
        logger.warning("a change that was begun before a kill is left out: {}", error)
        return present


def _find(files: MemoryFiles, repository: Repository, name: str) -> Version:
    if name:
        version = repository.find(name)
        if not _scope_paths(files, repository) & set(version.files):
            raise VersionUnknown(f"the version '{name}' belongs to another memory")
        return version
    for version in repository.log(_SHOWN, _scope_paths(files, repository)):
        if version.author == DREAM and not version.trailer("Reverts"):
            return version
    raise VersionUnknown("Dream has not changed anything yet")


def _scope_paths(files: MemoryFiles, repository: Repository) -> frozenset[str]:
    prefix = f"{files.folder}/topics/"
    return paths_of(files) | {path for path in repository.last() if path.startswith(prefix)}


def _entries(version: Version) -> tuple[int, int] | None:
    first, dash, last = version.trailer(ENTRIES).partition("-")
    return (int(first), int(last)) if dash and first.isdecimal() and last.isdecimal() else None


def _line(version: Version) -> str:
    files = ", ".join(version.files)
    return f"`{version.id[:7]}` {version.time:%Y-%m-%d %H:%M} {version.author}: {files}"


def _text(data: bytes | None) -> str:
    return (data or b"").decode("utf-8", "surrogateescape")
