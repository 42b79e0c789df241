"""A failing implementation is left out, tried again, and recovers."""

from __future__ import annotations

import pytest

from nanobot_core import ContentReady, Deny, ToolCall, ToolCallProposed, TurnInfo, on
from nanobot_core.hooks.account import FIRST_PAUSE_S, LONGEST_PAUSE_S, Circuit
from tests.unit.hooks.conftest import Bench

pytestmark = pytest.mark.anyio


class Flaky:
    """Fails while its switch is on."""

    def __init__(self) -> None:
        self.broken = True
        self.calls = 0

    @on.finalize_content
    def change(self, event: ContentReady) -> str:
        self.calls += 1
        if self.broken:
            raise ValueError("no")
        return "changed"


@pytest.mark.promise(12)
async def test_three_failures_in_a_row_leave_an_implementation_out(
    bench: Bench, turn: TurnInfo
) -> None:
    flaky = Flaky()
    hooks = bench.hooks(flaky)
    event = ContentReady(turn=turn, content="a")

    for _ in range(5):
        assert await hooks.finalize_content(event) == "a"

    assert flaky.calls == 3
    assert bench.opened == ["p0"]
    assert hooks.finalize_content.implementations[0].account.skipped == 2


@pytest.mark.promise(12)
async def test_after_the_pause_one_trial_call_brings_it_back(bench: Bench, turn: TurnInfo) -> None:
    flaky = Flaky()
    hooks = bench.hooks(flaky)
    event = ContentReady(turn=turn, content="a")
    for _ in range(3):
        await hooks.finalize_content(event)

    flaky.broken = False
    bench.now_s = FIRST_PAUSE_S

    assert await hooks.finalize_content(event) == "changed"
    assert hooks.finalize_content.implementations[0].circuit.state == "closed"


async def test_a_circuit_outlives_the_generation(bench: Bench, turn: TurnInfo) -> None:
    flaky = Flaky()
    hooks = bench.hooks(flaky)
    event = ContentReady(turn=turn, content="a")
    for _ in range(3):
        await hooks.finalize_content(event)

    await bench.hooks(flaky).finalize_content(event)

    assert flaky.calls == 3


@pytest.mark.promise(12)
async def test_a_policy_with_an_open_circuit_stays_closed(bench: Bench, turn: TurnInfo) -> None:
    class Fails:
        @on.authorize_tool_call
        async def decide(self, event: ToolCallProposed) -> None:
            raise ValueError("no")

    hooks = bench.hooks(Fails())
    event = ToolCallProposed(turn=turn, call=ToolCall("1", "x", {}), origin="a", read_only=True)

    verdicts = [await hooks.authorize_tool_call(event) for _ in range(5)]

    assert all(isinstance(verdict.decision, Deny) for verdict in verdicts)
    assert hooks.authorize_tool_call.implementations[0].circuit.state == "open"


def test_the_pause_doubles_while_trials_fail_up_to_a_bound() -> None:
    now_s = 0.0
    circuit = Circuit(lambda: now_s)
    pauses: list[float] = []
    for _ in range(3):
        assert circuit.admits()
        circuit.failed()
    for _ in range(8):
        pauses.append(circuit.pause_s)
        assert not circuit.admits()
        now_s += circuit.pause_s
        assert circuit.state == "half-open"
        assert circuit.admits()
        assert not circuit.admits()
        circuit.failed()

    assert pauses[:3] == [FIRST_PAUSE_S, 2 * FIRST_PAUSE_S, 4 * FIRST_PAUSE_S]
    assert pauses[-1] == LONGEST_PAUSE_S


def test_a_trial_that_the_host_cancels_says_nothing() -> None:
    now_s = 0.0
    circuit = Circuit(lambda: now_s)
    for _ in range(3):
        circuit.failed()
    now_s = FIRST_PAUSE_S

    assert circuit.admits()
    circuit.released()

    assert circuit.state == "half-open"
    assert circuit.admits()
