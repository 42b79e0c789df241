"""Where the rules look."""

from __future__ import annotations

import gc
from pathlib import Path

import pytest


@pytest.fixture(autouse=True, scope="module")
def _nothing_to_collect() -> None:
    """Collect what other tests have left, for that may format tracebacks.

    Those parse too, and CPython 3.11 fails when that happens while something is parsed: "AST
    constructor recursion depth mismatch".
    """
    gc.collect()


@pytest.fixture(scope="session")
def repository() -> Path:
    return Path(__file__).resolve().parents[2]
