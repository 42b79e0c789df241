"""Turns against a model service on the loopback that fails in every way a real one does."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import pytest

from nanobot_core import Nanobot, ToolResult
from nanobot_core.config.loading import load_config
from nanobot_core.events import NoticeGiven, StreamRestarted, TextStreamed, TurnOutcome
from nanobot_core.plugins.catalogue import Catalogue
from nanobot_core.plugins.index import load_installed
from nanobot_core.testing import OpenAIServer, Reply, ScriptedCall
from nanobot_core.tools import tool
from tests.unit.agent.conftest import PIXEL, HastyClock

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
        outcome = events[-1]
        assert isinstance(outcome, TurnOutcome)
    assert outcome.reply == "Hello, world"
    assert "".join(e.text for e in events if isinstance(e, TextStreamed)) == "Hello, world"
    thought = "".join(e.reasoning for e in events if isinstance(e, TextStreamed))
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
    assert "the arguments of add are not a JSON object: first is one" in refused


async def test_a_rate_limit_is_waited_for_as_long_as_the_service_asks(tmp_path: Path) -> None:
    clock = HastyClock()
    limited = Reply(status=429, headers={"retry-after": "7"}, body=b'{"error": {"message": "no"}}')
    async with serving(tmp_path, limited, Reply(text="hello"), clock=clock) as (bot, _):
        events = [event async for event in bot.stream("hi")]
        assert isinstance(events[-1], TurnOutcome)
        assert events[-1].reply == "hello"
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
        assert isinstance(events[-1], TurnOutcome)
        assert events[-1].reply == "Hello, world"
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


# --- a service or a user that sends what it should not -------------------------------------------

HALF, PAIR = "\ud83d", "\ud83d\ude00"


def _texts(server: OpenAIServer) -> list[str]:
    return [str(message["content"]) for message in server.requests[-1].body["messages"]]


async def test_half_a_character_of_anyone_does_not_break_the_session(tmp_path: Path) -> None:
    """Guards against a session that fails with each message until it is begun again."""
    calls = (ScriptedCall(name="echo", arguments=json.dumps({"text": f"{PAIR} {HALF}"})),)
    replies = (
        Reply(text=f"so {HALF}", reasoning=HALF, calls=calls),
        # One character of the script is one delta: the pair arrives in two.
        Reply(text=f"done {PAIR}{HALF}", chunk_chars=1),
        Reply(text="still here"),
    )
    async with serving(tmp_path, *replies) as (bot, server):
        bot.tools.register(echo)
        events = [event async for event in bot.stream(f"hi {HALF}{PAIR}")]
        assert isinstance(events[-1], TurnOutcome)
        assert events[-1].reply == "done 😀\ufffd"
        shown = [event.text for event in events if isinstance(event, TextStreamed)]
        assert "".join(shown).endswith("done 😀\ufffd")
        assert any("hi \ufffd😀" in text for text in _texts(server))
        assert _texts(server)[-1] == "got 😀 \ufffd and \ufffd"
        assert (await bot.run("and now?")).reply == "still here"
    assert "".join(_texts(server)).encode()


async def test_a_stored_session_with_half_a_character_goes_on(tmp_path: Path) -> None:
    async with serving(tmp_path, Reply(text="hello")) as (bot, _):
        await bot.run("hi")
    (file,) = (tmp_path / "workspace").rglob("*.jsonl")
    with file.open("a", encoding="utf-8") as lines:
        for role in ("user", "assistant"):
            lines.write(json.dumps({"role": role, "content": f"{HALF}{role}"}) + "\n")
    async with serving(tmp_path, Reply(text="still here")) as (bot, server):
        assert (await bot.run("and now?")).reply == "still here"
    assert "\ufffdassistant" in _texts(server)


@pytest.mark.parametrize(
    "piece",
    [
        b": still here\n\n",
        b'data: {"choices": [{"delta": {}}]}\n\n',
        b'data: {"choices": [{"delta": {"content": "x"}}]}\n\n',
        b" ",
    ],
    ids=["comments", "empty deltas", "characters", "white space"],
)
async def test_a_service_that_answers_without_end_is_left(tmp_path: Path, piece: bytes) -> None:
    """Guards against a turn that is kept for ever by a little now and then."""
    kind = "application/json" if piece == b" " else "text/event-stream"
    drip = Reply(body=piece, body_repeat=10_000, write_bytes=99, pause_s=0.01, content_type=kind)
    async with serving(tmp_path, drip, providers__custom__timeout_s=0.2) as (bot, server):
        outcome = await bot.run("hi")
        await server.wait_for_connections(0)
    assert "its answer was not complete within 2 seconds" in (outcome.error or "")
    assert len(server.requests) == 1


async def test_nothing_of_an_answer_with_too_many_calls_is_run(tmp_path: Path) -> None:
    calls = tuple(
        ScriptedCall(name="add", arguments='{"first": 1, "second": 2}', id=f"c{number}")
        for number in range(3_000)
    )
    async with serving(tmp_path, Reply(calls=calls), Reply(text="hello")) as (bot, server):
        outcome = await bot.run("add")
        assert "asks for more than 128 tool calls" in (outcome.error or "")
        assert outcome.tools_used == ()
        assert (await bot.run("and now?")).reply == "hello"
    assert len(server.requests) == 2


async def test_an_image_that_the_service_refuses_is_left_out(tmp_path: Path) -> None:
    picture = tmp_path / "cat.png"
    picture.write_bytes(PIXEL)
    refused = Reply(status=400, body=b'{"error": {"message": "unknown variant image_url"}}')
    async with serving(tmp_path, refused, Reply(text="A cat?")) as (bot, server):
        outcome = await bot.run("what is it?", media=[str(picture)])
    assert outcome.reply == "A cat?"
    first, second = [request.body["messages"][-1]["content"] for request in server.requests]
    assert [part["type"] for part in first] == ["image_url", "text"]
    assert second.startswith(f"[image {picture} left out")


async def test_a_failed_call_reaches_the_model_as_an_error(tmp_path: Path) -> None:
    calls = Reply(calls=(ScriptedCall(name="fail"),))
    async with serving(tmp_path, calls, Reply(text="I see")) as (bot, server):
        bot.tools.register(fail)
        await bot.run("try")
    assert _texts(server)[-1] == "Error: nothing there"


async def test_an_answer_that_mentions_a_tag_of_thinking_is_whole(tmp_path: Path) -> None:
    text = "Models begin with `<think>`, such as\n```\n<think>\nhm\n</think>\n```\nand go on."
    async with serving(tmp_path, Reply(text=text, chunk_chars=3)) as (bot, _):
        assert (await bot.run("how do models think?")).reply == text


@tool(read_only=True)
def echo(text: str) -> str:
    """Echo."""
    return f"got {text} and {HALF}"


@tool(read_only=True)
def fail() -> ToolResult:
    """Fail."""
    return ToolResult("nothing there", is_error=True)
