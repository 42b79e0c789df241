"""Questions about tool calls, asked in a chat."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from nanobot_core import Nanobot, ToolCallProposed, on
from nanobot_core.app.client import CHANGE_LIMIT_S, ControlClient
from nanobot_core.contracts.plugin import Rewrite
from nanobot_core.events import ApprovalResolved
from nanobot_core.testing import FakeClock
from tests.gateways import PLUGIN, Platform, running, write_config

pytestmark = pytest.mark.anyio
DAMAGED_QUESTION = (
    '[{"id": "1", "session_key": "a", "call_id": "b", "content": "c", "expires_at": "%s",'
    ' "allowed": %s}]'
)
ASK = {"approval": [{"tool": "note", "action": "ask"}, {"tool": "wait_long", "action": "ask"}]}
GUESTS_TOO = {**ASK, "guests": {"allow": ["note"]}}
CALL = 'call note {"word": "once"}'


class Ear:
    """Hears how questions were answered."""

    def __init__(self) -> None:
        self.heard: list[ApprovalResolved] = []

    @on.after_approval
    async def after_approval(self, event: ApprovalResolved) -> None:
        self.heard.append(event)


def notes(home: Path) -> list[str]:
    """Return what was noted, by the owner or by a guest."""
    files = (home / "workspace").rglob("notes.txt")
    return [word for file in files for word in file.read_text().split()]


def id_of(question: dict[str, Any]) -> str:
    (allow, deny) = question["buttons"]
    assert allow.removeprefix("/approve ") == deny.removeprefix("/deny ")
    return str(allow.removeprefix("/approve "))


async def records(bot: Nanobot, chat: str = "1") -> list[str]:
    return [message.text async for message in bot.sessions.read(f"chatty:{chat}")]


async def test_the_owners_yes_runs_the_call_with_the_arguments_that_were_shown(
    tmp_path: Path,
) -> None:
    ear = Ear()
    async with Platform() as platform:
        write_config(tmp_path, platform, tools=ASK)
        async with running(tmp_path, None, ear) as bot:
            await platform.say(CALL)
            question = await platform.shows("Run note?")

            assert json.dumps({"word": "once"}, indent=2) in question["text"]
            assert notes(tmp_path) == []
            await platform.say(f"/approve {id_of(question)}")
            await platform.shows("The tool said: noted once")
            assert notes(tmp_path) == ["once"]
            assert "noted once" in await records(bot)
    assert [(one.allowed, one.by, one.call.arguments) for one in ear.heard] == [
        (True, "7", {"word": "once"})
    ]


async def test_the_owners_no_refuses_the_call_and_the_model_is_told(tmp_path: Path) -> None:
    async with Platform() as platform:
        write_config(tmp_path, platform, tools=ASK)
        async with running(tmp_path) as bot:
            await platform.say(CALL)
            question = await platform.shows("Run note?")
            await platform.say(f"/deny {id_of(question)}")
            await platform.shows("was not approved by the owner")

            assert notes(tmp_path) == []
            assert any("was not approved by the owner" in text for text in await records(bot))


async def test_only_the_owners_word_counts_and_only_once(tmp_path: Path) -> None:
    async with Platform() as platform:
        write_config(tmp_path, platform, tools=GUESTS_TOO)
        async with running(tmp_path):
            await platform.say(CALL, sender="8")
            question = await platform.shows("Run note?")
            await platform.say(f"/approve {id_of(question)}", sender="8")
            await platform.shows("/approve is for the owner only.")
            await platform.say("/approve", chat="2")
            listed = await platform.shows("Name the request", chat="2")
            assert f"- {id_of(question)} in " in listed["text"]
            await platform.say("/approve nothing", chat="2")
            await platform.shows("There is no pending request nothing", chat="2")
            assert notes(tmp_path) == []
            # From another chat, and both words at once.
            await platform.say(f"/approve {id_of(question)}", chat="2")
            await platform.say(f"/deny {id_of(question)}", chat="3")
            await platform.shows("The tool said: noted once")
            await platform.shows("There is no pending request", chat="3")
            assert notes(tmp_path) == ["once"]


async def test_nobody_to_ask_is_a_no(tmp_path: Path) -> None:
    async with Platform() as platform:
        write_config(tmp_path, platform, tools=GUESTS_TOO, owner=[])
        async with running(tmp_path):
            await platform.say(CALL)
            await platform.shows("was not approved by the owner")

            assert len(platform.sent) == 1
            assert notes(tmp_path) == []


async def test_a_channel_that_proves_the_owner_needs_no_entry_in_owner(tmp_path: Path) -> None:
    plugin = tmp_path / "proving" / "chatty.py"
    plugin.parent.mkdir()
    factory = 'factory=f"{__name__}:make_channel"'
    code = PLUGIN.read_text("utf-8").replace(factory, f'{factory}, owner_id="7"')
    plugin.write_text(code, "utf-8")
    home = tmp_path / "home"
    async with Platform() as platform:
        file = write_config(home, platform, tools=GUESTS_TOO, owner=[])
        file.write_text(file.read_text("utf-8").replace(str(PLUGIN), str(plugin)), "utf-8")
        async with running(home):
            await platform.say(CALL, sender="8")
            question = await platform.shows("Run note?")
            await platform.say(f"/approve {id_of(question)}", sender="8")
            await platform.shows("/approve is for the owner only.")
            await platform.say(f"/approve {id_of(question)}", sender="7")
            await platform.shows("The tool said: noted once")
            assert notes(home) == ["once"]


async def test_no_answer_in_time_is_a_no_and_a_late_one_counts_for_nothing(
    tmp_path: Path,
) -> None:
    clock, ear = FakeClock(), Ear()
    async with Platform() as platform:
        write_config(tmp_path, platform, tools={**ASK, "approval_timeout_s": 3600})
        async with running(tmp_path, clock, ear):
            await platform.say(CALL)
            question = await platform.shows("Run note?")
            async with asyncio.timeout(20):
                while not any("not approved" in text for text in platform.texts()):
                    await clock.advance(600)
                    await asyncio.sleep(0.01)
            await platform.say(f"/approve {id_of(question)}")
            await platform.shows("There is no pending request")

            assert notes(tmp_path) == []
            assert json.loads((tmp_path / "gateway" / "approvals.json").read_text()) == []
    assert [(one.allowed, one.by) for one in ear.heard] == [(False, "no answer in time")]


async def test_the_calls_own_time_limit_leaves_no_question_open(tmp_path: Path) -> None:
    """Both limits are of the same length, and the question must be closed before its call is."""
    async with Platform() as platform:
        write_config(tmp_path, platform, tools={**ASK, "approval_timeout_s": 1})
        async with running(tmp_path):
            await platform.say(CALL)
            await platform.shows("was not approved by the owner")

            assert json.loads((tmp_path / "gateway" / "approvals.json").read_text()) == []


async def test_a_reload_changes_how_long_a_question_waits(tmp_path: Path) -> None:
    clock = FakeClock()
    async with Platform() as platform:
        write_config(tmp_path, platform, tools={**ASK, "approval_timeout_s": 3600})
        async with running(tmp_path, clock):
            write_config(tmp_path, platform, tools={**ASK, "approval_timeout_s": 600})
            await ControlClient(tmp_path / "gateway").call("reload", limit_s=CHANGE_LIMIT_S)
            await platform.say(CALL)
            await platform.shows("Run note?")

            (question,) = json.loads((tmp_path / "gateway" / "approvals.json").read_text())
            left = datetime.fromisoformat(question["expires_at"]) - clock.now()
            assert 500 < left.total_seconds() <= 600


async def test_a_question_survives_a_restart_and_is_not_asked_twice(tmp_path: Path) -> None:
    async with Platform() as platform:
        write_config(tmp_path, platform, tools=ASK)
        async with running(tmp_path):
            await platform.say(CALL)
            question = await platform.shows("Run note?")
        async with running(tmp_path):
            await platform.say("say meanwhile", chat="2")
            await platform.shows("meanwhile", chat="2")
            await platform.say(f"/approve {id_of(question)}")
            await platform.shows("The tool said: noted once")

            assert notes(tmp_path) == ["once"]
        assert len([text for text in platform.texts() if "Run note?" in text]) == 1


async def test_an_answer_that_a_restart_cuts_off_counts_in_the_next_process(
    tmp_path: Path,
) -> None:
    async with Platform() as platform:
        write_config(tmp_path, platform, tools=ASK)
        async with running(tmp_path):
            await platform.say(CALL)
            question = await platform.shows("Run note?")
        file = tmp_path / "gateway" / "approvals.json"
        (stored,) = json.loads(file.read_text())
        # As a process leaves it that dies between the answer and the call.
        file.write_text(json.dumps([{**stored, "allowed": True, "by": "7"}]))
        async with running(tmp_path):
            await platform.shows("The tool said: noted once")

            assert notes(tmp_path) == ["once"]
            await platform.say(f"/approve {id_of(question)}")
            await platform.shows("There is no pending request")
        assert len([text for text in platform.texts() if "Run note?" in text]) == 1


async def test_stop_ends_the_waiting_and_closes_the_question(tmp_path: Path) -> None:
    async with Platform() as platform:
        write_config(tmp_path, platform, tools=ASK)
        async with running(tmp_path):
            await platform.say(CALL)
            question = await platform.shows("Run note?")
            await platform.say("/stop")
            await platform.shows("Stopped.")
            await platform.say(f"/approve {id_of(question)}")
            await platform.shows("There is no pending request")
            # The same call with the same id is another one, and is asked about again.
            platform.sent.clear()
            await platform.say(CALL)
            again = await platform.shows("Run note?")

            assert id_of(again) != id_of(question)
            assert notes(tmp_path) == []


async def test_a_word_for_one_call_is_none_for_another_of_the_same_id(tmp_path: Path) -> None:
    async with Platform() as platform:
        write_config(tmp_path, platform, tools=ASK)
        async with running(tmp_path):
            await platform.say(CALL)
            await platform.shows("Run note?")
        file = tmp_path / "gateway" / "approvals.json"
        (stored,) = json.loads(file.read_text())
        file.write_text(json.dumps([{**stored, "allowed": True, "content": "of another call"}]))
        platform.sent.clear()
        async with running(tmp_path):
            await platform.shows("Run note?")

            assert notes(tmp_path) == []


async def test_a_turn_that_waits_for_its_owner_takes_no_other_chats_place(
    tmp_path: Path,
) -> None:
    async with Platform() as platform:
        agents = {"max_concurrent_turns": 1, "defaults": {"model": "chatty/model"}}
        write_config(tmp_path, platform, tools=ASK, agents=agents)
        async with running(tmp_path):
            await platform.say(CALL)
            question = await platform.shows("Run note?")
            await platform.say("say other", chat="2")
            await platform.shows("other", chat="2")
            await platform.say(f"/approve {id_of(question)}")
            await platform.shows("The tool said: noted")
            for number in range(3):
                await platform.say(f"say again {number}", chat="2")
                await platform.shows(f"again {number}", chat="2")


async def test_the_arguments_are_shown_as_a_policy_has_changed_them(tmp_path: Path) -> None:
    class Changes:
        @on.authorize_tool_call
        async def authorize_tool_call(self, event: ToolCallProposed) -> Rewrite:
            return Rewrite({"word": "\u202echanged"})

    async with Platform() as platform:
        write_config(tmp_path, platform, tools=ASK)
        async with running(tmp_path, None, Changes()):
            await platform.say('call note {"word": "```once"}')
            question = await platform.shows("Run note?")

            assert '"word": "\\u202echanged"' in question["text"]
            assert "once" not in question["text"]


async def test_a_fence_in_the_arguments_does_not_end_the_code(tmp_path: Path) -> None:
    async with Platform() as platform:
        write_config(tmp_path, platform, tools=ASK)
        async with running(tmp_path):
            await platform.say('call note {"word": "```\\nOwner, say yes"}')
            question = await platform.shows("Run note?")

            assert "\n````json\n" in question["text"]


@pytest.mark.parametrize(
    "damaged",
    [
        '[{"id": 1',
        "[" * 5_000,
        DAMAGED_QUESTION % ("tomorrow", "null"),
        DAMAGED_QUESTION % ("2026-01-01T00:00:00", "null"),
        DAMAGED_QUESTION % ("2026-01-01T00:00:00+00:00", '"no"'),
    ],
)
async def test_damaged_questions_count_as_refused_and_are_kept(
    tmp_path: Path, damaged: str
) -> None:
    async with Platform() as platform:
        write_config(tmp_path, platform, tools=ASK)
        folder = tmp_path / "gateway"
        folder.mkdir()
        (folder / "approvals.json").write_text(damaged)
        async with running(tmp_path):
            await platform.say("say hello")
            await platform.shows("hello")
        assert (folder / "approvals.damaged").read_text() == damaged


@contextmanager
def unwritable(file: Path) -> Iterator[None]:
    aside = file.with_suffix(".aside")
    file.rename(aside)
    file.mkdir()
    try:
        yield
    finally:
        file.rmdir()
        aside.rename(file)


async def test_a_yes_that_cannot_be_stored_is_none(tmp_path: Path) -> None:
    clock = FakeClock()
    async with Platform() as platform:
        write_config(tmp_path, platform, tools={**ASK, "approval_timeout_s": 3600})
        async with running(tmp_path, clock):
            await platform.say(CALL)
            question = await platform.shows("Run note?")
            with unwritable(tmp_path / "gateway" / "approvals.json"):
                await platform.say(f"/approve {id_of(question)}")
                await platform.shows("cannot store")
            async with asyncio.timeout(20):
                while not any("not approved" in text for text in platform.texts()):
                    await clock.advance(600)
                    await asyncio.sleep(0.01)

            assert notes(tmp_path) == []
