"""Turns with presets, and with what is known of models: windows, images, prices."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from nanobot_core import InboundMessage, Nanobot
from nanobot_core.events import NoticeGiven
from nanobot_core.testing import OpenAIServer, Reply
from nanobot_core.turns.request import TurnRequest
from tests.integration.test_turns_over_http import serving
from tests.unit.agent.conftest import PIXEL

pytestmark = pytest.mark.anyio

FACTS = {
    "name": "small",
    "window_tokens": 4_000,
    "max_answer_tokens": 500,
    "input_usd": 1.0,
    "output_usd": 2.0,
    "abilities": ["tools"],
}


def know(home: Path, *models: dict[str, Any]) -> None:
    (home / "models").mkdir()
    (home / "models" / "custom.json").write_text(json.dumps(models))


async def test_a_preset_is_used_by_name_with_its_own_settings(tmp_path: Path) -> None:
    presets = {
        "fast": "custom/small",
        "strong": {"model": "custom/large", "temperature": 0.5, "max_tokens": 9_000},
    }
    replies = [Reply(text="hello")] * 3
    settings: dict[str, Any] = {
        "agents__defaults__model": "strong",
        "agents__defaults__temperature": 0.1,
    }
    async with serving(tmp_path, *replies, models=presets, **settings) as (bot, server):
        outcomes = [await bot.run("hi", model=name) for name in (None, "fast", "custom/other")]
    sent = [request.body for request in server.requests]
    assert [body["model"] for body in sent] == ["large", "small", "other"]
    assert [body["temperature"] for body in sent] == [0.5, 0.1, 0.1]
    assert [body["max_tokens"] for body in sent] == [9_000, 8_192, 8_192]
    assert outcomes[0].model == "custom/large"


async def test_a_preset_names_its_own_fallbacks(tmp_path: Path) -> None:
    presets = {
        "strong": {"model": "custom/large", "fallback_models": ["fast"]},
        "fast": {"model": "custom/small", "max_tokens": 100},
    }
    refused = [Reply(status=503, body=b"{}")] * 4
    chosen: dict[str, Any] = {"agents__defaults__model": "strong"}
    async with serving(tmp_path, *refused, models=presets, **chosen) as (bot, server):
        outcome = await bot.run("hi")
    assert (outcome.model, server.requests[-1].body["max_tokens"]) == ("custom/small", 100)


async def test_a_request_keeps_within_the_known_window_and_answer(tmp_path: Path) -> None:
    know(tmp_path, FACTS)
    async with serving(
        tmp_path, Reply(text="first"), agents__defaults__model="custom/small-2026-01-01"
    ) as (bot, server):
        await bot.run("x" * 16_000)
        await bot.run("now")
    assert server.requests[0].body["max_tokens"] == 500
    _, summary, _ = server.requests
    assert "Write plain notes" in json.dumps(summary.body)


async def test_a_model_known_to_accept_no_images_gets_none(tmp_path: Path) -> None:
    know(tmp_path, FACTS)
    (tmp_path / "dot.png").write_bytes(PIXEL)
    async with serving(tmp_path, agents__defaults__model="custom/small") as (bot, server):
        events = [event async for event in bot.stream("look", media=[str(tmp_path / "dot.png")])]
    assert "image_url" not in json.dumps(server.requests[0].body)
    assert len(server.requests) == 1
    assert [event.text for event in events if isinstance(event, NoticeGiven)] == [
        "custom/small accepts no images; it answers without them"
    ]


async def test_a_call_without_a_cost_is_priced_by_the_list(tmp_path: Path) -> None:
    know(tmp_path, FACTS)
    async with serving(tmp_path, agents__defaults__model="custom/small") as (bot, _):
        outcome = await bot.run("hi")
    assert outcome.usage.estimated_usd == 20e-6


async def test_the_owner_chooses_the_model_of_a_session_until_further_notice(
    tmp_path: Path,
) -> None:
    know(tmp_path, FACTS)
    settings: dict[str, Any] = {"agents__defaults__model": "strong"}
    presets = {"strong": "custom/large", "fast": "custom/small"}

    async def say(bot: Nanobot, text: str, *, is_owner: bool = True) -> str | None:
        message = InboundMessage(channel="t", sender_id="me", chat_id="1", content=text)
        outcome = await bot.process_direct(TurnRequest(message=message, is_owner=is_owner))
        return outcome.model or outcome.reply

    async with serving(tmp_path, models=presets, **settings) as (bot, _):
        assert await say(bot, "/model") == (
            "Model: strong (custom/large)\n\nPresets (/model NAME):\n- strong: custom/large\n"
            "- fast: custom/small"
        )
        refused = await say(bot, "/model fast", is_owner=False)
        assert refused == "Only the owner can choose the model of a conversation."
        assert await say(bot, "/model fast") == (
            "This conversation now uses fast (custom/small), served by custom, for $1 per million "
            "tokens of requests and $2 per million of answers."
        )
    async with serving(tmp_path, models=presets, **settings) as (bot, _):
        assert await say(bot, "hi") == "custom/small"
        assert await say(bot, "/model fsat") == (
            "This conversation now uses fsat, served by custom. Did you mean fast?"
        )
        assert await say(bot, "/model default") == (
            "This conversation uses the configured model again: strong (custom/large)."
        )
        assert await say(bot, "hi") == "custom/large"


async def test_a_service_that_refuses_the_key_is_left_out_of_later_turns(tmp_path: Path) -> None:
    preset = {"model": "openai/gpt-5", "fallback_models": ["custom/small"]}
    async with OpenAIServer(default=Reply(status=401, body=b"{}")) as refusing:
        settings: dict[str, Any] = {
            "agents__defaults__model": "strong",
            "providers__openai__api_base": refusing.url,
            "providers__openai__api_key": "key-of-the-test-7",
        }
        async with serving(tmp_path, models={"strong": preset}, **settings) as (bot, server):
            outcomes = [await bot.run(text) for text in ("one", "two")]
    assert [outcome.model for outcome in outcomes] == ["custom/small"] * 2
    assert (len(refusing.requests), len(server.requests)) == (1, 2)
    assert "authorization" not in server.requests[0].headers
