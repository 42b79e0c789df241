"""Runs that end with an object: by a tool, by a JSON Schema, corrected once, or with an error."""

from __future__ import annotations

from typing import Any, assert_type

import pytest
from pydantic import BaseModel

from nanobot_core import (
    BudgetExceeded,
    ContentReady,
    LLMResponse,
    ModelCallRequested,
    NoOutput,
    OutputInvalid,
    RateLimited,
    StructuredOutcome,
    ToolCall,
    TurnOutcome,
    Usage,
    on,
)
from nanobot_core.agent.structured import ANSWER_TOOL, CUT, EMPTY, NOT_AN_OBJECT
from nanobot_core.events import StreamRestarted
from nanobot_core.testing import FakeReply
from nanobot_core.tools import tool
from tests.integration.conftest import Start, call, history
from tests.scripted_provider import ScriptedPlugin
from tests.unit.agent.conftest import Next

pytestmark = pytest.mark.anyio

USAGE = Usage(prompt_tokens=10, completion_tokens=1)


class Line(BaseModel):
    article: str
    pieces: int = 1


class Invoice(BaseModel):
    """An invoice as a customer gets it."""

    number: int
    lines: list[Line]
    comment: str | None = None


GOOD: dict[str, Any] = {"number": 7, "lines": [{"article": "pen"}]}
INVOICE = Invoice(number=7, lines=[Line(article="pen")])
TEXT = '{"number": 7, "lines": [{"article": "pen"}]}'
BAD = FakeReply(tool_calls=(call(ANSWER_TOOL, number=[], lines=[{}]),), usage=USAGE)


@tool(read_only=True)
def stock(article: str) -> str:
    """Return what is in stock."""
    return f"3 of {article}"


@tool(name=ANSWER_TOOL)
def own_final_answer(text: str) -> str:
    """Return an answer of another kind."""
    return text


async def test_a_model_without_schemas_gives_the_object_by_a_tool(start: Start) -> None:
    script = ScriptedPlugin(call("stock", article="pen"), call(ANSWER_TOOL, "c2", **GOOD))
    async with start(script) as bot:
        bot.tools.register(stock)
        outcome = await bot.run("make an invoice", output=Invoice)
        stored = await history(bot)
    assert_type(outcome.output, Invoice)
    assert outcome.output == INVOICE
    assert (outcome.reply, outcome.stop_reason, outcome.error) == (TEXT, "completed", None)
    assert outcome.tools_used == ("stock",)
    assert [m.role for m in stored] == ["user", "assistant", "tool", "assistant"]
    assert (stored[-1].text, stored[-1].tool_calls) == (TEXT, ())
    first, second = script.provider.requests
    assert [each.name for each in first.tools] == ["stock", ANSWER_TOOL]
    assert first.tools == second.tools, "the prompt cache applies"
    assert first.tools[1].parameters["required"] == ["number", "lines"]
    assert "An invoice as a customer gets it." in first.tools[1].description
    assert {request.tool_choice for request in (first, second)} == {"auto"}
    assert first.output_schema is None


async def test_a_model_with_schemas_answers_by_the_schema(start: Start) -> None:
    answer = '{"number": 7, "lines": [{"article": "pen", "pieces": null}], "comment": null}'
    script = ScriptedPlugin(call("stock", article="pen"), answer, json_schema=True)
    async with start(script) as bot:
        bot.tools.register(stock)
        outcome = await bot.run("make an invoice", output=Invoice)
    assert outcome.output == INVOICE, "null stands for an optional field that is absent"
    for request in script.provider.requests:
        assert [each.name for each in request.tools] == ["stock"]
        assert request.output_schema is not None
        assert request.output_schema["required"] == ["number", "lines"]


async def test_a_tool_with_the_name_of_the_answer_stays_a_tool(start: Start) -> None:
    script = ScriptedPlugin(call(ANSWER_TOOL, text="hm"), call(f"{ANSWER_TOOL}_2", "c2", **GOOD))
    async with start(script) as bot:
        bot.tools.register(own_final_answer)
        outcome = await bot.run("make an invoice", output=Invoice)
    assert outcome.output == INVOICE
    assert outcome.tools_used == (ANSWER_TOOL,)


async def test_an_invalid_answer_is_corrected_once_and_not_stored(start: Start) -> None:
    script = ScriptedPlugin(BAD, FakeReply(tool_calls=(call(ANSWER_TOOL, **GOOD),), usage=USAGE))
    async with start(script) as bot:
        bot.tools.register(stock)
        outcome = await bot.run("make an invoice", output=Invoice)
        stored = await history(bot)
    assert outcome.output == INVOICE
    assert outcome.usage.prompt_tokens == 20
    assert [m.text for m in stored][1:] == [TEXT]
    retry = script.provider.requests[1]
    assert [each.name for each in retry.tools] == [ANSWER_TOOL]
    assert retry.tool_choice == "required"
    made, result = retry.messages[-2:]
    assert made.tool_calls[0].id == result.tool_call_id
    assert "number should be integer, found array" in result.text
    assert "lines[0].article is required" in result.text


@pytest.mark.parametrize(
    ("answer", "finding"),
    [
        ("Here you are.", NOT_AN_OBJECT),
        ("", EMPTY),
        ('{"number": 7', "lines is required"),
        (FakeReply(pieces=(TEXT,), finish_reason="length"), CUT),
        (FakeReply(tool_calls=(call(ANSWER_TOOL, **GOOD),), finish_reason="length"), CUT),
        (ToolCall("c1", ANSWER_TOOL, {}, unparsed="number 7"), NOT_AN_OBJECT),
        (
            FakeReply(tool_calls=(call(ANSWER_TOOL, **GOOD), call(ANSWER_TOOL, "c2", **GOOD))),
            "was called 2 times",
        ),
    ],
)
async def test_an_answer_of_another_kind_is_corrected_too(
    start: Start, answer: FakeReply | str, finding: str
) -> None:
    script = ScriptedPlugin(answer, call(ANSWER_TOOL, "c9", **GOOD))
    async with start(script) as bot:
        outcome = await bot.run("make an invoice", output=Invoice)
    assert outcome.output == INVOICE
    assert finding in script.provider.requests[1].messages[-1].text


@pytest.mark.parametrize("words", [TEXT, f"```json\n{TEXT}\n```", f"Here it is: {TEXT} Bye!"])
async def test_words_with_the_object_in_them_are_an_answer(start: Start, words: str) -> None:
    async with start(words) as bot:
        outcome = await bot.run("make an invoice", output=Invoice)
    assert outcome.output == INVOICE


@pytest.mark.parametrize("json_schema", [False, True])
async def test_a_second_invalid_answer_is_an_error_with_all_that_is_known(
    start: Start, json_schema: bool
) -> None:
    wrong = FakeReply(pieces=('{"number": 8}',), usage=USAGE)
    script = ScriptedPlugin(BAD if not json_schema else wrong, wrong, json_schema=json_schema)
    async with start(script) as bot:
        with pytest.raises(OutputInvalid, match="not a valid Invoice: lines is required") as raised:
            await bot.run("make an invoice", output=Invoice)
    error = raised.value
    assert error.answer == '{"number": 8}'
    assert error.findings == ("lines is required",)
    assert error.outcome.usage.prompt_tokens == 20
    assert error.outcome.stop_reason == "failed"
    assert "choose another model" in str(error)


async def test_an_answer_beside_other_calls_is_given_again_after_their_results(
    start: Start,
) -> None:
    hasty = FakeReply(
        tool_calls=(call("stock", article="pen"), call(ANSWER_TOOL, "c2", number=1, lines=[]))
    )
    script = ScriptedPlugin(hasty, call(ANSWER_TOOL, "c3", **GOOD))
    async with start(script) as bot:
        bot.tools.register(stock)
        outcome = await bot.run("make an invoice", output=Invoice)
        stored = await history(bot)
    assert outcome.output == INVOICE
    assert [each.name for m in stored for each in m.tool_calls] == ["stock"]


async def test_a_fallback_of_the_other_kind_gives_the_object(start: Start) -> None:
    failed = RateLimited("scripted", "busy", retryable=False)
    first = ScriptedPlugin(failed, json_schema=True)
    second = ScriptedPlugin(call(ANSWER_TOOL, **GOOD))
    options = {"plugins": (second,), "agents__defaults__fallback_models": [second.model]}
    async with start(first, **options) as bot:
        outcome = await bot.run("make an invoice", output=Invoice)
    assert outcome.output == INVOICE
    assert first.provider.requests[0].output_schema is not None
    assert second.provider.requests[0].output_schema is None
    assert [each.name for each in second.provider.requests[0].tools] == [ANSWER_TOOL]


async def test_at_the_limit_of_iterations_the_object_is_asked_for(start: Start) -> None:
    script = ScriptedPlugin(call("stock", article="pen"), call(ANSWER_TOOL, "c2", **GOOD))
    async with start(script, agents__defaults__max_tool_iterations=1) as bot:
        bot.tools.register(stock)
        outcome = await bot.run("make an invoice", output=Invoice)
    assert (outcome.output, outcome.stop_reason) == (INVOICE, "iteration_limit")
    assert script.provider.requests[1].tool_choice == "required"


class Miser:
    """Ends the run before its second model call."""

    @on.wrap_model_call
    async def wrap(self, event: ModelCallRequested, call_next: Next) -> LLMResponse:
        if event.iteration == 2:
            raise BudgetExceeded("daily", "2", "1")
        return await call_next(event.request)


async def test_a_turn_that_fails_has_an_error_with_its_outcome(start: Start) -> None:
    async with start(BAD, plugins=(Miser(),)) as bot:
        with pytest.raises(NoOutput, match="daily budget is used up") as raised:
            await bot.run("make an invoice", output=Invoice)
    assert raised.value.outcome.stop_reason == "budget"
    assert raised.value.outcome.usage.prompt_tokens == 10
    async with start(RateLimited("scripted", "busy", retryable=False)) as bot:
        with pytest.raises(NoOutput, match="busy") as raised:
            await bot.run("make an invoice", output=Invoice)
    assert raised.value.outcome.error_id


async def test_a_stream_ends_with_the_object(start: Start) -> None:
    wrong = FakeReply(pieces=('{"number"', ": 8}"))
    script = ScriptedPlugin(wrong, TEXT, wrong, wrong, json_schema=True)
    async with start(script) as bot:
        events = [event async for event in bot.stream("make an invoice", output=Invoice)]
        failed = [event async for event in bot.stream("another", output=Invoice)]
    [restarted] = [event for event in events if isinstance(event, StreamRestarted)]
    assert "lines is required" in restarted.reason
    assert isinstance(events[-1], StructuredOutcome)
    assert events[-1].output == INVOICE
    assert isinstance(failed[-1], TurnOutcome)
    assert failed[-1].findings == ("lines is required",)


class Finish:
    """Replaces answers."""

    def __init__(self, old: str, new: str) -> None:
        self._change = old, new

    @on.finalize_content
    def finalize_content(self, event: ContentReady) -> str:
        return event.content.replace(*self._change)


async def test_the_object_is_what_hooks_have_made_of_the_answer(start: Start) -> None:
    async with start(TEXT, plugins=(Finish("pen", "***"), Finish("}]}", "}]} Bye!"))) as bot:
        outcome = await bot.run("make an invoice", output=Invoice)
    assert outcome.output.lines[0].article == "***"
    async with start(TEXT, plugins=(Finish(TEXT, "withheld"),)) as bot:
        with pytest.raises(OutputInvalid):
            await bot.run("make an invoice", output=Invoice)


@pytest.mark.parametrize("wrong", [int, list[Invoice], INVOICE, dict])
async def test_only_a_model_can_be_the_output(start: Start, wrong: type[BaseModel]) -> None:
    async with start() as bot:
        with pytest.raises(TypeError, match="subclass of pydantic's BaseModel"):
            await bot.run("make an invoice", output=wrong)
