"""What a process holds. Imports nothing of nanobot, so that its clock can be replaced first."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Sample:
    """What the process holds while nothing is being done."""

    rss_mb: float
    tasks: int
    threads: int
    handles: int


def sample() -> Sample:
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return Sample(
        rss_mb=pages * os.sysconf("SC_PAGE_SIZE") / 1e6,
        tasks=len(asyncio.all_tasks()),
        threads=threading.active_count(),
        handles=len(os.listdir("/proc/self/fd")),  # noqa: PTH208 - without an open iterator
    )
