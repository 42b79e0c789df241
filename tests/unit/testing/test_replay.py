"""Recordings are written, read and replayed."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

from nanobot_core import (
    Allow,
    ChatRequest,
    ContentReady,
    ContextBlock,
    ContextRequested,
    Deny,
    HookCalled,
    JsonObject,
    LLMResponse,
    Message,
    ModelCallRequested,
    PluginContext,
    StructuredOutcome,
    TextBlock,
    ToolCall,
    ToolCallProposed,
    TurnInfo,
    TurnOutcome,
    TurnStarted,
    on,
)
from nanobot_core.hooks.caller import Verdict
from nanobot_core.testing import (
    Recording,
    RecordingUnusable,
    Replayer,
    call_line,
    header_line,
    read_recording,
)
from nanobot_core.testing.recording import (
    MAX_LINE_BYTES,
    MAX_SCANNED_CHARS,
    ValueReader,
    plain_data,
)

pytestmark = pytest.mark.anyio

TURN = TurnInfo(
    id="t1", session_key="cli:direct", channel="cli", chat_id="direct", sender_id="me", source="cli"
)
REMOVE = ToolCallProposed(
    turn=TURN, call=ToolCall("1", "exec", {"command": "rm -r ."}), origin="shell@1", read_only=False
)


def unchanged(content: JsonObject) -> JsonObject:
    return content


def write(file: Path, *calls: HookCalled) -> Path:
    file.write_text(header_line() + "".join(call_line(call, unchanged) for call in calls), "utf-8")
    return file


def called(number: int, hook: str, event: object, answer: object = None) -> HookCalled:
    return HookCalled(number=number, hook=hook, revision=1, event=event, answer=answer)


def content(number: int, before: str, after: str) -> HookCalled:
    return called(number, "finalize_content", ContentReady(turn=TURN, content=before), after)


class Policy:
    @on.authorize_tool_call
    async def authorize_tool_call(self, event: ToolCallProposed) -> Deny | None:
        await asyncio.sleep(0)
        return Deny("not rm") if "rm" in str(event.call.arguments["command"]) else None


class Shouting:
    @on.finalize_content
    def finalize_content(self, event: ContentReady) -> str:
        return event.content.upper()


@pytest.mark.promise(43)
async def test_a_plugin_that_answers_as_recorded_has_no_differences(
    tmp_path: Path, nanobot_replay: Replayer
) -> None:
    verdict = Verdict(Deny("not rm"), REMOVE.call)
    file = write(tmp_path / "calls", called(1, "authorize_tool_call", REMOVE, verdict))

    replay = await nanobot_replay(file, Policy())

    assert replay.problems == ()
    assert replay.differences == ()
    assert replay.calls[0].event == REMOVE
    assert replay.answers("authorize_tool_call") == [verdict]


@pytest.mark.promise(43)
async def test_another_answer_is_a_difference_that_shows_both(
    tmp_path: Path, nanobot_replay: Replayer
) -> None:
    verdict = Verdict(Allow(), REMOVE.call)
    file = write(tmp_path / "calls", called(1, "authorize_tool_call", REMOVE, verdict))

    replay = await nanobot_replay(file, Policy())

    [difference] = replay.differences
    assert "call 1 of 'authorize_tool_call' returned" in difference
    assert "not rm" in difference
    assert "Allow" in difference


async def test_a_plugin_lives_through_the_replay_as_in_a_host(
    tmp_path: Path, nanobot_replay: Replayer
) -> None:
    class Living:
        def __init__(self) -> None:
            self.seen: list[str] = []

        @on.start
        def start(self, ctx: PluginContext) -> None:
            self.seen.append(f"start {ctx.id}")

        @on.before_turn
        def before_turn(self, event: TurnStarted) -> None:
            self.seen.append(event.message.text)

        @on.after_turn
        async def after_turn(self, event: TurnOutcome) -> None:
            await asyncio.sleep(0)
            self.seen.append(str(event.reply))

        @on.stop
        def stop(self, ctx: PluginContext, reason: str) -> None:
            self.seen.append("stop")

    message = Message(
        role="user", content=(TextBlock("hello"),), timestamp=datetime(2026, 1, 1, tzinfo=UTC)
    )
    outcome = StructuredOutcome(turn=TURN, reply="bye", output={"answer": 1})
    file = write(
        tmp_path / "calls",
        called(1, "before_turn", TurnStarted(turn=TURN, message=message)),
        called(2, "after_turn", outcome),
    )
    plugin = Living()

    replay = await nanobot_replay(file, plugin, plugin_id="living")

    assert plugin.seen == ["start living", "hello", "bye", "stop"]
    assert [call.event for call in replay.calls] == [
        TurnStarted(turn=TURN, message=message),
        outcome,
    ]
    assert (replay.problems, replay.differences) == ((), ())


async def test_a_wrapped_model_call_returns_the_recorded_response(
    tmp_path: Path, nanobot_replay: Replayer
) -> None:
    class Counting:
        @on.wrap_model_call
        async def wrap_model_call(
            self, event: ModelCallRequested, call_next: object
        ) -> LLMResponse:
            assert callable(call_next)
            response: LLMResponse = await call_next(event.request)
            return response

    request = ChatRequest(messages=(Message(role="user", content="hi"),), model="m")
    event = ModelCallRequested(turn=TURN, iteration=1, provider="p", request=request)
    response = LLMResponse(content="hello")
    file = write(tmp_path / "calls", called(1, "wrap_model_call", event, response))

    replay = await nanobot_replay(file, Counting())

    assert replay.answers("wrap_model_call") == [response]
    assert (replay.problems, replay.differences) == ((), ())


async def test_of_gathered_passages_those_of_the_plugin_are_compared(
    tmp_path: Path, nanobot_replay: Replayer
) -> None:
    class Notes:
        @on.gather_context
        def gather_context(self, event: ContextRequested) -> Iterable[ContextBlock]:
            yield ContextBlock(name="Note", text="mine")

    event = ContextRequested(turn=TURN, model="m", history=[Message(role="user", content="x")])
    answer = [(name, ContextBlock(name="Note", text="mine")) for name in ("other", "notes")]
    file = write(tmp_path / "calls", called(1, "gather_context", event, answer))

    replay = await nanobot_replay(file, Notes(), plugin_id="notes")

    assert (replay.problems, replay.differences) == ((), ())


async def test_a_failure_is_contained_and_the_next_call_is_made(
    tmp_path: Path, nanobot_replay: Replayer
) -> None:
    class Fragile:
        @on.finalize_content
        def finalize_content(self, event: ContentReady) -> str | None:
            if event.content == "bad":
                raise ValueError("cannot")
            return None

    file = write(tmp_path / "calls", content(1, "bad", "bad"), content(2, "good", "good"))

    replay = await nanobot_replay(file, Fragile())

    assert [call.differs for call in replay.calls] == [True, False]
    assert "cannot" in replay.differences[0]


async def test_hooks_that_the_plugin_does_not_implement_are_passed_over(
    tmp_path: Path, nanobot_replay: Replayer
) -> None:
    event = TurnStarted(turn=TURN, message=Message(role="user", content="x"))
    file = write(tmp_path / "calls", called(1, "before_turn", event), content(2, "a", "A"))

    replay = await nanobot_replay(file, Shouting())

    assert [call.number for call in replay.calls] == [2]


async def test_what_a_newer_release_recorded_is_reported_and_left_out(
    tmp_path: Path, nanobot_replay: Replayer
) -> None:
    file = write(tmp_path / "calls", content(1, "a", "A"))
    header, line = map(json.loads, file.read_text("utf-8").splitlines())
    header["version"] = 2
    header["hooks"]["finalize_content"] = 7
    line["event"]["mood"] = "new"
    other = {"number": 2, "hook": "after_dream", "event": {}}
    text = "\n".join(map(json.dumps, (header, line, other))) + "\n"
    file.write_text(text, "utf-8")

    replay = await nanobot_replay(file, Shouting())

    assert replay.answers("finalize_content") == ["A"]
    found = "\n".join(replay.problems)
    assert "format 2" in found
    assert "generation 7" in found
    assert "'after_dream'" in found
    assert "event.mood is not known here" in found


async def test_an_event_that_does_not_fit_is_reported_with_its_place(
    tmp_path: Path, nanobot_replay: Replayer
) -> None:
    file = write(tmp_path / "calls", content(1, "a", "A"), content(2, "b", "B"))
    header, first, second = file.read_text("utf-8").splitlines()
    broken = json.loads(first)
    broken["event"]["content"] = 3
    file.write_text("\n".join((header, json.dumps(broken), second)) + "\n", "utf-8")

    replay = await nanobot_replay(file, Shouting())

    assert replay.answers("finalize_content") == ["B"]
    assert replay.problems == (
        "call 1 of 'finalize_content' cannot be made: event.content must be str, found int",
    )


def test_a_torn_last_line_costs_only_that_line(tmp_path: Path) -> None:
    file = write(tmp_path / "calls", *(content(n, "a", "A") for n in (1, 2, 3)))
    file.write_bytes(file.read_bytes()[:-20])

    found = read_recording(file)

    assert [call.number for call in found.calls] == [1, 2]
    assert found.problems == ("line 4 is incomplete: the program ended while it wrote it",)


def test_calls_that_a_full_queue_dropped_are_reported(tmp_path: Path) -> None:
    file = write(tmp_path / "calls", *(content(n, "a", "A") for n in (1, 2, 9)))

    assert read_recording(file).problems == ("calls are missing before number 9",)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is not a recording"),
        ("hello\n", "is not a recording"),
        ('{"format": "other", "version": 1}\n', "is not a recording"),
        ('{"format": "nanobot-hook-calls", "version": 0, "core": "0.0.9"}\n', "record it again"),
    ],
)
def test_other_files_and_former_formats_are_refused(
    tmp_path: Path, text: str, message: str
) -> None:
    file = tmp_path / "calls"
    file.write_text(text, "utf-8")

    with pytest.raises(RecordingUnusable, match=message):
        read_recording(file)


def test_long_texts_are_cut_and_the_longest_left_out(tmp_path: Path) -> None:
    file = write(
        tmp_path / "calls",
        content(1, "x" * 30_000, "short"),
        content(2, "x" * (MAX_SCANNED_CHARS + 1), "short"),
        called(3, "before_turn", [["x" * 20_000] * 10] * (MAX_LINE_BYTES // 200_000)),
    )

    found = read_recording(file)

    assert file.stat().st_size < 100_000
    assert [call.is_shortened for call in found.calls] == [True, True]
    assert found.problems == ("line 4: call 3 of 'before_turn' is too long; left out",)


def test_secrets_are_masked_in_texts_arguments_keys_and_errors() -> None:
    def redact(data: JsonObject) -> JsonObject:
        text: JsonObject = json.loads(json.dumps(data).replace("s3cr3t-value", "****"))
        return text

    arguments: JsonObject = {
        "s3cr3t-value": ["s3cr3t-value"],
        "h": "Authorization: Bearer abcdefghij",
    }
    call = HookCalled(
        number=1,
        hook="authorize_tool_call",
        revision=1,
        event=ToolCall("1", "x", arguments),
        answer="s3cr3t-value",
        error="failed with s3cr3t-value",
    )

    line = call_line(call, redact)

    assert "s3cr3t-value" not in line
    assert "abcdefghij" not in line
    assert line.count("****") >= 4


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=10,
)


@given(VALUES, st.text(max_size=30), st.booleans())
def test_events_read_back_are_equal(arguments: object, text: str, is_mixed: bool) -> None:
    message = Message(
        role="assistant",
        content=(TextBlock(text),) if is_mixed else text,
        tool_calls=(ToolCall("1", "x", {"value": arguments}),),  # type: ignore[dict-item]
    )
    event = TurnStarted(turn=TURN, message=message)
    reader = ValueReader()

    assert reader.read(TurnStarted, json.loads(json.dumps(plain_data(event))), "event") == event
    assert reader.problems == []


@settings(max_examples=200)
@given(st.binary(max_size=300))
def test_any_content_after_the_header_is_read_or_reported(
    tmp_path_factory: pytest.TempPathFactory, data: bytes
) -> None:
    file = tmp_path_factory.mktemp("any") / "calls"
    file.write_bytes(header_line().encode() + data)

    found = read_recording(file)

    assert isinstance(found, Recording)
    assert found.problems or not data
