"""One conversation that moves between four services, each as strict as the real one.

OpenAI's chat completions, Anthropic's messages, Gemini through LiteLLM, and Mistral's form of
OpenAI's protocol see the same history: calls and results of each other, an image, thinking, and
calls that were made before a fallback took over.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter

from nanobot_core import JsonValue, Nanobot
from nanobot_core.config.loading import load_config
from nanobot_core.events import NoticeGiven, TurnOutcome
from nanobot_core.plugins.catalogue import Catalogue
from nanobot_core.plugins.index import load_installed
from nanobot_core.testing import (
    AnthropicServer,
    GeminiServer,
    ModelServer,
    OpenAIServer,
    Reply,
    ScriptedCall,
    StrictService,
)
from nanobot_core.tools import tool
from tests.unit.agent.conftest import PIXEL, HastyClock

PLUGINS = ("openai", "anthropic", "litellm")
for plugin in PLUGINS:
    try:
        version(f"nanobot-{plugin}")
    except PackageNotFoundError:
        pytest.skip(f"nanobot-{plugin} is not installed", allow_module_level=True)

pytestmark = [pytest.mark.anyio, pytest.mark.xdist_group("litellm")]

OPENAI, CLAUDE, GEMINI, MISTRAL = (
    "openai/gpt-4.1", "anthropic/claude-sonnet-4-5", "litellm/gemini/gemini-2.5-flash",
    "mistral/mistral-large-latest",
)  # fmt: skip
_LIMIT_S = 120.0
"""The import of litellm takes long on a busy machine."""
OVERLOADED = Reply(status=529, body=b'{"type": "error", "error": {"type": "overloaded_error"}}')


@tool(read_only=True)
def add(first: int, second: int) -> str:
    """Add."""
    return str(first + second)


def _adding(first: int, second: int, call_id: str, **more: str) -> Reply:
    arguments = json.dumps({"first": first, "second": second})
    return Reply(calls=(ScriptedCall(name="add", arguments=arguments, id=call_id),), **more)  # type: ignore[arg-type]  # texts only


@dataclass(frozen=True, slots=True)
class Services:
    """The four services, each with what it answers in order."""

    openai: OpenAIServer
    anthropic: AnthropicServer
    gemini: GeminiServer
    mistral: OpenAIServer

    def bodies(self, name: str) -> list[dict[str, Any]]:
        """Return what one of them was sent."""
        server: ModelServer = getattr(self, name)
        return [request.body for request in server.requests]


@asynccontextmanager
async def _conversation(
    folder: Path, replies: Mapping[str, Sequence[Reply]]
) -> AsyncIterator[tuple[Nanobot, Services]]:
    async with AsyncExitStack() as opened:
        services = Services(
            await opened.enter_async_context(OpenAIServer(replies["openai"])),
            await opened.enter_async_context(AnthropicServer(replies["anthropic"])),
            await opened.enter_async_context(GeminiServer(replies["gemini"])),
            await opened.enter_async_context(
                OpenAIServer(default=StrictService("mistral", replies["mistral"]))
            ),
        )
        values: dict[str, JsonValue] = {
            "agents.defaults.model": OPENAI,
            "agents.defaults.fallback_models": [GEMINI],
            "agents.defaults.reasoning_effort": "low",
            "agents.defaults.workspace": str(folder / "workspace"),
            "providers.openai": {"api_key": "sk-1", "api_base": services.openai.url},
            "providers.anthropic": {"api_key": "sk-2", "api_base": services.anthropic.url},
            "providers.litellm": {"api_key": "sk-3", "api_base": services.gemini.url},
            "providers.mistral": {"api_key": "sk-4", "api_base": services.mistral.url},
        }
        loaded = load_config(None, environ={}, overrides=values, home=folder)
        installed = [item for item in load_installed(folder / "cache") if item.id in PLUGINS]
        bot = Nanobot(
            loaded,
            clock=HastyClock(),
            environ={},
            catalogue=Catalogue(installed, loaded.settings.plugins),
        )
        await opened.enter_async_context(asyncio.timeout(_LIMIT_S))
        await opened.enter_async_context(bot)
        bot.tools.register(add)
        yield bot, services


async def _reply(bot: Nanobot, text: str, model: str, *media: str) -> str | None:
    outcome = await bot.run(text, session="sdk:four", model=model, media=media)
    assert outcome.error is None, outcome.error
    return outcome.reply


@pytest.mark.timeout(150)
async def test_one_conversation_runs_over_four_services_with_a_fallback_in_the_middle(
    tmp_path: Path,
) -> None:
    image = tmp_path / "pixel.png"
    image.write_bytes(PIXEL)
    document = tmp_path / "offer.pdf"
    document.write_bytes(b"%PDF-1.7")
    replies = {
        "openai": [_adding(1, 2, "call/odd:id"), Reply(text="three"), Reply(text="all seen")],
        "anthropic": [
            _adding(3, 4, "toolu_1", reasoning="They want a sum."),
            Reply(text="seven"),
            _adding(5, 6, "toolu_2", reasoning="Another sum."),
            *[OVERLOADED] * 4,
            Reply(text="still here"),
        ],
        "gemini": [_adding(7, 8, "g1"), Reply(text="eleven and fifteen")],
        "mistral": [_adding(9, 1, "abcDEF123"), Reply(text="ten")],
    }
    async with _conversation(tmp_path, replies) as (bot, services):
        shown = str(image)
        assert await _reply(bot, "Add. What is it?", OPENAI, shown, str(document)) == "three"
        assert await _reply(bot, "And these?", CLAUDE, shown, str(document)) == "seven"

        files = [shown, str(document)]
        turn = bot.stream("More", session="sdk:four", model=CLAUDE, media=files)
        events = [event async for event in turn]
        fallen = events[-1]
        assert isinstance(fallen, TurnOutcome)
        assert (fallen.reply, fallen.error) == ("eleven and fifteen", None)
        notices = [event.text for event in events if isinstance(event, NoticeGiven)]
        assert sum(f"trying {GEMINI}" in text for text in notices) == 1, notices

        assert await _reply(bot, "Once more", MISTRAL) == "ten"
        bot.cool_downs.clear()
        assert await _reply(bot, "Are you there?", CLAUDE) == "still here"
        assert await _reply(bot, "What do you see?", OPENAI) == "all seen"

        _check_history(services)
        _check_published_types(services)


def _check_history(services: Services) -> None:
    """Each service has seen all that was said before, in its own form."""
    last = {name: json.dumps(services.bodies(name)[-1]) for name in ("openai", "anthropic")}
    for text in ("Add. What is it?", "three", "seven", "eleven and fifteen", "ten"):
        assert text in last["openai"]
        assert text in last["anthropic"]
    # Each service has seen the image of its turn, and the thinking went back to its own only.
    assert "image_url" in json.dumps(services.bodies("openai")[0])
    assert '"media_type": "image/png"' in json.dumps(services.bodies("anthropic")[0])
    assert "image/png" in json.dumps(services.bodies("gemini")[0])
    # Two are known to read the document; the fallback learns where it is.
    assert "data:application/pdf;base64," in json.dumps(services.bodies("openai")[0])
    assert '"media_type": "application/pdf"' in json.dumps(services.bodies("anthropic")[0])
    assert "offer.pdf left out" in json.dumps(services.bodies("gemini")[0])
    assert "They want a sum." in last["anthropic"]
    assert "They want a sum." not in last["openai"]
    # The calls that were made before the fallback have not been repeated.
    assert last["openai"].count('"11"') == 1


def _check_published_types(services: Services) -> None:
    """The requests have the forms that the vendors' packages publish, if these are installed."""
    anthropic = pytest.importorskip("anthropic.types")
    chat = pytest.importorskip("openai.types.chat.completion_create_params")
    kinds = {"openai": chat.CompletionCreateParams, "anthropic": anthropic.MessageCreateParams}
    for name, kind in kinds.items():
        published = TypeAdapter(kind)
        for body in services.bodies(name):
            _read(published.validate_python(body))


def _read(value: object) -> None:
    """Read the iterators in `value`, whose elements are validated only then."""
    parts = value.values() if isinstance(value, Mapping) else value
    if isinstance(parts, Iterable) and not isinstance(parts, str | bytes):
        for part in parts:
            _read(part)
