"""Clients that people use, against a real gateway."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import openai
import pytest

if TYPE_CHECKING:
    from conftest import Gateway

TOOL: Any = {
    "type": "function",
    "function": {"name": "get_weather", "parameters": {"type": "object", "properties": {}}},
}

LITELLM = """
import json, sys
import litellm
options = {"api_base": sys.argv[1], "api_key": sys.argv[2], "timeout": 30}
hello = [{"role": "user", "content": "hello"}]
tool = {"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object"}}}
whole = litellm.completion("openai/nanobot", hello, **options)
chunks = list(litellm.completion("openai/nanobot", hello, stream=True, **options))
weather = [{"role": "user", "content": "weather"}]
called = litellm.completion("openai/custom/m", weather, tools=[tool], **options)
print(json.dumps({
    "whole": whole.choices[0].message.content,
    "streamed": "".join(chunk.choices[0].delta.content or "" for chunk in chunks),
    "finish": chunks[-1].choices[0].finish_reason,
    "called": called.choices[0].message.tool_calls[0].function.name,
}))
"""


@pytest.fixture
def client(gateway: Gateway) -> openai.OpenAI:
    """The client of OpenAI with the key of a program."""
    return openai.OpenAI(base_url=gateway.url, api_key=gateway.key, timeout=30, max_retries=2)


def test_openai_has_a_conversation(client: openai.OpenAI) -> None:
    messages: list[Any] = [{"role": "user", "content": "one"}]
    first = client.chat.completions.create(model="nanobot", messages=messages)
    messages += [first.choices[0].message, {"role": "user", "content": "two"}]
    second = client.chat.completions.create(model="nanobot", messages=messages)

    assert first._request_id
    assert second.choices[0].message.content == "You said: two"
    assert second.usage is not None
    assert second.usage.total_tokens == 15
    assert [model.id for model in client.models.list()][:2] == ["nanobot", "nanobot-plain"]


def test_openai_streams(client: openai.OpenAI) -> None:
    with client.chat.completions.create(
        model="nanobot",
        messages=[{"role": "user", "content": "hello"}],
        stream=True,
        stream_options={"include_usage": True},
    ) as stream:
        chunks = list(stream)

    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == "You said: hello"
    assert chunks[-1].usage is not None


def test_openai_runs_its_own_tools(client: openai.OpenAI) -> None:
    with client.chat.completions.stream(
        model="custom/m", messages=[{"role": "user", "content": "weather"}], tools=[TOOL]
    ) as stream:
        [choice] = stream.get_final_completion().choices

    assert choice.finish_reason == "tool_calls"
    assert choice.message.tool_calls
    call: Any = choice.message.tool_calls[0]
    assert json.loads(call.function.arguments) == {"city": "Oslo"}


def test_openai_chains_responses(client: openai.OpenAI) -> None:
    first = client.responses.create(model="nanobot", input="one", instructions="Be kind.")
    with client.responses.stream(
        model="nanobot", input="two", previous_response_id=first.id
    ) as stream:
        kinds = [event.type for event in stream]
        second = stream.get_final_response()

    assert first.output_text == "You said: one"
    assert second.output_text == "You said: two"
    assert second.usage is not None
    assert kinds[:2] == ["response.created", "response.in_progress"]
    assert kinds[-1] == "response.completed"


def test_openai_calls_tools_by_responses(client: openai.OpenAI) -> None:
    tool: Any = {"type": "function", "name": "get_weather", "parameters": None, "strict": False}
    with client.responses.stream(model="custom/m", input="weather", tools=[tool]) as stream:
        call: Any = stream.get_final_response().output[0]
    result: Any = [
        {"role": "user", "content": "weather"},
        {
            "type": "function_call",
            "call_id": call.call_id,
            "name": call.name,
            "arguments": call.arguments,
        },
        {"type": "function_call_output", "call_id": call.call_id, "output": "rain"},
    ]
    answer = client.responses.create(model="custom/m", input=result, tools=[tool])

    assert json.loads(call.arguments) == {"city": "Oslo"}
    assert answer.output_text == "It gave: rain"


def test_openai_gets_typed_errors_and_repeats_no_turn(
    gateway: Gateway, client: openai.OpenAI
) -> None:
    mark = uuid4().hex
    with pytest.raises(openai.InternalServerError):
        client.chat.completions.create(
            model="nanobot", messages=[{"role": "user", "content": f"{mark}\nfail"}]
        )
    assert sum(mark in json.dumps(one.body) for one in gateway.model.requests) == 1
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("unknown")
    with pytest.raises(openai.AuthenticationError):
        client.with_options(api_key="wrong").models.list()
    with pytest.raises(openai.BadRequestError) as refused:
        client.chat.completions.create(model="nanobot", messages=[])
    assert refused.value.param == "messages"


def test_openai_finds_a_model_whose_name_has_a_slash(client: openai.OpenAI) -> None:
    assert client.models.retrieve("custom/m").id == "custom/m"


def test_a_stream_that_breaks_is_an_error_for_openai(
    gateway: Gateway, client: openai.OpenAI
) -> None:
    key = gateway.add_key("broken-stream")
    with client.with_options(api_key=key).chat.completions.create(
        model="nanobot", messages=[{"role": "user", "content": "stall"}], stream=True
    ) as stream:
        while not next(stream).choices[0].delta.content:
            pass
        gateway.command("revoke", "broken-stream")
        with pytest.raises(openai.APIError, match="revoked"):
            list(stream)


@pytest.mark.timeout(120)
def test_litellm_has_a_conversation(gateway: Gateway) -> None:
    if find_spec("litellm") is None:
        pytest.skip("LiteLLM is not installed")
    environment = {
        **gateway.environment,
        # Otherwise it asks for a table of prices when it is imported.
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    }
    done = subprocess.run(
        [sys.executable, "-c", LITELLM, gateway.url, gateway.key],
        env=environment,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {
        "whole": "You said: hello",
        "streamed": "You said: hello",
        "finish": "stop",
        "called": "get_weather",
    }


def test_a_request_in_the_form_of_open_webui_is_answered(gateway: Gateway) -> None:
    body = {
        "stream": True,
        "model": "nanobot",
        "messages": [
            {"role": "system", "content": "User Context:\n\n"},
            {"role": "user", "content": [{"type": "text", "text": "hello"}]},
        ],
        "stream_options": {"include_usage": True},
        "temperature": 0.8,
        "max_tokens": 1_000,
        "reasoning_effort": "medium",
        "logit_bias": {},
        "metadata": {"chat_id": "c"},
    }
    title = {
        "model": "nanobot-plain",
        "messages": [{"role": "user", "content": "### Task:\nGenerate a title"}],
        "stream": False,
        "max_completion_tokens": 1_000,
    }
    headers = {
        "Content-Type": "application/json",
        "X-OpenWebUI-User-Name": "Ada",
        "X-OpenWebUI-User-Email": "ada@example.org",
        "X-OpenWebUI-User-Role": "admin",
        "X-OpenWebUI-Chat-Id": "c",
    }
    with gateway.client(**headers) as client:
        models = client.get("/models")
        answer = client.post("/chat/completions", content=json.dumps(body))
        titled = client.post("/chat/completions", content=json.dumps(title))

    assert models.json()["data"][0]["id"] == "nanobot"
    assert _text(answer.text) == "You said: hello"
    assert titled.json()["choices"][0]["message"]["content"] == "You said: Generate a title"


def _text(stream: str) -> str:
    lines = [line[6:] for line in stream.splitlines() if line.startswith("data: {")]
    chunks = [json.loads(line) for line in lines]
    return "".join(
        chunk["choices"][0]["delta"].get("content", "") for chunk in chunks if chunk["choices"]
    )
