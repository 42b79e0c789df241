"""What fuzzing has found stays fixed."""

from __future__ import annotations

import random

import pytest

from tests.fuzz import TARGETS
from tests.fuzz.__main__ import HERE, load

_CHANGES = 20


@pytest.mark.parametrize("target", TARGETS)
def test_a_target_holds_for_its_seeds_and_cases(target: str) -> None:
    if plugin := TARGETS[target]:
        pytest.importorskip(plugin)
    module = load(target)
    kept = [path.read_bytes() for path in sorted((HERE / "cases" / target).glob("*.bin"))]
    for data in (*module.seeds(), *kept):
        module.fuzz_one(data)


@pytest.mark.parametrize("target", TARGETS)
def test_a_target_holds_for_input_close_to_its_seeds(target: str) -> None:
    if plugin := TARGETS[target]:
        pytest.importorskip(plugin)
    module = load(target)
    rng = random.Random(target)
    seeds = list(module.seeds())
    for _ in range(_CHANGES):
        data = bytearray(rng.choice(seeds))
        for _ in range(rng.randint(1, 4)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        module.fuzz_one(bytes(data))
