"""``--version`` and ``--help``, and what other distributions and plugins add to them."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from benchmarks.child import (
    ChildRun,
    child_rows,
    environment_of,
    nanobot_command,
    program,
    run_child,
)
from benchmarks.installed import add_distributions, add_plugins, imported_plugins
from benchmarks.measure import Goal, Row, interleave, single
from benchmarks.server import nanobot_home

VERSION_ROUNDS = 15
HELP_ROUNDS = 7
INSTALLED_ROUNDS = 4
OTHERS = (20, 100, 500)
PLUGINS = (20, 100)
WARM = Goal(1.15)
COLD = Goal(1.4)


def rows(scale: int) -> Iterator[Row]:
    """Measure in fresh processes."""
    with nanobot_home() as home:
        environment = environment_of(home)

        def run(command: list[str]) -> Callable[[], ChildRun]:
            return lambda: run_child(command, environment)

        bare = run([sys.executable, "-c", "pass"])
        ours, floor = interleave(VERSION_ROUNDS * scale, run(nanobot_command("--version")), bare)
        yield from child_rows("--version / bare interpreter", ours, floor, Goal(2.0))
        ours, floor = interleave(
            HELP_ROUNDS * scale, run(nanobot_command("--help")), run(program("typer_help"))
        )
        yield from child_rows("--help / bare typer app", ours, floor, Goal(1.3))
        yield single("--help, resident", "MB", [each.rss_mb for each in ours])
    with tempfile.TemporaryDirectory(prefix="nanobot-bench-") as folder:
        yield from _installed_rows(Path(folder), scale)


def _installed_rows(folder: Path, scale: int) -> Iterator[Row]:
    """Compare ``--help`` in larger environments with the one without additions."""
    places: dict[str, Path] = {"": _place(folder / "none", lambda _path: None)}
    for count in OTHERS:
        places[f"{count} other distributions"] = _place(
            folder / f"others-{count}", partial(add_distributions, count=count)
        )
    for count in PLUGINS:
        places[f"{count} plugins"] = _place(
            folder / f"plugins-{count}", partial(add_plugins, count=count)
        )
    sides = [(name, cold) for name in places for cold in (False, True) if name or not cold]
    found = interleave(
        INSTALLED_ROUNDS * scale, *(_help(places[name], cold=cold) for name, cold in sides)
    )
    for (name, cold), ours in zip(sides[1:], found[1:], strict=True):
        title = f"--help, {name}, {'cold' if cold else 'warm'} index / none"
        yield child_rows(title, ours, found[0], COLD if cold else WARM)[0]
    imported = sum(imported_plugins(path / "site") for path in places.values())
    yield single("plugin modules imported by all of these, count", "", [imported], Goal(0, "value"))


def _place(path: Path, fill: Callable[[Path], None]) -> Path:
    """Make a home and, beside it, a folder of installed distributions."""
    (path / "home").mkdir(parents=True)
    (path / "site").mkdir()
    fill(path / "site")
    return path


def _help(place: Path, *, cold: bool) -> Callable[[], ChildRun]:
    environment = environment_of(place / "home", path=place / "site")
    command = nanobot_command("--help")

    def side() -> ChildRun:
        if cold:
            (place / "home" / "cache" / "plugins.json").unlink(missing_ok=True)
        return run_child(command, environment)

    return side
