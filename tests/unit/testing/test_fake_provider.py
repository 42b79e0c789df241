from __future__ import annotations

import asyncio

import pytest

from nanobot_core import (
    ChatRequest,
    Completed,
    Message,
    RateLimited,
    ReasoningDelta,
    StreamEvent,
    TextDelta,
    ToolCall,
    ToolCallDelta,
    Usage,
)
from nanobot_core.testing import FakeProvider, FakeReply

REQUEST = ChatRequest(messages=(Message(role="user", content="hi"),), model="m")


@pytest.mark.promise(32)
@pytest.mark.anyio
async def test_steps_are_taken_in_order_and_requests_recorded() -> None:
    call = ToolCall("1", "read_file", {"path": "a"})
    provider = FakeProvider("hello", call, RateLimited("fake", "slow down"))

    assert (await provider.chat(REQUEST)).content == "hello"
    second = await provider.chat(REQUEST)
    assert (second.tool_calls, second.finish_reason, second.content) == (
        (call,),
        "tool_calls",
        None,
    )
    with pytest.raises(RateLimited):
        await provider.chat(REQUEST)
    with pytest.raises(AssertionError, match="request 4 came, but the script has 3 steps"):
        await provider.chat(REQUEST)
    assert provider.requests == [REQUEST] * 4


@pytest.mark.anyio
async def test_a_reply_streams_in_its_pieces() -> None:
    call = ToolCall("1", "act", {})
    reply = FakeReply(
        pieces=("a", "b"), reasoning="why", tool_calls=(call,), usage=Usage(prompt_tokens=3)
    )

    events = [event async for event in FakeProvider(reply).chat_stream(REQUEST)]

    assert events[:-1] == [
        ReasoningDelta("why"), TextDelta("a"), TextDelta("b"), ToolCallDelta(0, "act")
    ]  # fmt: skip
    assert isinstance(events[-1], Completed)
    response = events[-1].response
    assert (response.content, response.reasoning) == ("ab", "why")
    assert (response.tool_calls, response.usage.prompt_tokens) == ((call,), 3)


@pytest.mark.anyio
async def test_a_stream_can_break_after_some_text() -> None:
    provider = FakeProvider(FakeReply(pieces=("a",), error=RateLimited("fake", "gone")))
    seen: list[StreamEvent] = []

    async def listen() -> None:
        async for event in provider.chat_stream(REQUEST):
            seen.append(event)  # noqa: PERF401 - kept when the stream breaks

    with pytest.raises(RateLimited):
        await listen()

    assert seen == [TextDelta("a")]


@pytest.mark.anyio
async def test_a_gate_holds_an_answer_back() -> None:
    gate = asyncio.Event()
    provider = FakeProvider(FakeReply(pieces=("a",), gate=gate))

    async with asyncio.timeout(5), asyncio.TaskGroup() as group:
        call = group.create_task(provider.chat(REQUEST))
        await asyncio.sleep(0)
        assert provider.requests == [REQUEST]
        assert not call.done()
        gate.set()

    assert call.result().content == "a"


@pytest.mark.anyio
async def test_closing_is_recorded() -> None:
    provider = FakeProvider()

    await provider.aclose()

    assert provider.closed
