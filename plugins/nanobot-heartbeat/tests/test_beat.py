from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from operator import attrgetter
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from loguru import logger
from typer.testing import CliRunner

from nanobot_core import (
    AgentTask,
    Assignment,
    AssignmentFinished,
    BusFull,
    CommandCall,
    Every,
    SessionError,
    TaskOutcome,
    TurnInfo,
    TurnOutcome,
    Unreachable,
    Usage,
)
from nanobot_core.testing import FakeClock, FakeGateway, FakePluginContext
from nanobot_heartbeat.checklist import FILE
from nanobot_heartbeat.commands import app
from nanobot_heartbeat.decision import Heartbeat
from nanobot_heartbeat.heart import NO_CHAT, PENDING_LIMIT, UNDER_WAY, Heart
from nanobot_heartbeat.plugin import HeartbeatPlugin
from nanobot_heartbeat.replies import answer_heartbeat, check_heartbeat

TURN = TurnInfo(id="t", session_key="s", channel="cli", chat_id="c", sender_id="user", source="cli")


def decided(action: str, tasks: str = "", **outcome: object) -> TaskOutcome:
    answer = Heartbeat.model_validate({"action": action, "tasks": tasks})
    fields = {"content": "", "stop_reason": "completed", "usage": Usage(), "output": answer}
    return TaskOutcome(**fields | outcome)  # type: ignore[arg-type]  # fields of an outcome


def raising(error: Exception) -> Callable[[AgentTask], TaskOutcome]:
    def answer(_: AgentTask) -> TaskOutcome:
        raise error

    return answer


class World:
    """A gateway with the plugin, whose model wants to run."""

    def __init__(self, tmp_path: Path, **settings: object) -> None:
        self.clock = FakeClock()
        self.gateway = FakeGateway()
        self.gateway.owners_chat = ("telegram", "42")
        self.ctx = FakePluginContext(
            tmp_path,
            settings=json.loads(json.dumps(settings)),
            plugin_id="heartbeat",
            clock=self.clock,
            gateway=self.gateway,
        )
        self.ctx.agent.answer = lambda _: decided("run", "Look at the mail.")
        self.heart = self.ctx.shared(Heart)
        self.write("- [ ] every hour: look at the mail")

    def write(self, checklist: str) -> None:
        (self.ctx.workspace / FILE).write_text(checklist)

    @property
    def work(self) -> list[Assignment]:
        return [each.assignment for each in self.gateway.assigned if each.assignment]

    async def end(self, **outcome: object) -> None:
        """End the newest work."""
        plugin = HeartbeatPlugin()
        await plugin.start(self.ctx)
        done = TurnOutcome(**{"turn": TURN, "reply": "All done.", **outcome})  # type: ignore[arg-type]  # fields of an outcome
        await plugin.after_assignment(AssignmentFinished(assignment=self.work[-1], outcome=done))

    async def ask(self, words: str = "") -> str:
        call = CommandCall(turn=TURN, name="heartbeat", text=words, is_owner=True)
        return await answer_heartbeat(self.ctx, call)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


@pytest.fixture
async def log() -> AsyncIterator[list[str]]:
    lines: list[str] = []
    sink = logger.add(lambda line: lines.append(str(line)), level="WARNING", format="{message}")
    yield lines
    logger.remove(sink)


async def test_what_is_due_becomes_work_with_the_checklist_and_few_tools(world: World) -> None:
    assert await world.heart.beat() == "Started: Look at the mail."

    (decision,) = world.ctx.agent.tasks
    assert "every hour: look at the mail" in decision.messages[-1].text
    assert "2026-01-01 00:00 (Thursday, UTC)" in decision.messages[-1].text
    (message,), (work,) = world.gateway.assigned, world.work
    assert message.content == "Look at the mail."
    assert (work.source, work.session_key, work.delivery) == (
        "heartbeat",
        "heartbeat:main",
        "when_notable",
    )
    assert (work.requester.channel, work.requester.chat_id) == ("telegram", "42")
    assert work.requester.authority == "machine"
    assert not work.requester.is_group
    assert "every hour: look at the mail" in (work.instructions or "")
    assert work.admits(["read_file"])
    assert not any(work.admits([name]) for name in ("write_file", "exec", "message", "cron"))
    assert world.ctx.agent.deleted == ["heartbeat:main"]


@pytest.mark.parametrize(
    "answer",
    [
        lambda _: decided("skip", "Look at the mail."),
        lambda _: decided("run", "  "),
        lambda _: decided("run", "Look.", stop_reason="failed"),
        lambda _: decided("run", "Look.", stop_reason="iteration_limit"),
        lambda _: decided("run", "Look.", stop_reason="token_limit"),
        lambda _: decided("run", "Look.", output=None),
        lambda _: "I will look at the mail now.",
        lambda _: decided("run", "Look.", output=None, stop_reason="budget"),
        raising(Unreachable("openai", "the service is away")),
        raising(TimeoutError()),
        raising(RuntimeError("the agent is being stopped")),
    ],
)
async def test_an_answer_that_leaves_a_doubt_starts_nothing(
    world: World, log: list[str], answer: Callable[[AgentTask], str | TaskOutcome]
) -> None:
    world.ctx.agent.answer = answer

    line = await world.heart.beat()

    assert world.gateway.assigned == []
    assert world.ctx.agent.deleted == []
    assert (line == "Nothing is due.") is not bool(log), "a failure is in the log"


@pytest.mark.parametrize(
    "text", ['{"action": "maybe"}', '{"tasks": "look"}', '{"action": "run", "x": 1}']
)
def test_a_decision_has_one_form(text: str) -> None:
    with pytest.raises(ValueError, match="validation error"):
        Heartbeat.model_validate_json(text)


async def test_an_empty_checklist_costs_nothing(world: World) -> None:
    world.write("# Heartbeat\n\n<!-- nothing -->\n- [x] done\n")
    assert "no open task" in await world.heart.beat()
    (world.ctx.workspace / FILE).unlink()
    assert "no open task" in await world.heart.beat()
    (world.ctx.workspace / FILE).symlink_to("/etc/passwd")
    assert "not a regular file" in await world.heart.beat()

    assert world.ctx.agent.tasks == []


async def test_quiet_hours_are_those_of_the_owner_and_hold_no_one_back(tmp_path: Path) -> None:
    world = World(tmp_path, quiet_hours="05:00-06:00")
    world.ctx.timezone = ZoneInfo("Asia/Kolkata")

    assert await world.heart.beat() == "Quiet hours."
    assert world.ctx.agent.tasks == []
    assert "Started" in await world.ask("trigger")


async def test_without_a_known_chat_no_model_is_asked_and_the_doctor_says_so(world: World) -> None:
    world.gateway.owners_chat = None

    assert await world.heart.beat() == NO_CHAT
    assert world.ctx.agent.tasks == []
    assert (await check_heartbeat(world.ctx)).status == "warning"
    world.gateway.owners_chat = ("telegram", "42")
    await world.heart.beat()
    assert (await check_heartbeat(world.ctx)).status == "ok"


async def test_a_named_chat_counts_as_one_that_others_read(tmp_path: Path) -> None:
    world = World(tmp_path, target="slack:C1:thread")

    await world.heart.beat()

    requester = world.work[0].requester
    assert (requester.channel, requester.chat_id, requester.is_group) == (
        "slack",
        "C1:thread",
        True,
    )


async def test_one_beat_waits_for_the_result_of_the_other(world: World) -> None:
    await world.heart.beat()
    assert await world.heart.beat() == UNDER_WAY
    await world.clock.advance(PENDING_LIMIT.total_seconds())
    assert "Started" in await world.heart.beat()
    await world.end(reply="Two new mails.")

    await world.clock.advance(1800)
    assert "Started" in await world.heart.beat()
    shown = world.ctx.agent.tasks[-1].messages[-1].text
    assert "- 2026-01-01 06:00: Look at the mail." in shown
    assert len(world.work) == 3


async def test_two_beats_at_once_ask_the_model_once(world: World) -> None:
    lines = await asyncio.gather(world.heart.beat(), world.heart.trigger())

    assert sorted(lines) == ["Started: Look at the mail.", UNDER_WAY]
    assert len(world.ctx.agent.tasks) == 1


@pytest.mark.parametrize(
    ("part", "name", "error"),
    [
        ("ctx.agent", "delete_session", SessionError("heartbeat:main", "a turn is under way")),
        ("gateway", "assign", BusFull(10, 10)),
    ],
)
async def test_work_that_cannot_be_given_is_tried_again(
    world: World, monkeypatch: pytest.MonkeyPatch, part: str, name: str, error: Exception
) -> None:
    async def fail(*_: object) -> bool:
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(attrgetter(part)(world), name, fail)
        assert await world.heart.beat() != "Started: Look at the mail."
    await world.clock.advance(1)

    assert "Started" in await world.heart.beat()


async def test_results_are_kept_and_a_failure_is_logged(world: World, log: list[str]) -> None:
    await world.heart.beat()
    await world.end(error="the service is away", stop_reason="failed")

    state = json.loads(await world.ask("status --json"))
    assert state["beats"][-1]["result"] == "failed: the service is away"
    assert state["target"] == "telegram:42"
    assert "the service is away" in log[-1]
    again = FakePluginContext(world.ctx.workspace.parent, plugin_id="heartbeat")
    assert len((await again.shared(Heart).journal.read()).beats) == 1


async def test_a_damaged_journal_is_set_aside(world: World) -> None:
    file = world.ctx.data_dir / "beats.json"
    file.write_text("{")

    assert "Started" in await world.heart.beat()
    assert file.with_name("beats.json.corrupt-1").read_text() == "{"


@pytest.mark.parametrize(
    ("settings", "schedule"),
    [({}, Every(1800)), ({"interval_s": 60}, Every(60)), ({"enabled": False}, None)],
)
def test_the_settings_say_when_the_job_is_due(
    tmp_path: Path, settings: dict[str, object], schedule: Every | None
) -> None:
    (job,) = HeartbeatPlugin().contribute_jobs(World(tmp_path, **settings).ctx)

    assert (job.id, job.schedule) == ("heartbeat", schedule)


@pytest.mark.parametrize(
    ("words", "replies", "code", "said"),
    [
        (("status",), "- Heartbeat: off", 0, "Heartbeat: off"),
        (("trigger",), '{"text": "Nothing is due.", "has_gateway": true}', 0, "Nothing is due."),
        (("trigger",), '{"text": "No gateway", "has_gateway": false}', 1, "No gateway"),
        (("trigger", "--json"), '{"text": "t", "has_gateway": false}', 1, '{"text": "t",'),
    ],
)
def test_the_terminal_uses_the_slash_command(
    words: tuple[str, ...], replies: str, code: int, said: str
) -> None:
    class Terminal:
        def slash(self, text: str) -> str:
            return replies

    done = CliRunner().invoke(app, words, obj=Terminal())

    assert (done.exit_code, said in done.output) == (code, True)


async def test_without_a_gateway_a_trigger_says_so(tmp_path: Path) -> None:
    ctx = FakePluginContext(tmp_path, plugin_id="heartbeat")
    call = CommandCall(turn=TURN, name="heartbeat", text="trigger --json", is_owner=True)

    done = json.loads(await answer_heartbeat(ctx, call))

    assert (done["has_gateway"], "nanobot gateway" in done["text"]) == (False, True)


async def test_the_state_is_shown_to_people(world: World) -> None:
    await world.heart.beat()
    shown = await world.ask()

    assert "- Heartbeat: every 30 minutes" in shown
    assert "- Answers go to: telegram:42" in shown
    assert "- Checklist: HEARTBEAT.md has open tasks" in shown
    assert "- 2026-01-01 00:00: Look at the mail. (under way)" in shown
    assert "is unknown" in await world.ask("now")
