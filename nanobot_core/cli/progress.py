"""A bar that shows which step of a long command is in progress."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Self

from nanobot_core.cli.output import stderr


class Bar:
    """A progress bar on standard error; without a terminal, nothing is shown.

    Args:
        steps: the names of all steps, in order.
        shown: show it at a terminal.
    """

    def __init__(self, steps: Sequence[str], *, shown: bool = True) -> None:
        from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

        self._steps = tuple(steps)
        self._progress = Progress(
            *(SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn()),
            console=stderr(),
            transient=True,
            disable=not shown or not stderr().is_terminal,
        )
        self._task = self._progress.add_task("", total=len(self._steps))

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._progress.stop()

    def step(self, name: str) -> None:
        """Show that a step begins, and that those before it are done."""
        done = self._steps.index(name) if name in self._steps else 0
        self._progress.update(self._task, description=name, completed=done)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Hide the bar while the terminal is used for something else."""
        self._progress.stop()
        try:
            yield
        finally:
            self._progress.start()
