"""Finding plugins with and without the index, compared with the standard library's entry points."""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from importlib import invalidate_caches
from importlib.metadata import entry_points
from pathlib import Path

from benchmarks.installed import add_distributions, add_plugins
from benchmarks.measure import Row, compare, interleave
from nanobot_core.plugins.index import load_installed

ROUNDS = 15
SIZES = ((0, 0), (100, 0), (500, 0), (0, 20), (0, 100))


def rows(scale: int) -> Iterator[Row]:
    """Measure in this process, where `importlib.metadata` is imported already."""
    for others, plugins in SIZES:
        with tempfile.TemporaryDirectory(prefix="nanobot-bench-") as folder:
            site, cache = Path(folder, "site"), Path(folder, "cache")
            site.mkdir()
            add_distributions(site, others)
            add_plugins(site, plugins)
            with _on_path(site):
                cold, warm, floor = interleave(
                    ROUNDS * scale,
                    partial(_cold_ms, cache),
                    partial(_cpu_ms, partial(load_installed, cache)),
                    _floor_ms,
                )
        title = f"+{others} distributions, +{plugins} plugins"
        yield compare(f"{title}, warm", "ms", warm, floor)
        yield compare(f"{title}, cold", "ms", cold, floor)


@contextmanager
def _on_path(folder: Path) -> Iterator[None]:
    sys.path.append(str(folder))
    try:
        yield
    finally:
        sys.path.remove(str(folder))


def _cold_ms(cache: Path) -> float:
    (cache / "plugins.json").unlink(missing_ok=True)
    invalidate_caches()
    return _cpu_ms(lambda: load_installed(cache))


def _floor_ms() -> float:
    invalidate_caches()
    return _cpu_ms(lambda: entry_points(group="nanobot"))


def _cpu_ms(work: Callable[[], object]) -> float:
    started_s = time.process_time()
    work()
    return (time.process_time() - started_s) * 1e3
