"""Who decides whether a call runs: policies, the owner's rules, the owner."""

from __future__ import annotations

import asyncio
import stat
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import pytest

from nanobot_core import (
    Allow,
    ApprovalRequested,
    ApprovalResolved,
    Ask,
    Decision,
    DeclaredTool,
    Deny,
    JsonObject,
    Review,
    Rewrite,
    Ticket,
    Tool,
    ToolCallProposed,
    ToolContext,
    ToolDenied,
    on,
)
from nanobot_core.agent.always import AllowedCall, AlwaysAllowed
from nanobot_core.config.models import ApprovalRule
from nanobot_core.tools import tool
from nanobot_core.tools.registry import RegisteredTool
from tests.unit.agent.conftest import Bench, call

pytestmark = pytest.mark.anyio


def rule(
    tool: str,
    action: Literal["allow", "ask", "deny"],
    arguments: dict[str, str] | None = None,
    **patterns: str,
) -> ApprovalRule:
    return ApprovalRule.model_validate(
        {"tool": tool, "action": action, "arguments": arguments or {}, **patterns}
    )


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

    @on.choose_approval
    async def ask(self, event: ApprovalRequested) -> Ticket | None:
        self.asked.append(event)
        return None if self.answer is None else Ticket(self.answer, "owner")

    @on.after_approval
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
        ([rule("exec", "deny", {"command": "ls"})], False),
        ([rule("exec", "deny", {"command": "l"})], True),
        ([rule("exec", "deny", {"command": "*s"})], False),
        ([rule("exec", "deny", {"limit": "ls"})], True),
        ([rule("exec", "deny", {"command": "ls", "limit": "5"})], True),
        ([rule("exec", "deny", {"command": "ls", "limit": "0"})], True),
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
    assert owner.resolved[0].by == ("there is no one to ask here" if answer is None else "owner")


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
        @on.choose_approval
        async def ask(self, event: ApprovalRequested) -> Ticket | None:
            await asyncio.Event().wait()
            return None

    sleeper = Sleeper(True)
    bench.plug(Policy(Ask("Really?")), sleeper)
    bench.approval_timeout_s = 0.01
    assert await attempt(bench) == []
    assert sleeper.resolved[0].by == "no answer in time"


class Reviewed(Tool):
    """A tool that judges its own calls."""

    name = "exec"
    description = "Run."
    parameters: JsonObject = {  # noqa: RUF012 - as the contract declares it
        "type": "object",
        "properties": {"command": {"type": "string"}, "text": {"type": "string"}},
    }

    def __init__(self, review: Review | Exception) -> None:
        self.answer = review
        self.ran: list[ToolContext] = []

    async def review(self, context: ToolContext, arguments: JsonObject) -> Review:
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    async def execute(self, context: ToolContext, arguments: JsonObject) -> str:
        self.ran.append(context)
        return "ran"


async def review(
    bench: Bench, answer: Review | Exception, *, own_name: str = "exec", **arguments: str
) -> list[ToolContext]:
    """Have the model call a tool that judges the call so; return the contexts it ran in."""
    tool = Reviewed(answer)
    entry = RegisteredTool(
        DeclaredTool(tool.definition), lambda: tool, plugin="shell", own_name=own_name
    )
    bench.registry.register(entry)
    await bench.run(call("exec", **{"command": "ls", **arguments}), "done")
    return tool.ran


ASK = Review(decision=Ask("No sandbox. Run it?", "ls in /w"))


async def test_a_tool_that_asks_waits_for_the_owner(bench: Bench) -> None:
    owner = Owner(True)
    bench.plug(owner)
    assert len(await review(bench, ASK)) == 1
    assert owner.asked[0].question == "No sandbox. Run it?"


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (Review(decision=Deny("too wild")), "exec was denied: too wild"),
        (ToolDenied("closed"), "exec was denied: closed"),
        (RuntimeError("oops"), "exec was denied: RuntimeError: oops"),
    ],
)
async def test_a_tool_that_refuses_or_fails_to_judge_does_not_run(
    bench: Bench, answer: Review | Exception, reason: str
) -> None:
    bench.rules = [rule("exec", "allow")]
    assert await review(bench, answer) == []
    assert reason in bench.results()[0]


async def test_an_approval_opens_the_paths_of_the_question(bench: Bench) -> None:
    outside = Path("/outside/a.txt")
    bench.plug(Owner(True))
    ran = await review(bench, Review(decision=Ask("Read it?", paths=(outside,))))
    assert ran[0].files.resolve_read(str(outside)) == outside
    with pytest.raises(ToolDenied):
        ran[0].files.resolve_read("/outside/b.txt")


async def test_a_rule_is_not_matched_by_another_argument(bench: Bench) -> None:
    """Once `argument` was searched in every argument, and a comment in the text matched."""
    bench.rules = [rule("exec", "allow", {"command": "*.md"}), rule("*", "deny")]
    assert await review(bench, Review(), command="run.sh", text="# x.md") == []


@pytest.mark.parametrize(
    ("values", "action", "runs"),
    [
        (("git status",), "allow", True),
        (("git status", "rm -rf x"), "allow", False),
        (None, "allow", False),
        (("ls", "git push"), "deny", False),
        (("ls",), "deny", True),
        (None, "deny", False),
    ],
)
async def test_rules_compare_what_the_tool_makes_of_an_argument(
    bench: Bench,
    values: tuple[str, ...] | None,
    action: Literal["allow", "deny"],
    runs: bool,
) -> None:
    """An allowed command must not bring another one along, and a refused one not hide."""
    rest = [rule("*", "deny")] if action == "allow" else []
    bench.rules = [rule("exec", action, {"command": "git *"}), *rest]
    answer = Review(values={"command": values})
    assert bool(await review(bench, answer, command="git status")) is runs


@pytest.mark.parametrize(
    ("pattern", "action", "runs"),
    [("run", "deny", False), ("shell/run", "deny", False), ("run", "allow", False)],
)
async def test_refusals_follow_a_tool_that_lost_its_name(
    bench: Bench, pattern: str, action: Literal["allow", "deny"], runs: bool
) -> None:
    bench.rules = [rule(pattern, action), *([rule("*", "deny")] if action == "allow" else [])]
    assert bool(await review(bench, Review(), own_name="run")) is runs


async def test_always_is_asked_once_and_remembered(bench: Bench, tmp_path: Path) -> None:
    class Always(Owner):
        @on.choose_approval
        async def ask(self, event: ApprovalRequested) -> Ticket | None:
            self.asked.append(event)
            return Ticket(True, "owner", always=True)

    owner = Always(True)
    bench.plug(owner)
    bench.always = AlwaysAllowed(tmp_path / "allowed.json")
    assert len(await review(bench, ASK)) == 1
    bench.registry.unregister("exec")
    assert len(await review(bench, ASK)) == 1
    bench.registry.unregister("exec")
    await review(bench, Review(decision=Ask("No sandbox. Run it?", "ls in /elsewhere")))

    assert [event.may_always for event in owner.asked] == [True, True]
    assert stat.S_IMODE((tmp_path / "allowed.json").stat().st_mode) == 0o600
    assert bench.always.remove(AllowedCall("shell/exec", "ls in /w"))
    assert not bench.always.remove(AllowedCall("shell/exec", "ls in /w"))


async def test_a_rule_that_asks_does_so_for_each_call(bench: Bench, tmp_path: Path) -> None:
    owner = Owner(True)
    bench.plug(owner)
    bench.rules = [rule("exec", "ask")]
    bench.always = AlwaysAllowed(tmp_path / "allowed.json")
    assert len(await review(bench, ASK)) == 1
    bench.registry.unregister("exec")
    assert len(await review(bench, ASK)) == 1
    assert [event.may_always for event in owner.asked] == [False, False]


async def test_always_does_not_hold_for_guests(bench: Bench, tmp_path: Path) -> None:
    owner = Owner(False)
    bench.plug(owner)
    bench.always = AlwaysAllowed(tmp_path / "allowed.json")
    await bench.always.add(AllowedCall("shell/exec", "ls in /w"))
    bench.turn = replace(bench.turn, source="chat", is_owner=False)

    assert await review(bench, ASK) == []
    assert [event.may_always for event in owner.asked] == [False]


@pytest.mark.parametrize(("sender", "runs"), [(None, False), ("me", True)])
async def test_what_a_rule_allows_is_for_the_owner_unless_it_names_the_guest(
    bench: Bench, sender: str | None, runs: bool
) -> None:
    bench.rules = [ApprovalRule(tool="exec", action="allow", sender=sender)]
    bench.turn = replace(bench.turn, source="chat", is_owner=False)
    assert bool(await review(bench, ASK)) is runs


@pytest.mark.parametrize("damaged", ['[{"tool": "shell/exec"', "[" * 5_000])
async def test_a_file_of_allowed_calls_that_is_damaged_allows_nothing(
    tmp_path: Path, damaged: str
) -> None:
    file = tmp_path / "allowed.json"
    file.write_text(damaged)
    assert not await AlwaysAllowed(file).has(AllowedCall("shell/exec", "ls in /w"))
