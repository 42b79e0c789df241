"""The runs on disk: a file for each, so that a damaged one affects no other."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import ValidationError

from nanobot_core import corrupt_name, replace_file
from nanobot_subagents.run import Run

if TYPE_CHECKING:
    from nanobot_core import PluginContext


class RunStore:
    """Blocks: call its methods in a thread.

    Args:
        ctx: the plugin's context; the files are in its data folder.
    """

    def __init__(self, ctx: PluginContext) -> None:
        self._log = ctx.logger
        self._data_dir = ctx.data_dir
        self._folder = ctx.data_dir / "runs"

    def put(self, run: Run) -> None:
        """Store a run: completely, on disk, or not at all.

        Raises:
            OSError: it is not stored.
        """
        replace_file(self._file(run.id), run.model_dump_json())

    def remove(self, run_id: str) -> None:
        """Remove a run; one that does not exist is ignored.

        Raises:
            OSError: it cannot be removed.
        """
        self._file(run_id).unlink(missing_ok=True)

    def load(self) -> list[Run]:
        """Return all runs, oldest first. A damaged file is set aside and reported.

        Raises:
            OSError: the folder cannot be read.
        """
        runs = self._read(self._folder.glob("*.json"))
        return sorted(runs, key=lambda run: (run.created_at, run.id))

    def _file(self, run_id: str) -> Path:
        return self._folder / f"{run_id}.json"

    def _read(self, files: Iterable[Path]) -> Iterator[Run]:
        for file in files:
            try:
                run = Run.model_validate_json(file.read_bytes())
                _require(run.id == file.stem, f"it is the file of run '{run.id}'")
            except FileNotFoundError:  # another process was faster
                continue
            except (OSError, ValidationError, ValueError) as error:
                self._set_aside(file, error)
            else:
                yield run

    def _set_aside(self, file: Path, error: Exception) -> None:
        """Keep a damaged file where ``nanobot doctor`` finds it."""
        aside = corrupt_name(self._data_dir / file.name)
        reason = str(error).splitlines()[0]
        try:
            file.rename(aside)
        except OSError as failure:
            reason = f"{reason}; it cannot be moved: {failure.strerror}"
        self._log.warning("the file of a run is damaged and kept as {}: {}", aside, reason)


def _require(holds: bool, problem: str) -> None:
    if not holds:
        raise ValueError(problem)
