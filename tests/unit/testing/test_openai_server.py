"""The scripted model service, seen by a plain HTTP client."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from nanobot_core.testing import OpenAIServer, Reply, ScriptedCall

pytestmark = pytest.mark.anyio


def _ask(url: str, body: dict[str, Any] | None = None) -> tuple[int, bytes]:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data=data)  # noqa: S310 - an address of the test
    try:
        with urllib.request.urlopen(request, timeout=5) as response:  # noqa: S310 - as above
            return response.status, response.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read()


async def _chat(server: OpenAIServer, *messages: Any, **fields: Any) -> tuple[int, bytes]:
    body = {"messages": list(messages), **fields}
    return await asyncio.to_thread(_ask, f"{server.url}/chat/completions", body)


async def test_replies_come_in_the_order_of_the_script_and_then_the_echo() -> None:
    async with OpenAIServer([Reply(text="one")]) as server:
        server.extend(Reply(text="two"))
        texts = []
        for _ in range(3):
            _, raw = await _chat(server, {"role": "user", "content": "me"})
            texts.append(json.loads(raw)["choices"][0]["message"]["content"])
        parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
        _, raw = await _chat(server, {"role": "user", "content": parts})
    assert texts == ["one", "two", "me"]
    assert json.loads(raw)["choices"][0]["message"]["content"] == "a\nb"


async def test_a_streamed_answer_holds_the_same_as_a_whole_one() -> None:
    call = ScriptedCall(name="look", arguments="{broken", id="")
    reply = Reply(text="Grüße 🦀", reasoning="hm", calls=(call,), chunk_chars=2)
    async with OpenAIServer(default=reply) as server:
        _, raw = await _chat(server, stream=True)
        whole = json.loads((await _chat(server))[1])["choices"][0]
    events = [line[6:] for line in raw.decode().split("\n\n") if line]
    assert events.pop() == "[DONE]"
    chunks = [json.loads(event) for event in events]
    assert chunks.pop()["usage"]["total_tokens"] == 15
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks]
    assert "".join(delta.get("content", "") for delta in deltas) == whole["message"]["content"]
    assert whole["message"]["reasoning_content"] == "hm"
    assert whole["message"]["tool_calls"][0]["function"]["arguments"] == "{broken"
    assert chunks[-1]["choices"][0]["finish_reason"] == whole["finish_reason"] == "tool_calls"


async def test_requests_are_recorded_and_told_to_other_processes() -> None:
    async with OpenAIServer() as server:
        await _chat(server, {"role": "user", "content": "x"}, model="m")
        await server.wait_for_requests(1)
        told = json.loads((await asyncio.to_thread(_ask, f"{server.origin}/requests"))[1])
        assert server.requests[0].path == "/v1/chat/completions"
        assert server.requests[0].body["model"] == told[0]["body"]["model"] == "m"
        assert len(server.requests) == 1


async def test_other_paths_do_not_exist() -> None:
    async with OpenAIServer() as server:
        assert (await asyncio.to_thread(_ask, f"{server.url}/files"))[0] == 404
        assert (await asyncio.to_thread(_ask, f"{server.url}/models"))[0] == 200


async def test_leaving_the_server_ends_answers_that_wait() -> None:
    async with asyncio.timeout(5), asyncio.TaskGroup() as group:
        async with OpenAIServer([Reply(gate=asyncio.Event())]) as server:
            address = server.url.removeprefix("http://").removesuffix("/v1")
            host, _, port = address.partition(":")
            reader, writer = await asyncio.open_connection(host, int(port))
            writer.write(b"POST /v1/chat/completions HTTP/1.1\r\n\r\n")
            end = group.create_task(reader.read())
            await server.wait_for_requests(1)
        assert await end == b""
        writer.close()
        await writer.wait_closed()


def test_the_command_serves_a_script_to_another_process(tmp_path: Path) -> None:
    script = tmp_path / "script.json"
    replies = [{"body": "busy", "status": 503}, {"calls": [{"name": "look"}]}]
    script.write_text(
        json.dumps({"replies": replies, "default": {"text": "end", "delay_s": 0.001}})
    )
    command = [sys.executable, "-m", "nanobot_core.testing.openai_server", "--script", str(script)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        url = f"{process.stdout.readline().strip()}/chat/completions"
        answers = [_ask(url, {"messages": []}) for _ in range(3)]
        process.terminate()
    assert answers[0] == (503, b"busy")
    assert json.loads(answers[1][1])["choices"][0]["finish_reason"] == "tool_calls"
    assert json.loads(answers[2][1])["choices"][0]["message"]["content"] == "end"
