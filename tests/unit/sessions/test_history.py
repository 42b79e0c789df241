from __future__ import annotations

from hypothesis import given, strategies as st

from nanobot_core.messages import ImageBlock, Message, TextBlock, ToolCall
from nanobot_core.sessions.history import OUTCOME_UNKNOWN, align, storable, window


def user(text: str) -> Message:
    return Message(role="user", content=text)


def asks(*ids: str, text: str = "") -> Message:
    calls = tuple(ToolCall(call_id, "look", {}) for call_id in ids)
    return Message(role="assistant", content=text, tool_calls=calls)


def result(call_id: str | None, text: str = "seen") -> Message:
    return Message(role="tool", content=text, tool_call_id=call_id, name="look")


def says(text: str) -> Message:
    return Message(role="assistant", content=text)


words = st.sampled_from(["", " ", "a", "b", "c"])
histories = st.lists(
    words.map(user)
    | words.map(says)
    | st.lists(words, max_size=3).map(lambda ids: asks(*ids))
    | words.map(result)
    | st.builds(Message, role=st.just("system"), content=words)
    | st.builds(
        Message,
        role=st.sampled_from(["user", "assistant", "tool"]),
        content=st.lists(
            words.map(TextBlock) | st.builds(ImageBlock, st.just("image/png"), words), max_size=2
        ).map(tuple),
        tool_call_id=st.none() | words,
        tool_calls=st.sampled_from([(), (ToolCall("a", "", {}),)]),
    ),
    max_size=12,
)


def is_legal(history: list[Message]) -> bool:
    waiting: list[str] = []
    seen: set[str] = set()
    for message in history:
        if message.role == "tool":
            if not waiting or waiting.pop(0) != message.tool_call_id:
                return False
        elif waiting or message.role == "system":
            return False
        waiting += [call.id for call in message.tool_calls]
        if not all(waiting) or seen & {call.id for call in message.tool_calls}:
            return False
        seen |= {call.id for call in message.tool_calls}
    return not waiting and (not history or history[0].role == "user")


@given(histories)
def test_any_history_becomes_legal_keeps_user_texts_and_stays_as_it_is(
    history: list[Message],
) -> None:
    aligned = align(history)
    assert is_legal(aligned)
    assert align(aligned) == aligned
    before = [m.text for m in history if m.role == "user" and m.text.strip()]
    after = [m.text for m in aligned if m.role == "user"]
    remaining = iter(after)
    assert all(any(text in one for one in remaining) for text in before)
    assert all(m.content for m in aligned if m.role == "user")


def test_a_legal_history_is_not_copied() -> None:
    history = [user("hi"), asks("a", "b"), result("a"), result("b"), says("done"), user("x")]
    assert all(one is other for one, other in zip(align(history), history, strict=True))


def test_results_move_behind_their_calls_in_call_order() -> None:
    history = [user("hi"), asks("a", "b"), user("wait"), result("b", "2"), result("a", "1")]
    assert align(history) == [
        user("hi"),
        asks("a", "b"),
        result("a", "1"),
        result("b", "2"),
        user("wait"),
    ]


def test_a_missing_result_tells_that_the_outcome_is_unknown() -> None:
    aligned = align([user("hi"), asks("a"), result("zzz"), says("done")])
    assert [message.text for message in aligned] == ["hi", "", OUTCOME_UNKNOWN, "done"]
    assert aligned[2].is_error


def test_ids_that_repeat_from_turn_to_turn_become_unique_and_keep_their_results() -> None:
    turn = [user("hi"), asks("call_0"), result("call_0", "1")]
    aligned = align([*turn, user("again"), asks("call_0"), result("call_0", "2")])
    assert [m.text for m in aligned if m.role == "tool"] == ["1", "2"]
    assert [m.tool_call_id for m in aligned if m.role == "tool"] == ["call_0", "call_0-1"]


def test_calls_without_id_or_name_get_both() -> None:
    nameless = Message(role="assistant", tool_calls=(ToolCall("", "", {}),))
    aligned = align([user("hi"), nameless, result(None)])
    assert aligned[1].tool_calls == (ToolCall("call-0", "unknown", {}),)
    assert aligned[2] == result("call-0")


def test_what_precedes_the_first_user_message_is_left_out() -> None:
    assert align([says("hello"), asks("a"), result("a"), user("hi")]) == [user("hi")]


def test_stored_images_are_told_as_text_and_others_stay() -> None:
    stored = ImageBlock("image/png", "", "/a.png")
    lost, whole = ImageBlock("image/jpeg", ""), ImageBlock("image/png", "AAAA")
    (message,) = align([Message(role="user", content=(stored, lost, whole))])
    assert message.content == (
        TextBlock("[image: /a.png]"),
        TextBlock("[image: image/jpeg]"),
        whole,
    )


@given(histories, st.integers(0, 12), st.integers(0, 12))
def test_a_window_is_a_legal_end_that_fits_or_the_newest_turn(
    history: list[Message], max_messages: int, max_tokens: int
) -> None:
    aligned = align(history)
    part = window(aligned, max_messages=max_messages, max_tokens=max_tokens, count=lambda _: 1)
    assert is_legal(part)
    assert part == aligned[len(aligned) - len(part) :]
    users = [index for index, message in enumerate(aligned) if message.role == "user"]
    limit = min(max_messages, max_tokens)
    fitting = [index for index in users if len(aligned) - index <= limit]
    start = fitting[0] if fitting else (users[-1] if users else len(aligned))
    assert len(part) == len(aligned) - start


def test_a_window_counts_only_what_it_looks_at() -> None:
    counted: list[Message] = []

    def count(message: Message) -> int:
        counted.append(message)
        return 10

    history = [user(str(number)) for number in range(1000)]
    assert window(history, max_messages=500, max_tokens=35, count=count) == history[-3:]
    assert len(counted) == 4


def test_what_is_stored_has_no_image_data_and_short_results() -> None:
    image, block = ImageBlock("image/png", "AAAA", "/a.png"), TextBlock("x" * 100)
    asked = storable(Message(role="user", content=(image, block)), 10)
    assert asked.content == (ImageBlock("image/png", "", "/a.png"), block)
    for content in ("x" * 100, (block,)):
        kept = storable(Message(role="tool", content=content, tool_call_id="a"), 10)
        assert kept.text.startswith("xxxxx\n")
        assert "90 characters" in kept.text
    both = storable(Message(role="tool", content=(image,), tool_call_id="a"), 10)
    assert both.content == (ImageBlock("image/png", "", "/a.png"),)
    assert storable(user("y" * 100), 10) == user("y" * 100)
