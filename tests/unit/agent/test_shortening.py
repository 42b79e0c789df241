"""Requests that fit: what goes, what stays, and that pairs are never split."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest
from hypothesis import given, strategies as st

from nanobot_core import (
    BadRequest,
    BudgetExceeded,
    ContextTooLong,
    ImageBlock,
    JsonObject,
    LLMResponse,
    Message,
    ModelCallRequested,
    TextBlock,
    Tool,
    ToolCall,
    ToolContext,
    ToolDefinition,
    Usage,
    UsageRecorded,
    on,
)
from nanobot_core.agent.shortening import (
    SUMMARY_HEADING,
    compact,
    input_budget,
    microcompact,
    render_transcript,
)
from nanobot_core.agent.tokens import TokenEstimator, measure
from nanobot_core.prompts import packaged_text
from nanobot_core.testing import FakeReply
from nanobot_core.tools import tool
from tests.unit.agent.conftest import Bench, Next, call

pytestmark = pytest.mark.anyio

SYSTEM = Message(role="system", content="system")


def user(text: str) -> Message:
    return Message(role="user", content=text)


def calls(number: int, size: int, name: str = "read") -> list[Message]:
    """An iteration: a call and a result of `size` characters."""
    return [
        Message(role="assistant", tool_calls=(ToolCall(f"c{number}", name, {}),)),
        Message(role="tool", content="r" * size, tool_call_id=f"c{number}", name=name),
    ]


def turn(number: int, size: int = 400) -> list[Message]:
    return [user(f"question {number} " + "q" * size), Message(role="assistant", content="a" * size)]


async def short(messages: Sequence[Message]) -> str:
    return f"summary of {len(messages)}"


def is_legal(messages: Sequence[Message]) -> bool:
    open_ids: set[str] = set()
    for message in messages:
        if message.role == "tool":
            if message.tool_call_id not in open_ids:
                return False
            open_ids.discard(message.tool_call_id)
        elif open_ids:
            return False
        open_ids |= {item.id for item in message.tool_calls}
    return not open_ids


# --- old results -----------------------------------------------------------------------------


def test_old_results_of_compactable_tools_are_left_out_in_steps() -> None:
    def omitted(count: int) -> int:
        history = [message for number in range(count) for message in calls(number, 500)]
        sent = microcompact([SYSTEM, *history], {"read"})
        assert len(sent) == len(history) + 1
        return sum("omitted from context" in message.text for message in sent)

    assert [omitted(count) for count in (10, 19, 20, 29, 30, 45)] == [0, 0, 10, 10, 20, 30]


def test_short_results_and_those_of_other_tools_stay() -> None:
    history = [message for number in range(30) for message in calls(number, 50)]
    assert microcompact(history, {"read"}) == history
    history = [message for number in range(30) for message in calls(number, 500)]
    assert microcompact(history, {"write"}) == history


# --- whole turns -----------------------------------------------------------------------------


async def test_the_oldest_turns_go_and_the_newest_stay() -> None:
    history = [message for number in range(30) for message in turn(number)]
    estimator = TokenEstimator()
    shorter, done = await compact([SYSTEM, *history], 4_000, estimator, short)
    assert done is not None
    assert shorter[0] == SYSTEM
    assert shorter[1].text == f"{SUMMARY_HEADING}\nsummary of {done.messages}"
    assert shorter[2:] == history[done.messages :]
    assert shorter[2].role == "user"
    assert estimator.count_all(shorter[1:]) <= 2_100


async def test_a_request_that_was_refused_as_too_long_is_halved_whatever_was_estimated() -> None:
    history = [message for number in range(30) for message in turn(number)]
    shorter, done = await compact([SYSTEM, *history], 1_000_000, TokenEstimator(), short)
    assert done is not None
    assert len(shorter) < 35


async def test_few_but_long_messages_can_go_too() -> None:
    history = [*turn(1, 50_000), *turn(2, 50_000), user("now")]
    shorter, done = await compact([SYSTEM, *history], 10_000, TokenEstimator(), short)
    assert done is not None
    assert shorter[-1] == user("now")
    assert done.messages == 4


async def test_iterations_of_the_turn_under_way_go_when_nothing_else_is_left() -> None:
    task = user("the open task")
    running = [message for number in range(20) for message in calls(number, 4_000)]
    shorter, done = await compact(
        [SYSTEM, *turn(1), task, *running], 8_000, TokenEstimator(), short
    )
    assert done is not None
    assert done.messages == 2
    assert shorter[1].text.startswith(SUMMARY_HEADING)
    assert shorter[2] == task
    assert shorter[3:] == running[-len(shorter[3:]) :]
    assert 10 <= len(shorter[3:]) < len(running)
    assert is_legal(shorter)


@pytest.mark.parametrize(
    "messages", [[], [SYSTEM], [SYSTEM, user("x" * 9_000)], [SYSTEM, user("t"), *calls(1, 9_000)]]
)
async def test_the_open_task_and_the_newest_call_never_go(messages: list[Message]) -> None:
    assert await compact(messages, 100, TokenEstimator(), short) == (messages, None)


async def test_a_summary_is_never_summarised_alone() -> None:
    summary = user(f"{SUMMARY_HEADING}\nold")
    messages = [SYSTEM, summary, user("task"), *calls(1, 9_000)]
    assert await compact(messages, 100, TokenEstimator(), short) == (messages, None)


@given(
    st.lists(
        st.one_of(
            st.integers(0, 3_000).map(lambda size: ("turn", size)),
            st.integers(0, 3_000).map(lambda size: ("call", size)),
        ),
        max_size=40,
    ),
    st.integers(1, 20_000),
)
async def test_a_compacted_request_is_legal_and_keeps_the_task(
    shape: list[tuple[str, int]], budget: int
) -> None:
    history = [user("first")]
    for number, (kind, size) in enumerate(shape):
        history += turn(number, size) if kind == "turn" else calls(number, size)
    task = [message for message in history if message.role == "user"][-1]
    shorter, done = await compact([SYSTEM, *history], budget, TokenEstimator(), short)
    assert is_legal(shorter)
    assert task in shorter
    assert shorter[-1] == history[-1] or shorter[-1] == task
    if done is not None:
        assert history[done.messages].role == "user"
        assert len(shorter) <= len(history) + 1


def test_the_budget_is_the_window_less_answer_and_margin() -> None:
    assert input_budget(100_000, 8_000) == 90_000
    assert input_budget(8_000, 8_000) == 2_000


def test_a_transcript_is_plain_and_bounded() -> None:
    messages = [message for number in range(50) for message in calls(number, 5_000)]
    text = render_transcript(messages, 3_000)
    assert len(text) < 3_200
    assert "assistant:  [calls read {}]" in text


# --- in a run --------------------------------------------------------------------------------


def long_history(turns: int = 30) -> list[Message]:
    return [message for number in range(turns) for message in turn(number)]


async def test_a_history_over_the_threshold_is_summarised_before_the_call(bench: Bench) -> None:
    heard: list[int] = []

    class Plugin:
        @on.on_usage
        def paid(self, event: UsageRecorded) -> None:
            heard.append(event.usage.prompt_tokens)

    bench.plug(Plugin())
    spec = bench.spec(*long_history(), "now", context_window_tokens=6_000, max_tokens=500)
    result = await bench.run(
        FakeReply(pieces=("notes",), usage=Usage(prompt_tokens=3)),
        FakeReply(pieces=("hello",), usage=Usage(prompt_tokens=4)),
        spec=spec,
    )
    assert result.content == "hello"
    assert bench.streamed == "hello", "a summary is no part of the answer"
    assert result.compaction is not None
    gone = result.compaction.messages
    assert heard == [3, 4], "summaries are paid for too"
    assert result.usage.prompt_tokens == 7
    question, answer = bench.provider.requests
    assert question.messages[0].text.endswith(packaged_text("summary"))
    assert question.tools == ()
    assert answer.messages[1].text == f"{SUMMARY_HEADING}\nnotes"
    assert answer.messages[2:-1] == tuple(long_history()[gone:])


async def test_a_request_refused_as_too_long_is_compacted_once_and_sent_again(bench: Bench) -> None:
    spec = bench.spec(*long_history(), "now")
    result = await bench.run(ContextTooLong("p", "too long"), "notes", "hello", spec=spec)
    assert result.content == "hello"
    assert len(bench.provider.requests[2].messages) < len(bench.provider.requests[0].messages)


async def test_a_request_that_is_still_too_long_is_told(bench: Bench) -> None:
    too_long = ContextTooLong("p", "too long")
    with pytest.raises(ContextTooLong):
        await bench.run(too_long, "notes", too_long, spec=bench.spec(*long_history(), "now"))
    with pytest.raises(ContextTooLong):
        await bench.run(too_long, spec=bench.spec("only this"))


@pytest.mark.parametrize("failing", [BadRequest("p", "no"), FakeReply()])
async def test_without_a_summary_by_the_model_a_mechanical_one_stands_in(
    bench: Bench, failing: BadRequest | FakeReply
) -> None:
    spec = bench.spec(*long_history(), "now")
    result = await bench.run(ContextTooLong("p", "too long"), failing, "hello", spec=spec)
    assert result.compaction is not None
    assert result.compaction.summary.startswith("user: question 0")
    assert len(result.compaction.summary) < 4_200


class Described(Tool):
    """A tool with a definition of any length."""

    def __init__(self, description: str) -> None:
        self.name = "described"
        self.description = description
        self.parameters = {"type": "object", "properties": {}}

    async def execute(self, ctx: ToolContext, arguments: JsonObject) -> str:
        return ""


async def test_tool_definitions_leave_less_room_for_the_history(bench: Bench) -> None:
    """Guards against requests that are as long after a summary as they were before it."""
    bench.offer(Described("d" * 12_000))  # about half of the window
    spec = bench.spec(*long_history(), "now", context_window_tokens=6_000, max_tokens=500)
    await bench.run("notes", "hello", spec=spec)
    sent = bench.provider.requests[-1]
    estimator = TokenEstimator()
    size = estimator.count_all(sent.messages) + estimator.count_tools(sent.tools)
    assert size <= input_budget(6_000, 500)


async def test_tool_definitions_that_fill_the_window_leave_the_newest_messages(
    bench: Bench,
) -> None:
    bench.offer(Described("d" * 100_000))
    spec = bench.spec(*long_history(), "now", context_window_tokens=6_000, max_tokens=500)
    result = await bench.run("notes", "hello", spec=spec)
    assert result.content == "hello"
    sent = [message.text for message in bench.provider.requests[-1].messages]
    assert sent == ["system", f"{SUMMARY_HEADING}\nnotes", "now"]


async def test_a_long_system_prompt_leaves_less_room_for_the_history() -> None:
    system = Message(role="system", content="s" * 8_000)
    history = [message for number in range(10) for message in turn(number)]
    estimator = TokenEstimator()
    shorter, done = await compact([system, *history], 3_000, estimator, short)
    assert done is not None
    assert estimator.count_all(shorter) <= 3_000


async def test_a_budget_that_ends_with_the_summary_ends_the_run(bench: Bench) -> None:
    class Budget:
        @on.wrap_model_call
        async def stop(self, event: ModelCallRequested, call_next: Next) -> LLMResponse:
            if len(event.request.messages) == 1:
                raise BudgetExceeded("day", "2", "1")
            return await call_next(event.request)

    bench.plug(Budget())
    spec = bench.spec(*long_history(), "now")
    result = await bench.run(ContextTooLong("p", "too long"), spec=spec)
    assert result.stop_reason == "budget"


async def test_a_long_turn_goes_on_with_its_oldest_iterations_summarised(bench: Bench) -> None:
    numbers = iter(range(1_000))

    @tool
    def fetch() -> str:
        """Fetch."""
        return f"{next(numbers)} " + "x" * 2_000

    bench.offer(fetch)
    window = {"context_window_tokens": 8_000, "max_tokens": 500, "max_iterations": 60}

    class Answers:
        """Asks for the tool forty times, and for a summary as often as it is wanted."""

        @on.wrap_model_call
        async def answer(self, event: ModelCallRequested, call_next: Next) -> LLMResponse:
            sizes.append(len(event.request.messages))
            assert is_legal(event.request.messages)
            if not event.request.tools:
                return LLMResponse(content="notes")
            assert any(message.text == "the task" for message in event.request.messages)
            if len(bench.results()) < 40:
                return LLMResponse(tool_calls=(call("fetch"),), finish_reason="tool_calls")
            return LLMResponse(content="done")

    sizes: list[int] = []
    bench.plug(Answers())
    result = await bench.run(spec=bench.spec(*long_history(2), "the task", **window))
    assert result.content == "done"
    assert len(bench.results()) == 40
    assert max(sizes) < 30
    assert sizes.count(1) < 12, "a summary is made now and then, not with every call"
    assert result.compaction is not None
    assert result.compaction.messages == 4


# --- counting --------------------------------------------------------------------------------


def test_what_providers_report_moves_the_estimate_within_bounds() -> None:
    estimator = TokenEstimator()
    messages = [user("x" * 8_000)]
    before = estimator.count_all(messages)
    for _ in range(50):
        estimator.learn(measure(messages), 4_000)
    assert estimator.count_all(messages) == pytest.approx(4_000, rel=0.02)
    assert before == 2_004
    for _ in range(50):
        estimator.learn(measure(messages), 1_000_000)
    assert estimator.bytes_per_token >= 1.5


def test_reports_that_say_too_little_are_not_learnt_from() -> None:
    estimator = TokenEstimator()
    estimator.learn(measure([user("x" * 8_000)]), 0)
    estimator.learn(measure([user("x" * 8_000)]), 50)
    assert estimator.bytes_per_token == 4.0


class Watched(tuple[TextBlock]):
    """A content that counts how often it is read."""

    reads = 0

    def __iter__(self) -> Iterator[TextBlock]:
        self.reads += 1
        return super().__iter__()


async def test_the_work_for_an_earlier_message_does_not_grow_with_the_run(bench: Bench) -> None:
    """Guards against runs whose cost grows with the square of their iterations."""

    async def reads(iterations: int) -> int:
        content = Watched([TextBlock("hello")])
        message = Message(role="user", content=content)
        content.reads = 0
        asks = [call("fetch", part=number) for number in range(iterations)]
        await bench.run(*asks, "done", spec=bench.spec(message))
        return content.reads

    assert await reads(40) == await reads(1) > 0


def test_images_calls_and_tools_count() -> None:
    estimator = TokenEstimator()
    image = Message(role="user", content=(ImageBlock("image/png", "A" * 9_999), TextBlock("abcd")))
    assert estimator.count_all([image]) == 1_005
    called = Message(role="assistant", tool_calls=(ToolCall("c", "read", {"path": "x" * 400}),))
    assert estimator.count_all([called]) > 100
    definition = ToolDefinition(name="read", description="d" * 400, parameters={})
    assert estimator.count_tools([definition]) > 100
