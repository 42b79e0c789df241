"""``POST /v1/chat/completions`` with well-formed requests."""

from __future__ import annotations

import base64
import io
import json
from typing import TYPE_CHECKING, Any

import pytest
from PIL import Image

if TYPE_CHECKING:
    from conftest import Gateway

TOOL = {
    "type": "function",
    "function": {"name": "get_weather", "parameters": {"type": "object", "properties": {}}},
}


def _picture() -> str:
    file = io.BytesIO()
    Image.new("RGB", (4, 4), "red").save(file, "PNG")
    return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()


def _chunks(text: str) -> list[Any]:
    lines = [line.removeprefix("data: ") for line in text.split("\n\n") if line]
    return [line if line == "[DONE]" else json.loads(line) for line in lines]


def test_the_messages_are_the_history_and_nothing_is_stored(gateway: Gateway) -> None:
    before, media = gateway.sessions(), {*(gateway.home / "media").glob("*")}
    messages = [
        {"role": "developer", "content": "Answer in Danish."},
        {"role": "user", "content": "my name is Ada"},
        {"role": "assistant", "content": "hello Ada"},
        {"role": "user", "content": [{"type": "text", "text": "what is my name-1?"}]},
    ]

    said = gateway.said("", messages=messages)

    assert said == "You said: what is my name-1?"
    [system, first, second, last] = gateway.model.asked("name-1").body["messages"]
    assert "Answer in Danish." not in system["content"]
    assert first == {"role": "user", "content": "my name is Ada"}
    assert second == {"role": "assistant", "content": "hello Ada"}
    assert "come below your own" in last["content"].partition("Answer in Danish.")[0]
    assert gateway.sessions() <= before
    assert {*(gateway.home / "media").glob("*")} <= media


def test_a_stream_has_the_order_that_clients_expect(gateway: Gateway) -> None:
    response = gateway.chat("hello", stream=True)

    assert response.headers["content-type"].startswith("text/event-stream")
    *chunks, done = _chunks(response.text)
    assert done == "[DONE]"
    assert chunks[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert [chunk["choices"][0]["finish_reason"] for chunk in chunks[:-1]] == [None] * (
        len(chunks) - 1
    )
    assert chunks[-1]["choices"][0] == {
        "index": 0,
        "delta": {},
        "logprobs": None,
        "finish_reason": "stop",
    }
    text = "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in chunks)
    assert text == "You said: hello"
    assert len({chunk["id"] for chunk in chunks}) == 1


def test_usage_is_streamed_only_on_request(gateway: Gateway) -> None:
    response = gateway.chat("hundred", stream=True, stream_options={"include_usage": True})

    last = _chunks(response.text)[-2]
    assert last["choices"] == []
    assert last["usage"]["total_tokens"] == 100
    assert gateway.chat("hundred").json()["usage"]["prompt_tokens"] == 70
    assert "usage" not in gateway.chat("hundred", stream=True).text


def test_the_agent_uses_its_tools_and_streams_what_it_says(gateway: Gateway) -> None:
    whole = gateway.said("look")
    stream = gateway.chat("look", stream=True)

    assert whole.startswith("It gave:")
    text = "".join(
        chunk["choices"][0]["delta"].get("content", "") for chunk in _chunks(stream.text)[:-1]
    )
    assert text == f"Let me look.\n\n{whole}"


def test_thinking_is_streamed_apart_from_the_answer(gateway: Gateway) -> None:
    chunks = _chunks(gateway.chat("think", stream=True).text)[:-1]

    deltas = [chunk["choices"][0]["delta"] for chunk in chunks]
    assert "".join(each.get("reasoning_content", "") for each in deltas) == "Let me count."
    assert "".join(each.get("content", "") for each in deltas) == "Forty-two."


def test_a_picture_reaches_the_model_and_is_not_kept(gateway: Gateway) -> None:
    content = [
        {"type": "text", "text": "what is this?"},
        {"type": "image_url", "image_url": {"url": _picture(), "detail": "low"}},
    ]
    messages = [{"role": "user", "content": content}]

    said = gateway.said("", messages=messages)
    plain = gateway.said("", messages=messages, model="nanobot-plain")

    assert said == "You said: what is this? (pictures: 1) (files: .png)"
    assert plain == "You said: what is this? (pictures: 1)"
    assert not [*(gateway.home / "media").glob("*/*")]


def test_earlier_pictures_are_named(gateway: Gateway) -> None:
    shown = {"role": "user", "content": [{"type": "image_url", "image_url": {"url": _picture()}}]}
    messages = [shown, {"role": "assistant", "content": "red"}, {"role": "user", "content": "why2"}]

    gateway.said("", messages=messages)

    assert "no longer shown" in gateway.model.asked("why2").body["messages"][1]["content"]


def test_the_plain_model_gets_the_callers_messages_and_nothing_else(gateway: Gateway) -> None:
    messages = [
        {"role": "system", "content": "Make a title."},
        {"role": "user", "content": "about cats-3"},
    ]

    gateway.said("", messages=messages, model="nanobot-plain", max_tokens=50)

    body = gateway.model.asked("cats-3").body
    assert body["messages"] == messages
    assert "tools" not in body
    assert body["max_tokens"] == 50


def test_the_callers_tools_are_passed_through(gateway: Gateway) -> None:
    question = {"role": "user", "content": "weather"}
    asked = gateway.chat("", model="custom/other", tools=[TOOL], messages=[question]).json()
    [choice] = asked["choices"]
    [call] = choice["message"]["tool_calls"]
    result = {"role": "tool", "tool_call_id": call["id"], "content": "rain-4"}
    answered = gateway.said(
        "", model="custom/other", tools=[TOOL], messages=[question, choice["message"], result]
    )

    assert choice["finish_reason"] == "tool_calls"
    assert choice["message"]["content"] is None
    assert call["function"] == {"name": "get_weather", "arguments": '{"city": "Oslo"}'}
    assert answered == "It gave: rain-4"
    body = gateway.model.asked("rain-4").body
    assert body["model"] == "other"
    assert body["tools"][0]["function"]["name"] == "get_weather"


def test_tool_calls_are_streamed_in_pieces(gateway: Gateway) -> None:
    response = gateway.chat("weather", model="custom/m", tools=[TOOL], stream=True)

    deltas = [chunk["choices"][0]["delta"] for chunk in _chunks(response.text)[:-1]]
    [first, second] = [delta["tool_calls"][0] for delta in deltas if "tool_calls" in delta]
    assert first["function"] == {"name": "get_weather", "arguments": ""}
    assert first["id"]
    assert second == {"index": 0, "function": {"arguments": '{"city": "Oslo"}'}}


@pytest.mark.parametrize("stream", [False, True])
def test_a_failed_model_call_is_an_error_that_is_not_repeated(
    gateway: Gateway, stream: bool
) -> None:
    agent = gateway.chat("fail", stream=stream)
    plain = gateway.chat("fail", stream=stream, model="nanobot-plain")

    assert agent.status_code == 500
    assert agent.headers["x-should-retry"] == "false"
    assert agent.json()["error"]["type"] == "server_error"
    assert plain.status_code == 400
    assert plain.json()["error"]["type"] == "invalid_request_error"


def test_an_answer_that_max_tokens_cuts_ends_with_length(gateway: Gateway) -> None:
    [choice] = gateway.chat("cut", model="nanobot-plain", max_tokens=2).json()["choices"]

    assert choice["finish_reason"] == "length"
    assert choice["message"]["content"] == "Half of"


def test_models_are_listed_and_found(gateway: Gateway) -> None:
    with gateway.client() as client:
        listed = client.get("/models").json()
        one = client.get("/models/custom/m")
        unknown = client.get("/models/custom/unknown-model")

    assert listed["object"] == "list"
    names = [model["id"] for model in listed["data"]]
    assert names[:2] == ["nanobot", "nanobot-plain"]
    assert "custom/m" in names
    assert one.json()["id"] == "custom/m"
    assert unknown.status_code == 404
    assert unknown.json()["error"]["code"] == "model_not_found"
