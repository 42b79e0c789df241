"""Turns against a model service on the loopback that fails in every way a real one does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import pytest

from nanobot_core import Nanobot
from nanobot_core.config.loading import load_config
from nanobot_core.events import NoticeGiven, ReasoningStreamed, StreamRestarted, TextStreamed
from nanobot_core.plugins.catalogue import Catalogue
from nanobot_core.plugins.index import load_installed
from nanobot_core.testing import OpenAIServer, Reply, ScriptedCall
from nanobot_core.tools import tool
from tests.unit.agent.conftest import HastyClock

try:
    version("nanobot-openai")
except PackageNotFoundError:
    pytest.skip("nanobot-openai is not installed", allow_module_level=True)

pytestmark = pytest.mark.anyio


@tool(read_only=True)
def add(first: int, second: int) -> str:
    """Add."""
    return str(first + second)


@asynccontextmanager
async def serving(
    tmp_path: Path, *replies: Reply, clock: HastyClock | None = None, **overrides: Any
) -> AsyncIterator[tuple[Nanobot, OpenAIServer]]:
    async with OpenAIServer(replies) as server:
        values = {
            "agents.defaults.model": "custom/m",
            "agents.defaults.workspace": str(tmp_path / "workspace"),
            "providers.custom.api_base": server.url,
            "providers.custom.timeout_s": 0.3,
            **{key.replace("__", "."): value for key, value in overrides.items()},
        }
        loaded = load_config(None, environ={}, overrides=values, home=tmp_path)
        installed = [item for item in load_installed(tmp_path / "cache") if item.id == "openai"]
        bot = Nanobot(
            loaded,
            clock=clock or HastyClock(),
            environ={},
            catalogue=Catalogue(installed, loaded.settings.plugins),
        )
        async with asyncio.timeout(20), bot:
            bot.tools.register(add)
            yield bot, server


async def test_an_answer_streams_with_thoughts_set_apart(tmp_path: Path) -> None:
    text = "<think>hm, let me see</think>Hello, world"
    async with serving(tmp_path, Reply(text=text, chunk_chars=3)) as (bot, _):
        events = [event async for event in bot.stream("hi")]
        outcome = events[-1].outcome  # type: ignore[union-attr]  # the last event
    assert outcome.reply == "Hello, world"
    assert "".join(e.text for e in events if isinstance(e, TextStreamed)) == "Hello, world"
    thought = "".join(e.text for e in events if isinstance(e, ReasoningStreamed))
    assert thought == "hm, let me see"
    assert outcome.usage.prompt_tokens == 10


async def test_several_calls_in_one_response_and_over_several_iterations(tmp_path: Path) -> None:
    first = Reply(
        calls=(
            ScriptedCall(name="add", arguments='{"first": 1, "second": 2}', id="a"),
            ScriptedCall(name="add", arguments='{"first": 3, "second": 4}', id="a"),
            ScriptedCall(name="add", arguments='{"first": 5, "second": 6}', id=""),
        )
    )
    second = Reply(calls=(ScriptedCall(name="add", arguments='{"first": "7", "second": 8}'),))
    async with serving(tmp_path, first, second, Reply(text="done")) as (bot, server):
        outcome = await bot.run("add")
    assert (outcome.reply, outcome.iterations) == ("done", 3)
    messages = server.requests[2].body["messages"]
    results = [m for m in messages if m["role"] == "tool"]
    assert [m["content"] for m in results] == ["3", "7", "11", "15"]
    ids = [item["id"] for m in messages for item in m.get("tool_calls", ())]
    assert len(set(ids)) == 4
    assert [m["tool_call_id"] for m in results] == ids


async def test_malformed_arguments_are_mended_or_given_back(tmp_path: Path) -> None:
    calls = Reply(
        calls=(
            ScriptedCall(name="add", arguments="{'first': 1, 'second': 2,}", id="a"),
            ScriptedCall(name="add", arguments="first is one", id="b"),
        )
    )
    async with serving(tmp_path, calls, Reply(text="done")) as (bot, server):
        assert (await bot.run("add")).reply == "done"
    mended, refused = [m["content"] for m in server.requests[1].body["messages"][-2:]]
    assert mended == "3"
    assert "the arguments of add are no JSON object: first is one" in refused


async def test_a_rate_limit_is_waited_for_as_long_as_the_service_asks(tmp_path: Path) -> None:
    clock = HastyClock()
    limited = Reply(status=429, headers={"retry-after": "7"}, body=b'{"error": {"message": "no"}}')
    async with serving(tmp_path, limited, Reply(text="hello"), clock=clock) as (bot, _):
        events = [event async for event in bot.stream("hi")]
        assert events[-1].outcome.reply == "hello"  # type: ignore[union-attr]  # the last event
    assert clock.slept_s == [7]
    assert any(isinstance(e, NoticeGiven) and "again in 7 s" in e.text for e in events)


@pytest.mark.parametrize(
    "fault",
    [
        Reply(status=500, body=b"oops"),
        Reply(status=503, body=b""),
        Reply(text="Hello, wor", chunk_chars=2, stop_after_bytes=900, stop="reset"),
        Reply(text="Hello, wor", chunk_chars=2, stop_after_bytes=900, stop="close"),
        Reply(text="Hello, wor", chunk_chars=2, stop_after_bytes=900, stop="stall"),
        Reply(body=b"<html>garbage</html>", content_type="text/html"),
        Reply(body=b""),
    ],
    ids=["500", "503", "reset", "close", "stall", "garbage", "empty"],
)
async def test_a_fault_of_the_service_is_tried_again(tmp_path: Path, fault: Reply) -> None:
    async with serving(tmp_path, fault, Reply(text="Hello, world")) as (bot, server):
        events = [event async for event in bot.stream("hi")]
        assert events[-1].outcome.reply == "Hello, world"  # type: ignore[union-attr]  # the last event
        assert len(server.requests) == 2
    shown = ""
    for event in events:
        if isinstance(event, StreamRestarted):
            shown = ""
        elif isinstance(event, TextStreamed):
            shown += event.text
    assert shown == "Hello, world"


async def test_a_refused_key_is_told_with_its_remedy_and_not_tried_again(tmp_path: Path) -> None:
    refused = Reply(status=401, body=b'{"error": {"message": "bad key sk-secret"}}')
    async with serving(tmp_path, refused) as (bot, server):
        outcome = await bot.run("hi")
    assert "providers.custom.api_key" in (outcome.error or "")
    assert "sk-secret" not in (outcome.error or "")
    assert len(server.requests) == 1


async def test_a_fallback_model_answers_where_the_first_is_down(tmp_path: Path) -> None:
    down = [Reply(status=503, body=b"")] * 4
    async with serving(
        tmp_path,
        *down,
        Reply(text="from the other"),
        agents__defaults__fallback_models=["custom/other"],
    ) as (bot, server):
        outcome = await bot.run("hi")
    assert (outcome.reply, outcome.model) == ("from the other", "custom/other")
    assert server.requests[-1].body["model"] == "other"


async def test_a_prompt_that_is_too_long_is_summarised_and_sent_again(tmp_path: Path) -> None:
    body = b'{"error": {"code": "context_length_exceeded", "message": "too long"}}'
    replies = [Reply(text=f"answer {number}") for number in range(6)]
    async with serving(
        tmp_path, *replies, Reply(status=400, body=body), Reply(text="notes"), Reply(text="done")
    ) as (bot, server):
        for number in range(6):
            await bot.run(f"question {number}")
        assert (await bot.run("now")).reply == "done"
    sent = server.requests[-1].body["messages"]
    assert sent[1]["content"].endswith("notes")
    assert len(sent) < len(server.requests[6].body["messages"])


async def test_stopping_during_a_model_call_closes_the_connection(tmp_path: Path) -> None:
    silent = Reply(text="Once upon", stop_after_bytes=600, stop="stall")
    async with serving(tmp_path, silent, Reply(text="next"), providers__custom__timeout_s=20) as (
        bot,
        server,
    ):
        stream = bot.stream("hi")
        async for event in stream:
            if isinstance(event, TextStreamed):
                break
        await stream.aclose()  # type: ignore[attr-defined]  # an async generator
        await server.requests[0].disconnected.wait()
        assert (await bot.run("again")).reply == "next"
