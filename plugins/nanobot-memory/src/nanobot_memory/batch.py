"""What Dream keeps between its runs: failures, batches that it gave up, and a change under way."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Final, TypeVar

from loguru import logger
from pydantic import BaseModel, ConfigDict, ValidationError

if TYPE_CHECKING:
    from nanobot_memory.files import MemoryFiles

MAX_BYTES: Final = 20_000_000
_LOCK: Final = PurePosixPath("memory/.dream.lock")
_STATE: Final = ".dream.json"
_PENDING: Final = ".dream_pending.json"
ModelT = TypeVar("ModelT", bound=BaseModel)


class DreamBusy(Exception):
    """Dream works already, in this process or in another one."""


class Aside(BaseModel):
    """A batch that was given up; its entries are still in the history.

    Attributes:
        first: number of its first entry.
        last: number of its last entry.
        reason: what prevented it, for people.
        is_blocked: it would remove much, and the owner decides.
    """

    model_config = ConfigDict(frozen=True)

    first: int
    last: int
    reason: str
    is_blocked: bool = False


class DreamState(BaseModel):
    """What Dream knows of its previous runs.

    Attributes:
        attempts: how often the next batch has failed.
        next_at: when the job may try it again, in seconds of the epoch.
        aside: batches that were given up.
    """

    model_config = ConfigDict(frozen=True)

    attempts: int = 0
    next_at: float = 0.0
    aside: tuple[Aside, ...] = ()


class FileChange(BaseModel):
    """A file's content before and after; ``None`` if it does not exist."""

    model_config = ConfigDict(frozen=True, ser_json_bytes="base64", val_json_bytes="base64")

    before: bytes | None
    after: bytes | None


class Pending(BaseModel):
    """A change that is being made. It is on disk before the first file changes.

    Attributes:
        changes: by path in the workspace.
        message: of the commit.
        cursor: Dream's cursor afterwards, or ``None`` if it stays.
        state: the state afterwards.
    """

    model_config = ConfigDict(frozen=True)

    changes: dict[str, FileChange]
    message: str
    cursor: int | None
    state: DreamState


def load_state(files: MemoryFiles) -> DreamState:
    """Return the state of a memory; a damaged file counts as missing. Blocks."""
    return _load(files, _STATE, DreamState) or DreamState()


def save_state(files: MemoryFiles, state: DreamState) -> None:
    """Keep the state of a memory. Blocks."""
    data = state.model_dump_json().encode()
    files.root.replace(files.folder / _STATE, data, mode=0o600)


def load_pending(files: MemoryFiles) -> Pending | None:
    """Return the change that a previous process has not finished, if any. Blocks."""
    return _load(files, _PENDING, Pending)


def save_pending(files: MemoryFiles, pending: Pending) -> None:
    """Keep a change before it is made. Blocks."""
    data = pending.model_dump_json().encode()
    files.root.replace(files.folder / _PENDING, data, mode=0o600)


def drop_pending(files: MemoryFiles) -> None:
    """Forget the change, because it is made. Blocks."""
    with contextlib.suppress(FileNotFoundError):
        files.root.unlink(files.folder / _PENDING)


@contextlib.contextmanager
def dream_lock(files: MemoryFiles) -> Iterator[None]:
    """Keep Dream and restores of this and other processes from working at once. Blocks.

    Raises:
        DreamBusy: another one holds it.
    """
    files.root.make("memory")
    handle = files.root.open(_LOCK, os.O_RDWR | os.O_CREAT)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in {errno.EAGAIN, errno.EACCES}:
                raise
            raise DreamBusy("Dream is running; try again when it has finished") from error
        yield
    finally:
        os.close(handle)  # also unlocks


def _load(files: MemoryFiles, name: str, model: type[ModelT]) -> ModelT | None:
    try:
        return model.model_validate_json(files.root.read(files.folder / name, MAX_BYTES))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except ValidationError:
        logger.warning("{}/{} is damaged and is not used", files.folder, name)
        return None
