"""The loop: answers, cuts, limits, and what the user and the history get of them."""

from __future__ import annotations

import pytest

from nanobot_core import (
    BudgetExceeded,
    ContentReady,
    HookError,
    IterationFinished,
    IterationStarted,
    LLMResponse,
    Message,
    ModelCallRequested,
    RateLimited,
    ToolCall,
    Usage,
    UsageRecorded,
    on,
)
from nanobot_core.agent.loop import CONTINUE, CUT_CALL, CUT_TOO_OFTEN, NO_ANSWER, STUCK
from nanobot_core.events import ProgressMade, TextStreamed
from nanobot_core.testing import FakeReply
from nanobot_core.tools import tool
from tests.unit.agent.conftest import Bench, Next, call

pytestmark = pytest.mark.anyio


@tool(read_only=True)
def add(first: int, second: int) -> str:
    """Add two numbers."""
    return str(first + second)


async def test_an_answer_is_streamed_and_returned(bench: Bench) -> None:
    usage = Usage(prompt_tokens=7, completion_tokens=2)
    result = await bench.run(FakeReply(pieces=("Hel", "lo"), usage=usage))
    assert (result.content, result.stop_reason, result.iterations) == ("Hello", "completed", 1)
    assert bench.streamed == "Hello"
    assert result.usage == usage
    assert result.model == "main"
    assert [message.content for message in result.messages] == ["Hello"]


async def test_without_streaming_nothing_is_streamed(bench: Bench) -> None:
    result = await bench.run("Hello", spec=bench.spec(stream=False))
    assert result.content == "Hello"
    assert bench.events == []


async def test_tools_run_and_their_results_go_back(bench: Bench) -> None:
    bench.offer(add)
    steps = (FakeReply(pieces=("Let me see.",), tool_calls=(call("add", first="1", second=2),)),)
    result = await bench.run(*steps, "It is 3.")
    assert result.content == "It is 3."
    assert result.tools_used == ("add",)
    assert [message.role for message in result.messages] == ["assistant", "tool", "assistant"]
    sent = bench.provider.requests[1].messages
    assert [message.text for message in sent] == ["system", "question", "Let me see.", "3"]
    assert sent[3].origin == "kit@1.0"
    assert [names for _, names in bench.recorded] == [("add",), ()]
    assert [event.text for event in bench.told(ProgressMade)] == ["Let me see."]


async def test_thoughts_split_over_deltas_reach_neither_events_nor_reply(bench: Bench) -> None:
    pieces = ("<th", "ink>sec", "ret</thi", "nk>", "ans", "wer")
    result = await bench.run(FakeReply(pieces=pieces))
    assert result.content == "answer"
    assert bench.streamed == "answer"
    assert "".join(event.reasoning for event in bench.told(TextStreamed)) == "secret"
    assert result.messages[-1].reasoning == "secret"


async def test_a_thought_that_is_never_closed_is_no_answer(bench: Bench) -> None:
    result = await bench.run("<think>hm, hm", "answer")
    assert result.content == "answer"
    assert bench.streamed == "answer"


async def test_an_empty_answer_is_asked_for_once_more_and_then_told(bench: Bench) -> None:
    result = await bench.run("", " ")
    assert (result.content, result.stop_reason) == (NO_ANSWER, "failed")
    assert len(bench.provider.requests) == 2


async def test_an_empty_answer_after_tools_is_asked_for_once_more_again(bench: Bench) -> None:
    bench.offer(add)
    result = await bench.run("", call("add", first=1, second=2), "", "three")
    assert result.content == "three"


async def test_a_cut_answer_is_continued_and_stored_whole(bench: Bench) -> None:
    cut = FakeReply(pieces=("one, ",), finish_reason="length")
    result = await bench.run(cut, "two")
    assert result.content == "one, two"
    assert [message.content for message in result.messages] == ["one, two"]
    assert [m.text for m in bench.provider.requests[1].messages[-2:]] == ["one, ", CONTINUE]


async def test_an_answer_that_is_cut_again_and_again_ends_at_the_token_limit(bench: Bench) -> None:
    cut = FakeReply(pieces=("x",), finish_reason="length")
    result = await bench.run(cut, cut, cut, cut)
    assert (result.content, result.stop_reason) == ("xxxx", "token_limit")


async def test_tool_calls_after_a_cut_answer_keep_its_beginning(bench: Bench) -> None:
    bench.offer(add)
    cut = FakeReply(pieces=("I will ",), finish_reason="length")
    calls = FakeReply(pieces=("add.",), tool_calls=(call("add", first=1, second=2),))
    await bench.run(cut, calls, "3")
    assert bench.recorded[0][0].content == "I will add."
    sent = [message.text for message in bench.provider.requests[2].messages]
    assert sent == ["system", "question", "I will add.", "3"]


async def test_a_cut_tool_call_is_not_run(bench: Bench) -> None:
    bench.offer(add)
    cut = FakeReply(
        pieces=("Adding.",), tool_calls=(call("add", first=1, second=2),), finish_reason="length"
    )
    result = await bench.run(cut, "done")
    assert result.content == "done"
    assert bench.recorded == []
    sent = bench.provider.requests[1].messages[-2:]
    assert [(message.text, message.tool_calls) for message in sent] == [
        ("Adding.", ()),
        (CUT_CALL, ()),
    ]


async def test_tool_calls_that_are_always_cut_end_the_run_with_a_sentence(bench: Bench) -> None:
    cut = FakeReply(tool_calls=(call("add"),), finish_reason="length")
    result = await bench.run(cut, cut, cut, cut)
    assert (result.content, result.stop_reason) == (CUT_TOO_OFTEN, "failed")


async def test_at_the_iteration_limit_the_model_sums_up_without_tools(bench: Bench) -> None:
    bench.offer(add)
    step = call("add", first=1, second=2)
    result = await bench.run(step, step, "I added.", spec=bench.spec(max_iterations=2))
    assert (result.content, result.stop_reason) == ("I added.", "iteration_limit")
    assert result.iterations == 2
    assert bench.provider.requests[-1].tools == ()


@pytest.mark.parametrize("last", ["", "  ", RateLimited("p", "slow down")])
async def test_a_summary_that_fails_becomes_a_sentence_with_the_number(
    bench: Bench, last: str | RateLimited
) -> None:
    bench.offer(add)
    steps = (call("add", first=1, second=2), *[last] * 4)
    result = await bench.run(*steps, spec=bench.spec(max_iterations=1))
    assert result.content == "I stopped after 1 steps without finishing the task."
    assert result.stop_reason == "iteration_limit"


async def test_repetition_is_refused_and_then_ends_the_run(bench: Bench) -> None:
    ran: list[int] = []

    @tool
    def poke() -> str:
        """Poke."""
        ran.append(1)
        return "nothing"

    bench.offer(poke)
    result = await bench.run(*[call("poke")] * 12, "It does not move.")
    assert (result.content, result.stop_reason) == ("It does not move.", "repetition")
    assert len(ran) == 6
    assert "was not run again" in bench.results()[6]
    assert len(bench.provider.requests) == 13


async def test_repetition_of_an_unknown_tool_ends_the_run_too(bench: Bench) -> None:
    result = await bench.run(*[call("nope")] * 4, "", spec=bench.spec(max_repeats=2))
    assert (result.content, result.stop_reason) == (STUCK, "repetition")


async def test_the_same_call_with_changing_results_may_go_on(bench: Bench) -> None:
    seen = iter(range(100))

    @tool
    def poll() -> str:
        """Poll."""
        return str(next(seen))

    bench.offer(poll)
    result = await bench.run(*[call("poll")] * 9, "done")
    assert result.stop_reason == "completed"
    assert bench.results() == [str(number) for number in range(9)]


async def test_ids_and_names_that_services_refuse_are_normalised(bench: Bench) -> None:
    calls = (
        ToolCall("", "add", {"first": 1, "second": 2}),
        ToolCall("same", "add", {"first": 2, "second": 2}),
        ToolCall("same", "add", {"first": 3, "second": 2}),
        ToolCall("call_turn0001_3", "functions.add", {}),
        ToolCall("with space", "", {}),
    )
    bench.offer(add)
    await bench.run(FakeReply(tool_calls=calls), "done")
    made = bench.provider.requests[1].messages[2].tool_calls
    assert len({item.id for item in made}) == 5
    assert made[1].id == "same"
    assert all(item.id.replace("_", "").isalnum() for item in made)
    assert [item.name for item in made[3:]] == ["functions_add", "unknown"]
    assert [item.tool_call_id for item in bench.provider.requests[1].messages[3:]] == [
        item.id for item in made
    ]


async def test_a_budget_that_is_used_up_ends_the_run_with_its_sentence(bench: Bench) -> None:
    class Budget:
        @on.wrap_model_call
        async def stop(self, event: ModelCallRequested, call_next: Next) -> LLMResponse:
            raise BudgetExceeded("day", "10", "9")

    bench.plug(Budget())
    result = await bench.run("never")
    assert result.stop_reason == "budget"
    assert result.content.startswith("the day budget is used up (10 of 9)")
    assert (result.iterations, bench.provider.requests) == (0, [])


async def test_a_budget_that_ends_within_an_answer_keeps_what_there_is(bench: Bench) -> None:
    class Budget:
        @on.wrap_model_call
        async def stop(self, event: ModelCallRequested, call_next: Next) -> LLMResponse:
            if event.iteration == 2:
                raise BudgetExceeded("turn", "10", "9")
            return await call_next(event.request)

    bench.plug(Budget())
    result = await bench.run(FakeReply(pieces=("half ",), finish_reason="length"))
    assert result.content.startswith("half \n\nthe turn budget is used up")


async def test_every_model_call_is_paid_for_also_one_that_a_hook_throws_away(
    bench: Bench,
) -> None:
    paid: list[int] = []

    class Plugin:
        @on.wrap_model_call
        async def after(self, event: ModelCallRequested, call_next: Next) -> LLMResponse:
            response = await call_next(event.request)
            if event.iteration == 2:
                raise BudgetExceeded("turn", "10", "9")
            return response

        @on.on_usage
        def note(self, event: UsageRecorded) -> None:
            paid.append(event.usage.prompt_tokens)

    bench.offer(add)
    bench.plug(Plugin())
    first = FakeReply(tool_calls=(call("add", first=1, second=2),), usage=Usage(prompt_tokens=5))
    result = await bench.run(first, FakeReply(pieces=("x",), usage=Usage(prompt_tokens=6)))
    assert result.stop_reason == "budget"
    assert paid == [5, 6]
    assert result.usage.prompt_tokens == 11


async def test_a_hook_that_answers_in_the_models_place_pays_nothing(bench: Bench) -> None:
    paid: list[UsageRecorded] = []

    class Plugin:
        @on.wrap_model_call
        async def instead(self, event: ModelCallRequested, call_next: Next) -> LLMResponse:
            return LLMResponse(content="cached")

        @on.on_usage
        def note(self, event: UsageRecorded) -> None:
            paid.append(event)

    bench.plug(Plugin())
    result = await bench.run()
    assert result.content == "cached"
    assert paid == []


async def test_hooks_hear_of_iterations_and_change_the_answer(bench: Bench) -> None:
    heard: list[object] = []

    class Plugin:
        @on.before_iteration
        def before(self, event: IterationStarted) -> None:
            heard.append(event.messages)

        @on.after_iteration
        def after(self, event: IterationFinished) -> None:
            heard.append((event.model, event.provider, event.first_token_s is not None))

        @on.finalize_content
        def finish(self, event: ContentReady) -> str:
            return event.content.upper()

    bench.plug(Plugin())
    result = await bench.run("hello")
    assert result.content == "HELLO"
    assert result.messages[-1].content == "HELLO"
    assert heard == [2, ("main", "service-of-main", True)]


async def test_a_critical_hook_that_fails_withholds_the_answer(bench: Bench) -> None:
    class Redaction:
        @on.finalize_content(critical=True)
        def finish(self, event: ContentReady) -> str:
            raise ValueError("no")

    bench.plug(Redaction())
    with pytest.raises(HookError):
        await bench.run("secret")


async def test_reasoning_and_provider_blocks_are_handed_back(bench: Bench) -> None:
    bench.offer(add)
    thinking = FakeReply(
        reasoning="hm",
        tool_calls=(call("add", first=1, second=2),),
        provider_blocks=({"type": "thinking", "signature": "s"},),
    )
    await bench.run(thinking, "3")
    sent: Message = bench.provider.requests[1].messages[2]
    assert sent.reasoning == "hm"
    assert sent.provider_blocks == ({"type": "thinking", "signature": "s"},)
