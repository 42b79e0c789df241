"""The stand-in of the Gemini API refuses what the real service refuses."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from nanobot_core.testing import GeminiServer, Reply, ScriptedCall

pytestmark = pytest.mark.anyio

PATH = "/models/test:generateContent"
CALL = {"functionCall": {"name": "look", "args": {"at": "here"}}}
RESULT = {"functionResponse": {"name": "look", "response": {"content": "seen"}}}


def _user(*parts: object) -> dict[str, Any]:
    return {"role": "user", "parts": list(parts)}


def _model(*parts: object) -> dict[str, Any]:
    return {"role": "model", "parts": list(parts)}


TEXT = {"text": "x"}


async def _post(
    server: GeminiServer, body: dict[str, Any], path: str = PATH, **headers: str
) -> httpx.Response:
    async with httpx.AsyncClient() as client:
        return await client.post(server.url + path, json=body, headers=headers)


@pytest.mark.parametrize(
    ("contents", "said"),
    [
        ([], "not specified"),
        ([_model(TEXT)], "must alternate"),
        ([_user(TEXT), _user(TEXT)], "must alternate"),
        ([_user(TEXT), {"role": "assistant", "parts": [TEXT]}], "must alternate"),
        ([_user()], "must not be empty"),
        ([_user({})], "exactly one field"),
        ([_user({"text": "x", "functionCall": {"name": "look"}})], "exactly one field"),
        ([_user(TEXT), _model(CALL, CALL), _user(RESULT)], "number of function response"),
        ([_user(TEXT), _model(TEXT), _user(RESULT)], "number of function response"),
        ([_user(TEXT), _model(CALL)], "must be followed by its response"),
    ],
)
async def test_an_irregular_history_is_refused(contents: list[object], said: str) -> None:
    async with GeminiServer() as server:
        response = await _post(server, {"contents": contents})
    assert response.status_code == 400
    assert said in response.json()["error"]["message"]


async def test_results_may_be_followed_by_the_user() -> None:
    contents = [_user(TEXT), _model(CALL), _user(RESULT), _user({"text": "go on"})]
    async with GeminiServer() as server:
        response = await _post(server, {"contents": contents})
    assert response.json()["candidates"][0]["content"]["parts"] == [{"text": "go on"}]


async def test_the_signature_of_a_call_must_come_back() -> None:
    call = ScriptedCall(name="look", arguments='{"at": "here"}')
    async with GeminiServer([Reply(calls=(call,))]) as server:
        answer = await _post(server, {"contents": [_user(TEXT)]})
        signed = answer.json()["candidates"][0]["content"]["parts"][0]
        without = await _post(server, {"contents": [_user(TEXT), _model(CALL), _user(RESULT)]})
        whole = await _post(server, {"contents": [_user(TEXT), _model(signed), _user(RESULT)]})
    assert "thought_signature" in without.json()["error"]["message"]
    assert whole.status_code == 200


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "additionalProperties": False},
        {"type": "object", "properties": {"a": {"type": "string", "const": "x"}}},
        {"type": "array", "items": {"$ref": "#/x"}},
        {"anyOf": [{"oneOf": []}]},
    ],
)
async def test_an_unknown_keyword_of_a_schema_is_refused(schema: dict[str, Any]) -> None:
    tools = [{"functionDeclarations": [{"name": "look", "parameters": schema}]}]
    async with GeminiServer() as server:
        response = await _post(server, {"contents": [_user(TEXT)], "tools": tools})
    assert "Unknown name" in response.json()["error"]["message"]


async def test_another_key_is_refused() -> None:
    async with GeminiServer(api_key="right") as server:
        wrong = await _post(server, {"contents": [_user(TEXT)]})
        right = await _post(server, {"contents": [_user(TEXT)]}, **{"x-goog-api-key": "right"})
    assert (wrong.status_code, right.status_code) == (400, 200)


async def test_a_stream_says_in_its_last_event_why_it_ends() -> None:
    path = "/models/test:streamGenerateContent?alt=sse"
    async with GeminiServer([Reply(text="one two", chunk_chars=4)]) as server:
        response = await _post(server, {"contents": [_user(TEXT)]}, path)
    events = [line for line in response.text.splitlines() if line]
    assert len(events) == 3
    assert ["finishReason" in event for event in events] == [False, False, True]
    assert "usageMetadata" in events[-1]
