"""A gateway that works for long: what it holds does not grow. Counts are compared, not times."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from loguru import logger

from tests.gateways import REPOSITORY
from tests.reliability.samples import Sample
from tests.reliability.soaking import SAMPLES

LARGEST_MB = 150.0
GROWN_MB = 6.0
"""What sessions, caches and the allocator may take between the first and the last quarter."""


def soak(folder: Path, messages: int) -> None:
    command = [sys.executable, "-m", "tests.reliability.soaking", str(folder), str(messages)]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    samples = [Sample(**json.loads(line)) for line in done.stdout.splitlines()]
    assert len(samples) == SAMPLES
    logger.info("{} to {}", samples[0], samples[-1])
    first, last = samples[: SAMPLES // 4], samples[-SAMPLES // 4 :]
    assert max(one.rss_mb for one in samples) < LARGEST_MB
    assert max(one.tasks for one in last) <= max(one.tasks for one in first)
    assert max(one.handles for one in last) <= max(one.handles for one in first)
    assert max(one.threads for one in last) <= max(one.threads for one in first) + 1
    assert min(one.rss_mb for one in last) - min(one.rss_mb for one in first) < GROWN_MB


@pytest.mark.timeout(240)
def test_what_a_gateway_holds_does_not_grow(tmp_path: Path) -> None:
    soak(tmp_path, 2_000)


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_what_a_gateway_holds_does_not_grow_over_twenty_thousand(tmp_path: Path) -> None:
    soak(tmp_path, 20_000)
