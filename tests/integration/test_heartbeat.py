"""The heartbeat in a gateway, from the checklist to the chat of the owner."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from nanobot_core import ChatRequest, Nanobot, ToolCall
from nanobot_core.testing import FakeReply
from tests.gateways import LIMIT_S, Platform, running, write_config
from tests.scripted_provider import ScriptedPlugin

pytest.importorskip("nanobot_heartbeat")
pytest.importorskip("nanobot_files")
pytestmark = pytest.mark.anyio
RUN = {"action": "run", "tasks": "Look at notes.txt."}


def final(**fields: object) -> FakeReply:
    call = ToolCall("1", "final_answer", json.loads(json.dumps(fields)))
    return FakeReply(tool_calls=(call,))


def text_of(request: ChatRequest) -> str:
    return "\n".join(message.text for message in request.messages)


async def beat(bot: Nanobot) -> str:
    """Beat, wait until its work has ended, and return what is shown of it."""
    return f"{(await bot.run('/heartbeat trigger')).reply} {await result_of_beat(bot)}"


async def result_of_beat(bot: Nanobot) -> str:
    async with asyncio.timeout(LIMIT_S):
        while True:
            state = json.loads((await bot.run("/heartbeat status --json")).reply or "")
            if not state["beats"] or state["beats"][-1]["result"]:
                return str(state["beats"][-1]["result"]) if state["beats"] else ""
            await asyncio.sleep(0.01)


async def test_only_a_notable_result_reaches_the_owner(tmp_path: Path) -> None:
    home = tmp_path / "home"
    script = ScriptedPlugin(
        *("Hello.", final(**RUN), ToolCall("1", "read_file", {"path": "notes.txt"})),
        final(worth_a_message=True, text="The garage code is 4711 now."),
        *(final(**RUN), final(worth_a_message=False, text="Nothing new.")),
        *(final(**RUN), "Nothing new.", "Nothing new at all."),
        *("It is 4711.", final(**RUN), FakeReply(gate=asyncio.Event())),
    )
    requests = script.provider.requests
    defaults = {"model": script.model, "workspace": str(home / "workspace")}
    async with Platform() as platform:
        plugins = ["heartbeat", "files"]
        write_config(home, platform, plugins=plugins, agents={"defaults": defaults})
        (home / "workspace").mkdir()
        async with running(home, None, script) as bot:
            assert "no open task" in await beat(bot)
            (home / "workspace" / "HEARTBEAT.md").write_text("- [ ] look at notes.txt\n")
            (home / "workspace" / "notes.txt").write_text("garage code: 4711")
            assert "chat for the answer is unknown" in await beat(bot)
            await platform.say("hello")
            await platform.shows("Hello.")

            assert "The garage code is 4711 now." in await beat(bot)
            await platform.shows("The garage code is 4711 now.")
            assert "worth a message" in await beat(bot)
            assert "failed" in await beat(bot)
            await platform.say("what is the code?")
            await platform.shows("It is 4711.")

            await bot.run("/heartbeat trigger")
            await platform.say("/stop")
            assert "cancelled" in await result_of_beat(bot)

    shown = ["Hello.", "The garage code is 4711 now.", "It is 4711.", "Stopped."]
    assert platform.texts() == shown
    decision, work = map(text_of, requests[1:3])
    assert "look at notes.txt" in decision
    assert "hello" not in decision + work, "the history of the chat is left out"
    assert "write_file" not in [tool.name for tool in requests[2].tools]
    question = next(filter(lambda text: "what is the code?" in text, map(text_of, requests)))
    assert "The garage code is 4711 now." in question
    assert "garage code" not in text_of(requests[5]), "a session begins empty"
