from __future__ import annotations

import json

import pytest
from hypothesis import given, strategies as st

from nanobot_core import JsonValue
from nanobot_offline.grammar import Misread, Plan, PlannedCall, parse_message

TOOLS = ("list_dir", "read_file", "grep", "use")
json_values: st.SearchStrategy[JsonValue] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=6,
)
calls = st.builds(
    PlannedCall,
    name=st.sampled_from(TOOLS),
    arguments=st.dictionaries(st.text(max_size=8), json_values, max_size=3),
)
plans = st.lists(st.lists(calls, min_size=1, max_size=3).map(tuple), min_size=1, max_size=3).map(
    lambda steps: Plan(tuple(steps))
)


@given(
    plans,
    st.sampled_from(["", "use ", "Please run the tool ", "call "]),
    st.sampled_from([" then ", ", then ", " and then\n", "\nTHEN "]),
    st.sampled_from([" and ", ", and ", "and "]),
    st.sampled_from(["", ".", " please!", "\n"]),
    st.sampled_from([None, 2]),
)
def test_a_plan_is_read_as_it_was_written(
    plan: Plan, verb: str, then: str, both: str, end: str, indent: int | None
) -> None:
    text = verb + then.join(
        both.join(f"{call.name} {json.dumps(call.arguments, indent=indent)}" for call in step)
        for step in plan.steps
    )

    assert parse_message(text + end, TOOLS) == plan


@given(st.text(alphabet='abcdefgrep_ use then{}":,.\n', max_size=60))
def test_any_text_has_a_reading(text: str) -> None:
    assert isinstance(parse_message(text, TOOLS), Plan | Misread | None)


@given(plans, st.data())
def test_a_plan_that_is_cut_off_is_never_read_as_another_call(
    plan: Plan, data: st.DataObject
) -> None:
    texts = [f"{call.name} {json.dumps(call.arguments)}" for step in plan.steps for call in step]
    text = " and ".join(texts)
    cut = text[: data.draw(st.integers(0, len(text) - 1))]

    reading = parse_message(cut, TOOLS)

    if isinstance(reading, Plan):
        written = [call for step in plan.steps for call in step]
        *whole, last = [call for step in reading.steps for call in step]
        assert whole == written[: len(whole)]
        assert last in (written[len(whole)], PlannedCall(last.name, {}))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "hello",
        "what does grep do?",
        "grep is a tool",
        "please",
        "use",
        "then",
        'list_dir {"path": "."} or grep {}',
        "list_dir then",
        'note {"a": 1',
    ],
)
def test_other_text_is_not_a_plan(text: str) -> None:
    assert not isinstance(parse_message(text, ("list_dir", "grep")), Plan)


@pytest.mark.parametrize("rest", ["x", ", x", "please x", "then x", "and x", ".x", "{"])
def test_white_space_of_any_length_is_passed_in_linear_time(rest: str) -> None:
    """Guards against patterns that try every split of a run of spaces."""
    gap = " " * 100_000

    assert not isinstance(parse_message(f"grep{gap}{rest}{gap}", TOOLS), Plan)


def test_a_tool_may_be_called_without_arguments() -> None:
    assert parse_message("list_dir", TOOLS) == Plan(((PlannedCall("list_dir", {}),),))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('lst_dir {"path": "."}', "no tool 'lst_dir'"),
        ("list_dir {path: .}", "arguments of 'list_dir' are not a JSON object: Expecting"),
        ('list_dir {"a": NaN}', "NaN is not a JSON value"),
        ('list_dir {"a": ' + "[" * 100_000, "nested too deeply"),
        ('grep {} then lst {"a": 1}', "no tool 'lst'"),
    ],
)
def test_a_call_that_cannot_be_read_is_given_a_reason(text: str, words: str) -> None:
    reading = parse_message(text, TOOLS)

    assert isinstance(reading, Misread)
    assert words in reading.reason
