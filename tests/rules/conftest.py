"""Where the rules look."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.rules.checks.source import parse


@pytest.fixture(autouse=True, scope="package")
def _nothing_to_collect() -> Iterator[None]:
    """Collect what other tests have left, for that may format tracebacks.

    Those parse too, and CPython 3.11 fails when that happens while something is parsed: "AST
    constructor recursion depth mismatch". Trees have no cycles, and looking for cycles in them
    takes longer than parsing.
    """
    gc.collect()
    gc.disable()
    yield
    parse.cache_clear()
    gc.enable()


@pytest.fixture(scope="session")
def repository() -> Path:
    return Path(__file__).resolve().parents[2]
