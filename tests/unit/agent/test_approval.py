"""Who decides whether a call runs: policies, the owner's rules, the owner."""

from __future__ import annotations

import asyncio
from typing import Any, Literal

import pytest

from nanobot_core import (
    Allow,
    ApprovalRequested,
    ApprovalResolved,
    Ask,
    Decision,
    Deny,
    Rewrite,
    Ticket,
    ToolCallProposed,
    on,
)
from nanobot_core.config.models import ApprovalRule
from nanobot_core.tools import tool
from tests.unit.agent.conftest import Bench, call

pytestmark = pytest.mark.anyio


def rule(tool: str, action: Literal["allow", "ask", "deny"], **patterns: str) -> ApprovalRule:
    return ApprovalRule.model_validate({"tool": tool, "action": action, **patterns})


class Policy:
    def __init__(self, decision: Decision | None) -> None:
        self.decision = decision

    @on.authorize_tool_call
    def decide(self, event: ToolCallProposed) -> Decision | None:
        return self.decision


class Owner:
    """Answers questions with yes or no and keeps what was asked and told."""

    def __init__(self, answer: bool | None) -> None:
        self.answer = answer
        self.asked: list[ApprovalRequested] = []
        self.resolved: list[ApprovalResolved] = []

    @on.present_approval
    async def ask(self, event: ApprovalRequested) -> Ticket | None:
        self.asked.append(event)
        return None if self.answer is None else Ticket(self.answer, "owner")

    @on.approval_resolved
    def note(self, event: ApprovalResolved) -> None:
        self.resolved.append(event)


async def attempt(bench: Bench, **arguments: Any) -> list[str]:
    """Have the model run ``exec`` and return the commands that really ran."""
    ran: list[str] = []

    @tool(name="exec")
    def execute(command: str, limit: int = 0) -> str:
        """Run."""
        ran.append(command)
        return "ran"

    bench.offer(execute)
    await bench.run(call("exec", **{"command": "ls", **arguments}), "done")
    return ran


async def test_without_rules_and_policies_a_call_runs(bench: Bench) -> None:
    assert await attempt(bench) == ["ls"]


@pytest.mark.parametrize("decision", [Allow(), None])
async def test_a_policy_that_allows_lets_it_run(bench: Bench, decision: Decision | None) -> None:
    bench.plug(Policy(decision))
    assert await attempt(bench) == ["ls"]


async def test_a_policy_denies_with_its_reason(bench: Bench) -> None:
    bench.plug(Policy(Deny("not on Sundays")))
    assert await attempt(bench) == []
    assert "exec was denied: not on Sundays" in bench.results()[0]


async def test_a_policy_rewrites_and_the_new_arguments_are_cast(bench: Bench) -> None:
    bench.plug(Policy(Rewrite({"command": "ls -l", "limit": "5"})))
    assert await attempt(bench) == ["ls -l"]


async def test_rewritten_arguments_that_do_not_fit_are_refused(bench: Bench) -> None:
    bench.plug(Policy(Rewrite({"limit": 5})))
    assert await attempt(bench) == []
    assert "command is required" in bench.results()[0]


async def test_a_policy_that_fails_denies(bench: Bench) -> None:
    class Broken:
        @on.authorize_tool_call
        def decide(self, event: ToolCallProposed) -> Decision:
            raise RuntimeError("oops")

    bench.plug(Broken())
    assert await attempt(bench) == []
    assert "the policy of plugin 'p0' failed" in bench.results()[0]


@pytest.mark.parametrize(
    ("rules", "runs"),
    [
        ([rule("exec", "deny")], False),
        ([rule("ex*", "deny")], False),
        ([rule("read_*", "deny")], True),
        ([rule("exec", "allow"), rule("*", "deny")], True),
        ([rule("exec", "deny", argument="^ls$")], False),
        ([rule("exec", "deny", argument="rm")], True),
        ([rule("exec", "deny", channel="telegram")], True),
        ([rule("exec", "deny", channel="cli")], False),
        ([rule("exec", "deny", sender="me")], False),
        ([rule("exec", "deny", sender="me|Me")], False),
        ([rule("exec", "deny", sender="Me")], True),
        ([rule("exec", "ask")], False),
    ],
)
async def test_the_first_rule_that_matches_counts(
    bench: Bench, rules: list[ApprovalRule], runs: bool
) -> None:
    bench.rules = rules
    assert bool(await attempt(bench)) is runs


async def test_nobody_to_ask_means_no(bench: Bench) -> None:
    bench.plug(Policy(Ask("Really?")))
    assert await attempt(bench) == []
    assert "exec was not approved by the owner" in bench.results()[0]


@pytest.mark.parametrize("answer", [True, False, None])
async def test_the_owner_decides_on_the_exact_arguments(bench: Bench, answer: bool | None) -> None:
    owner = Owner(answer)
    bench.plug(Policy(Ask("Really?")), owner)
    assert bool(await attempt(bench)) is (answer is True)
    assert owner.asked[0].question == "Really?"
    assert owner.asked[0].call.arguments == {"command": "ls"}
    assert owner.resolved[0].id == owner.asked[0].id
    assert owner.resolved[0].allowed is (answer is True)
    assert owner.resolved[0].by == ("nobody to ask" if answer is None else "owner")


async def test_a_rule_that_allows_saves_the_question(bench: Bench) -> None:
    owner = Owner(False)
    bench.plug(Policy(Ask("Really?")), owner)
    bench.rules = [rule("exec", "allow")]
    assert await attempt(bench) == ["ls"]
    assert owner.asked == []


async def test_a_rule_asks_where_no_policy_does(bench: Bench) -> None:
    owner = Owner(True)
    bench.plug(owner)
    bench.rules = [rule("exec", "ask")]
    assert await attempt(bench) == ["ls"]
    assert owner.asked[0].question == "Run exec?"


async def test_no_answer_in_time_means_no(bench: Bench) -> None:
    class Sleeper(Owner):
        @on.present_approval
        async def ask(self, event: ApprovalRequested) -> Ticket | None:
            await asyncio.Event().wait()
            return None

    sleeper = Sleeper(True)
    bench.plug(Policy(Ask("Really?")), sleeper)
    bench.approval_timeout_s = 0.01
    assert await attempt(bench) == []
    assert sleeper.resolved[0].by == "no answer in time"
