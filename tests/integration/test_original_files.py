"""Workspaces that nanobot-ai wrote itself: their sessions load and continue."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.integration.conftest import agent
from tests.scripted_provider import ScriptedPlugin

pytestmark = pytest.mark.anyio

ORIGINALS = Path(__file__).parents[1] / "originals"
VERSIONS = sorted(path.name for path in ORIGINALS.iterdir() if path.is_dir())
SAID = [
    "My name is Ada and I live in Bonn.",
    "Write the garage code 4711 into notes.md.",
    "What is the garage code?",
    "I prefer green tea over coffee.",
]


@pytest.fixture(params=VERSIONS)
def home(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    shutil.copytree(ORIGINALS / request.param, tmp_path, dirs_exist_ok=True)
    return tmp_path


async def test_a_session_continues_with_its_calls_and_results(home: Path) -> None:
    script = ScriptedPlugin("Ada", "Bonn")
    for question in ("Who am I?", "And where do I live?"):
        bot = agent(home, script)
        await bot.plugins.register(script, "scripted")
        async with bot:
            await bot.run(question, session="cli:kept")
    messages = script.provider.requests[1].messages
    asked = [message.text for message in messages if message.role == "user"]
    assert [
        text.splitlines()[-1][: len(said)] for text, said in zip(asked[:4], SAID, strict=True)
    ] == SAID
    assert "Who am I?" in asked[4]
    assert "And where do I live?" in asked[5]
    calls = [call for message in messages for call in message.tool_calls]
    assert [(call.name, call.arguments["path"]) for call in calls] == [
        ("write_file", "notes.md"),
        ("read_file", "notes.md"),
    ]
    results = [message for message in messages if message.role == "tool"]
    assert [message.tool_call_id for message in results] == [call.id for call in calls]
    assert "The garage code is 4711." in results[1].text


async def test_its_sessions_are_listed_under_their_keys_and_lose_nothing(home: Path) -> None:
    lines = {
        line
        for path in home.rglob("*.jsonl")
        if path.parent.name != "memory"
        for line in path.read_text().splitlines()
        if "role" in json.loads(line)
    }
    script = ScriptedPlugin("one", "two", "three")
    bot = agent(home, script)
    await bot.plugins.register(script, "scripted")
    async with bot:
        found = {summary.key for summary in await bot.sessions.summaries()}
        assert found == {"cli:direct", "cli:kept", "cli:second"}
        for key in found:
            await bot.run("hello", session=key)
        kept = {path.read_text() for path in (home / "workspace/sessions").glob("*.jsonl")}
    assert not [line for line in lines if not any(line in text for text in kept)]
