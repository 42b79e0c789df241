"""What guests and groups say stays out of the owner's memory, and the other way round."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from nanobot_core import ChatRequest, Completed, InboundMessage, LLMResponse, Nanobot, StreamEvent
from nanobot_core.testing import FakeProvider
from nanobot_core.turns.request import TurnRequest
from tests import scripted_provider
from tests.integration.conftest import agent
from tests.scripted_provider import ScriptedPlugin

pytestmark = pytest.mark.anyio

OWNER, GUEST = "1|ada", "2|eve"
PLACES = {
    "Quixote": (OWNER, "10", False),
    "Trabant": (GUEST, "20", False),
    "Rosebud": (GUEST, "-30", True),
    "Xanadu": (OWNER, "-40", True),
}


class Listener(FakeProvider):
    """Repeats every word that it was asked to remember, so that a summary has it."""

    async def chat_stream(self, request: ChatRequest) -> AsyncIterator[StreamEvent]:
        self.requests.append(request)
        words = re.findall(r"Remember the word (\w+)", request.messages[-1].text)
        answer = f"- The words are {', '.join(words)}." if words else "Which one?"
        yield Completed(LLMResponse(content=answer))


async def say(bot: Nanobot, text: str, word: str) -> None:
    sender, chat, is_group = PLACES[word]
    message = InboundMessage(
        channel="telegram", sender_id=sender, chat_id=chat, content=text, is_group=is_group
    )
    request = TurnRequest(message=message, source="chat", is_owner=sender == OWNER)
    assert (await bot.process_direct(request)).error is None


async def test_each_reads_what_was_said_in_their_own_memory(tmp_path: Path) -> None:
    pytest.importorskip("nanobot_memory", reason="nanobot-memory is not installed")
    from nanobot_memory import plugin

    script = ScriptedPlugin()
    script.provider = Listener(name=script.provider.name)
    scripted_provider._providers[script.provider.name] = script.provider
    bot = agent(tmp_path, script)
    await bot.plugins.register(script, "scripted")
    await bot.plugins.register(plugin, "memory")
    async with bot:
        for word in PLACES:
            await say(bot, f"Remember the word {word}.", word)
            await say(bot, "/new", word)
        for word in PLACES:
            await say(bot, "Which?", word)
    asked = [
        request for request in script.provider.requests if request.messages[-1].text.endswith("?")
    ]
    read = [
        [word for word in PLACES if any(word in each.text for each in request.messages)]
        for request in asked
    ]
    assert read == [[word] for word in PLACES]
