"""Model calls: retried, passed on, contained; what streamed in vain is declared void."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Iterator

import pytest

from nanobot_core import (
    MAX_ARGUMENT_CHARS,
    MAX_TOOL_CALLS,
    AnswerTooLong,
    AuthenticationFailed,
    BadRequest,
    ChatRequest,
    ImageBlock,
    LLMProvider,
    LLMResponse,
    Message,
    ModelRequested,
    NoProvider,
    Overloaded,
    PluginError,
    ProviderProtocolError,
    ProviderTimeout,
    RateLimited,
    ReasoningDelta,
    StreamEnded,
    StreamEvent,
    TextBlock,
    TextDelta,
    TextStreamed,
    ToolCall,
    on,
)
from nanobot_core.agent.attempt import IT_WAS_THINKING
from nanobot_core.contracts.provider import Completed
from nanobot_core.errors import ProviderError
from nanobot_core.events import (
    NoticeGiven,
    RunEvent,
    StreamRestarted,
)
from nanobot_core.testing import FakeProvider, FakeReply
from nanobot_core.tools import tool
from tests.unit.agent.conftest import Bench, call

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("error", [RateLimited, Overloaded, ProviderTimeout])
async def test_what_may_pass_is_tried_again_with_growing_waits(
    bench: Bench, error: type[ProviderError]
) -> None:
    result = await bench.run(*[error("p", "not now")] * 3, "hello")
    assert result.content == "hello"
    assert [round(wait_s) for wait_s in bench.clock.slept_s[:1]] == [1]
    assert len(bench.clock.slept_s) == 3
    assert all(
        base * 0.75 <= waited <= base * 1.25
        for base, waited in zip((1, 2, 4), bench.clock.slept_s, strict=True)
    )


async def test_retry_after_is_obeyed_within_a_bound_and_reported_once(bench: Bench) -> None:
    result = await bench.run(
        RateLimited("p", "slow down", retry_after_s=7),
        RateLimited("p", "slow down", retry_after_s=10_000),
        "hello",
    )
    assert result.content == "hello"
    assert bench.clock.slept_s == [7, 60]
    notices = [event.text for event in bench.told(NoticeGiven)]
    assert notices == ["the call to provider 'service-of-main' failed; trying again in 7 s"]


async def test_a_short_wait_is_not_told(bench: Bench) -> None:
    await bench.run(RateLimited("p", "slow down", retry_after_s=0), "hello")
    assert bench.told(NoticeGiven) == []


async def test_a_refused_request_is_raised_at_once(bench: Bench) -> None:
    with pytest.raises(BadRequest):
        await bench.run(
            BadRequest("p", "no"),
            spec=bench.spec(fallback_models=["other"]),
            other=FakeProvider("x"),
        )
    assert len(bench.provider.requests) == 1


async def test_after_four_failures_the_error_is_raised(bench: Bench) -> None:
    with pytest.raises(Overloaded):
        await bench.run(*[Overloaded("p", "down")] * 4)


async def test_the_next_fallback_answers_for_a_model_that_does_not(bench: Bench) -> None:
    other = FakeProvider("from the other")
    spec = bench.spec(fallback_models=["main", "absent", "other"])
    result = await bench.run(*[Overloaded("p", "down")] * 4, spec=spec, other=other)
    assert (result.content, result.model) == ("from the other", "other")
    assert [event.text for event in bench.told(NoticeGiven)][-1] == "main: down; trying other"
    assert other.requests[0].model == "wire-other"


async def test_a_refused_key_passes_the_call_to_another_provider(bench: Bench) -> None:
    main, twin, other = (
        FakeProvider(AuthenticationFailed("p", "wrong key")),
        FakeProvider(),
        FakeProvider("hello"),
    )
    chain = ["main/twin", "other"]
    providers: dict[str, LLMProvider] = {"main": main, "main/twin": twin, "other": other}
    result = await bench.run_with(bench.spec(fallback_models=chain), **providers)
    assert (result.content, twin.requests, bench.clock.slept_s) == ("hello", [], [])
    assert [event.text for event in bench.told(NoticeGiven)] == ["main: wrong key; trying other"]


async def test_a_refused_key_is_raised_without_another_provider(bench: Bench) -> None:
    providers: dict[str, LLMProvider] = {
        "main": FakeProvider(AuthenticationFailed("p", "wrong key")),
        "main/twin": FakeProvider(),
    }
    with pytest.raises(AuthenticationFailed):
        await bench.run_with(bench.spec(fallback_models=["main/twin"]), **providers)


async def test_a_dead_provider_costs_a_turn_its_retries_and_a_notice_only_once(
    bench: Bench,
) -> None:
    main = FakeProvider(*[Overloaded("p", "down")] * 4)
    other = FakeProvider(call("nope"), call("nope", "c2"), "done")
    spec = bench.spec(fallback_models=["other"])
    result = await bench.run_with(spec, main=main, other=other)
    assert (result.content, result.iterations) == ("done", 3)
    assert len(main.requests) == 4
    assert [event.text for event in bench.told(NoticeGiven)] == [
        "the call to provider 'service-of-main' failed; trying again in 2 s",
        "main: down; trying other",
    ]


async def test_a_provider_that_failed_is_left_out_and_then_tried_once(bench: Bench) -> None:
    main = FakeProvider(*[Overloaded("p", "down")] * 5, "back", "still back")
    other = FakeProvider(*["from the other"] * 4)

    async def answer() -> tuple[str, int]:
        result = await bench.run_with(bench.spec(fallback_models=["other"]), main=main, other=other)
        return result.content, len(main.requests)

    assert await answer() == ("from the other", 4)
    assert await answer() == ("from the other", 4)
    await bench.clock.advance(61)
    assert await answer() == ("from the other", 5)
    await bench.clock.advance(61)
    assert await answer() == ("from the other", 5)
    await bench.clock.advance(60)
    assert await answer() == ("back", 6)
    assert await answer() == ("still back", 7)
    assert [event.text for event in bench.told(NoticeGiven)][2] == (
        "main failed a moment ago; trying other"
    )


async def test_a_chain_that_failed_as_a_whole_is_tried_again(bench: Bench) -> None:
    main = FakeProvider(*[Overloaded("p", "down")] * 4, "back")
    other = FakeProvider(*[Overloaded("p", "down")] * 4)
    spec = bench.spec(fallback_models=["other"])
    with pytest.raises(Overloaded):
        await bench.run_with(spec, main=main, other=other)
    assert (await bench.run_with(spec, main=main, other=other)).content == "back"


async def test_a_long_wait_is_left_to_a_fallback(bench: Bench) -> None:
    main = FakeProvider(RateLimited("p", "slow down", retry_after_s=600))
    spec = bench.spec(fallback_models=["other"])
    result = await bench.run_with(spec, main=main, other=FakeProvider("hello"))
    assert (result.content, bench.clock.slept_s) == ("hello", [])
    (cool_down,) = bench.cool_downs.current()
    assert (cool_down.provider, round(cool_down.remaining_s)) == ("service-of-main", 600)


async def test_a_fallback_that_is_not_served_does_not_hide_the_failure(bench: Bench) -> None:
    with pytest.raises(Overloaded):
        await bench.run(
            *[Overloaded("p", "down")] * 4, spec=bench.spec(model="main", fallback_models=["gone"])
        )


async def test_a_model_that_is_not_served_is_told(bench: Bench) -> None:
    with pytest.raises(NoProvider, match="'ghost'"):
        await bench.run(spec=bench.spec(model="ghost", fallback_models=["main"]))


async def test_what_streamed_in_vain_is_declared_void_before_the_next_try(bench: Bench) -> None:
    broken = FakeReply(pieces=("Hal",), error=Overloaded("p", "reset"))
    result = await bench.run(broken, "Hello")
    kinds = [event for event in bench.events if not isinstance(event, NoticeGiven)]
    assert result.content == "Hello"
    assert [type(event).__name__ for event in kinds] == [
        "TextStreamed",
        "StreamRestarted",
        "TextStreamed",
    ]


async def test_it_is_declared_void_before_a_fallback_too(bench: Bench) -> None:
    broken = FakeReply(pieces=("Hal",), error=Overloaded("p", "reset"))
    result = await bench.run(
        *[broken] * 4, spec=bench.spec(fallback_models=["other"]), other=FakeProvider("Hello")
    )
    assert result.content == "Hello"
    assert len(bench.told(StreamRestarted)) == 4


async def test_listeners_get_deltas_in_batches_without_void_ones(bench: Bench) -> None:
    heard: list[str] = []

    class Plugin:
        @on.on_stream
        def note(self, event: TextStreamed) -> None:
            heard.append(event.text + event.reasoning)

        @on.on_stream_end
        def end(self, event: StreamEnded) -> None:
            heard.append("end")

    bench.plug(Plugin())
    broken = FakeReply(pieces=("vo", "id"), error=Overloaded("p", "reset"))
    await bench.run(broken, FakeReply(reasoning="hm", pieces=("a", "b", "c")))
    assert heard == ["abchm", "end"]


async def test_long_streams_are_told_while_they_run(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    from nanobot_core.agent import attempt

    monkeypatch.setattr(attempt, "BATCH_S", 0.0)
    heard: list[str] = []

    class Plugin:
        @on.on_stream
        def note(self, event: TextStreamed) -> None:
            heard.append(event.text)

    bench.plug(Plugin())
    await bench.run(FakeReply(pieces=("a", "b")))
    assert heard == ["a", "b"]


async def test_a_hook_chooses_the_model(bench: Bench) -> None:
    class Plugin:
        @on.choose_model
        def choose(self, event: ModelRequested) -> str | None:
            return "small" if event.iteration == 1 else None

    small = FakeProvider(call("nope"))
    bench.plug(Plugin())
    result = await bench.run("done", small=small)
    assert result.content == "done"
    assert [request.model for request in small.requests] == ["wire-small"]
    assert [request.model for request in bench.provider.requests] == ["wire-main"]


class Odd(LLMProvider):
    """Breaks the contract in one way or another."""

    name = "odd"

    def __init__(self, what: object) -> None:
        self.what = what
        self.closed = asyncio.Event()

    async def chat_stream(self, request: ChatRequest) -> AsyncIterator[StreamEvent]:
        try:
            yield TextDelta("some")
            if isinstance(self.what, BaseException):
                raise self.what
            if self.what is not None:
                yield self.what  # type: ignore[misc]  # rubbish on purpose
            if isinstance(self.what, Completed):
                await asyncio.Event().wait()
        finally:
            self.closed.set()


@pytest.mark.parametrize("what", [KeyError("x"), SystemExit(2), Completed("text")])  # type: ignore[arg-type]  # rubbish on purpose
async def test_a_provider_that_breaks_its_contract_is_named_and_not_tried_again(
    bench: Bench, what: object
) -> None:
    with pytest.raises(PluginError, match="plugin 'models': its provider 'service-of-main' failed"):
        await bench.run_with(main=Odd(what))
    assert bench.clock.slept_s == []


async def test_a_fallback_answers_for_a_provider_that_breaks_its_contract(bench: Bench) -> None:
    spec = bench.spec(fallback_models=["other"])
    result = await bench.run_with(spec, main=Odd(KeyError("x")), other=FakeProvider("fine"))
    assert result.content == "fine"
    assert len(bench.told(StreamRestarted)) == 1


async def test_a_stream_without_an_end_is_tried_again(bench: Bench) -> None:
    with pytest.raises(ProviderProtocolError):
        await bench.run_with(main=Odd(None))
    assert len(bench.clock.slept_s) == 3


async def test_the_stream_is_closed_as_soon_as_the_answer_is_there(bench: Bench) -> None:
    odd = Odd(Completed(LLMResponse(content="some")))
    result = await bench.run_with(main=odd)
    assert result.content == "some"
    assert odd.closed.is_set()


async def test_the_stream_is_closed_when_nobody_can_hear_it(bench: Bench) -> None:
    async def deaf(event: RunEvent) -> None:
        raise OSError("gone")

    odd = Odd(None)
    with pytest.raises(OSError, match="gone"):
        await bench.run_with(bench.spec(on_event=deaf), main=odd)
    assert odd.closed.is_set()


class Iterating(LLMProvider):
    """Gives its events by an iterator that is no generator."""

    name = "iterating"

    def chat_stream(self, request: ChatRequest) -> AsyncIterator[StreamEvent]:
        return self

    def __init__(self) -> None:
        self.events: Iterator[StreamEvent] = iter(
            [TextDelta("hello"), Completed(LLMResponse(content="hello"))]
        )

    def __aiter__(self) -> AsyncIterator[StreamEvent]:
        return self

    async def __anext__(self) -> StreamEvent:
        return next(self.events)


async def test_a_stream_may_be_any_async_iterator(bench: Bench) -> None:
    assert (await bench.run_with(main=Iterating())).content == "hello"


# --- limits of an answer -----------------------------------------------------------------------


class Endless(LLMProvider):
    """Gives one event again and again, and never the end."""

    def __init__(self, event: StreamEvent, longest_call_s: float = 60.0) -> None:
        self.name = "endless"
        self.longest_call_s = longest_call_s
        self.event = event
        self.calls = 0

    async def chat_stream(self, request: ChatRequest) -> AsyncIterator[StreamEvent]:
        self.calls += 1
        while True:
            await asyncio.sleep(0)
            yield self.event


@pytest.mark.parametrize("event", [TextDelta(""), TextDelta("x"), ReasoningDelta("")])
async def test_an_answer_without_end_is_left_after_the_limit_and_not_asked_for_again(
    bench: Bench, event: StreamEvent
) -> None:
    """Guards against streams that keep a turn for ever with a character now and then."""
    endless = Endless(event, longest_call_s=0.05)
    with pytest.raises(AnswerTooLong, match=r"not complete within 0\.05 seconds"):
        await bench.run_with(main=endless)
    assert endless.calls == 1


async def test_a_call_that_is_answered_whole_has_the_same_limit(bench: Bench) -> None:
    with pytest.raises(AnswerTooLong):
        await bench.run_with(
            bench.spec(stream=False), main=Endless(TextDelta(""), longest_call_s=0.05)
        )


async def test_a_timeout_within_the_providers_plugin_is_the_plugins_fault(bench: Bench) -> None:
    class Hasty(FakeProvider):
        async def chat_stream(self, request: ChatRequest) -> AsyncIterator[StreamEvent]:
            async with asyncio.timeout(0):
                await asyncio.sleep(1)
            yield TextDelta("never")

    with pytest.raises(PluginError, match="TimeoutError"):
        await bench.run_with(main=Hasty())


@pytest.mark.parametrize("kind", [TextDelta, ReasoningDelta])
async def test_a_stream_is_left_when_its_text_is_too_long(
    bench: Bench, kind: type[TextDelta | ReasoningDelta]
) -> None:
    endless = Endless(kind("x" * 100_000))
    with pytest.raises(AnswerTooLong, match="longer than 4,000,000 characters"):
        await bench.run_with(main=endless)


@pytest.mark.parametrize(
    "reply",
    [
        FakeReply(tool_calls=tuple(call("add", f"c{n}") for n in range(MAX_TOOL_CALLS + 1))),
        FakeReply(tool_calls=(call("add", text="x" * MAX_ARGUMENT_CHARS),)),
        FakeReply(tool_calls=(ToolCall("c", "add", {}, "x" * (MAX_ARGUMENT_CHARS + 1)),)),
        FakeReply(tool_calls=(call("add", many=[0] * MAX_ARGUMENT_CHARS),)),
    ],
    ids=["calls", "text", "unparsed", "values"],
)
async def test_nothing_of_an_answer_that_asks_for_too_much_is_run(
    bench: Bench, reply: FakeReply
) -> None:
    ran: list[str] = []

    @tool()
    def add(text: str = "") -> str:
        """Add."""
        ran.append(text)
        return "done"

    bench.offer(add)
    with pytest.raises(AnswerTooLong):
        await bench.run(reply)
    assert ran == []
    assert bench.recorded == []


@pytest.mark.parametrize(
    "reply",
    [
        FakeReply(tool_calls=(call("add", much=math.inf),)),
        FakeReply(pieces=("hello",), provider_blocks=({"score": [math.nan]},)),
    ],
    ids=["call", "block"],
)
async def test_an_answer_with_a_number_that_json_lacks_is_refused(
    bench: Bench, reply: FakeReply
) -> None:
    """Guards against a session in which nothing can be stored."""
    with pytest.raises(ProviderProtocolError, match="NaN or an infinite number"):
        await bench.run(*[reply] * 10)


async def test_as_many_calls_as_may_be_are_run(bench: Bench) -> None:
    calls = tuple(call("nothing", f"c{n}", n=n) for n in range(MAX_TOOL_CALLS))
    result = await bench.run(FakeReply(tool_calls=calls), "done")
    assert result.content == "done"
    assert len(bench.results()) == MAX_TOOL_CALLS


async def test_a_fallback_answers_for_an_answer_that_is_too_long(bench: Bench) -> None:
    result = await bench.run_with(
        bench.spec(fallback_models=["other"]),
        main=Endless(TextDelta(""), longest_call_s=0.05),
        other=FakeProvider("short"),
    )
    assert (result.content, result.model) == ("short", "other")


async def test_what_the_service_says_of_trying_again_counts_more_than_the_kind(
    bench: Bench,
) -> None:
    with pytest.raises(Overloaded):
        await bench.run(Overloaded("p", "down", retryable=False), "hello")
    assert bench.clock.slept_s == []
    result = await bench.run(BadRequest("p", "conflict", retryable=True), "hello")
    assert result.content == "hello"


# --- images ------------------------------------------------------------------------------------

PICTURE = Message(
    role="user", content=(ImageBlock("image/png", "QUJD", "cat.png"), TextBlock("what is it?"))
)


async def test_an_image_that_the_model_refuses_is_told_of_in_words(bench: Bench) -> None:
    bench.offer(look)
    result = await bench.run(
        BadRequest("p", "no images"), call("look"), "A cat?", spec=bench.spec(PICTURE)
    )
    assert result.content == "A cat?"
    sent = [request.messages[1].content for request in bench.provider.requests]
    words = (
        TextBlock("[image cat.png left out: the model does not accept it]"),
        TextBlock("what is it?"),
    )
    assert sent == [PICTURE.content, words, words]
    assert [event.text for event in bench.told(NoticeGiven)] == [
        "main refused the images; it answers without them"
    ]


async def test_a_request_that_is_refused_without_its_images_too_fails(bench: Bench) -> None:
    with pytest.raises(BadRequest, match="second"):
        await bench.run(
            BadRequest("p", "first"), BadRequest("p", "second"), spec=bench.spec(PICTURE)
        )
    assert bench.told(NoticeGiven) == []


async def test_a_request_without_images_is_made_once(bench: Bench) -> None:
    with pytest.raises(BadRequest):
        await bench.run(BadRequest("p", "no"), "never")


@tool(read_only=True)
def look() -> str:
    """Look."""
    return "seen"


# --- half characters and thinking --------------------------------------------------------------


async def test_a_character_that_is_split_between_deltas_is_joined(bench: Bench) -> None:
    result = await bench.run(
        FakeReply(pieces=("a\ud83d", "\ude00b", "\udfff", "c\ud83d"), reasoning="\ud83d")
    )
    assert result.content == bench.streamed == "a😀b\ufffdc\ufffd"
    thought = "".join(event.reasoning for event in bench.told(TextStreamed))
    assert thought == result.messages[-1].reasoning == "\ufffd"


async def test_thinking_that_is_known_late_is_taken_back(bench: Bench) -> None:
    result = await bench.run(FakeReply(pieces=("hm, so it is\n", "</think>", "\n\nfour")))
    assert (result.content, result.messages[-1].reasoning) == ("four", "hm, so it is")
    position = bench.events.index(StreamRestarted(reason=IT_WAS_THINKING))
    shown = [event.text for event in bench.events[position:] if isinstance(event, TextStreamed)]
    assert "".join(shown).strip() == "four"


async def test_an_answer_that_mentions_a_tag_is_streamed_and_kept_whole(bench: Bench) -> None:
    pieces = ("Write `<thi", "nk>` first:\n```\n<think>\n", "```\nThat is all.")
    result = await bench.run(FakeReply(pieces=pieces))
    assert result.content == bench.streamed == "".join(pieces)
