"""Who changes the beginning of requests, which voids the provider's prompt cache, pays for it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pytest
from loguru import logger

from nanobot_core import (
    ContextBlock,
    ContextRequested,
    InboundMessage,
    Nanobot,
    PluginContext,
    PluginFacts,
    Tool,
    ToolContext,
    ToolDefinition,
    ToolsOffered,
    on,
    tool,
)
from nanobot_core.plugins.health import PluginReport
from nanobot_core.turns.request import TurnRequest
from tests.integration.conftest import Start
from tests.scripted_provider import ScriptedPlugin

pytestmark = pytest.mark.anyio
ANSWERS = ("one", "two", "three")
RULES = "Be brief. " * 40


@pytest.fixture
def log() -> Iterator[list[tuple[str, object]]]:
    """What is logged about the cache, with the plugin that it is about."""
    found: list[tuple[str, object]] = []
    number = logger.add(
        lambda message: found.append(
            (message.record["message"], message.record["extra"].get("plugin"))
        ),
        filter=lambda record: "prompt cache" in record["message"],
    )
    yield found
    logger.remove(number)


class Rules:
    """Adds a stable passage."""

    def __init__(self) -> None:
        self.text = RULES

    @on.gather_context
    def gather(self, event: ContextRequested) -> Iterable[ContextBlock]:
        yield ContextBlock(name="Rules", text=self.text, placement="stable")


class Publisher:
    """Publishes tools while the program runs."""

    ctx: PluginContext

    @on.describe_plugin
    def describe_plugin(self) -> PluginFacts:
        return PluginFacts(tool_names=("look_*",))

    @on.start
    def start(self, ctx: PluginContext) -> None:
        self.ctx = ctx
        self.publish("Look at it.")

    def publish(self, description: str) -> None:
        self.ctx.tools.replace([look_up(description)])


class Taker:
    """Takes tools from the model."""

    def __init__(self) -> None:
        self.takes = False

    @on.rewrite_tools
    def take(self, event: ToolsOffered) -> tuple[ToolDefinition, ...] | None:
        return () if self.takes else None


def look_up(description: str) -> Tool:
    async def look_up(context: ToolContext, word: str) -> str:
        return word

    look_up.__doc__ = description
    return tool(look_up)


def reported(bot: Nanobot) -> dict[str, PluginReport]:
    return {each.id: each for each in bot.plugins.reports()}


def costs_of(bot: Nanobot) -> dict[str, tuple[int, bool]]:
    """Return by plugin the cache misses that it caused, and whether tokens were lost."""
    return {
        key: (each.costs.cache_misses, each.costs.lost_tokens > 0)
        for key, each in reported(bot).items()
        if each.costs.cache_misses
    }


@pytest.mark.promise(35, 46)
async def test_a_passage_is_counted_and_its_change_is_charged(
    start: Start, log: list[tuple[str, object]]
) -> None:
    rules = Rules()
    async with start(ScriptedPlugin(*ANSWERS), plugins=[rules]) as bot:
        for _ in range(2):
            await bot.run("hi")
        before, tokens = costs_of(bot), reported(bot)["kit0"].costs.passage_tokens
        rules.text = RULES.upper()
        await bot.run("hi")
        after = reported(bot)["kit0"].costs

    assert before == {}
    assert tokens == pytest.approx(len(RULES) / 4, abs=5)
    assert after.cache_misses == 1
    assert after.lost_tokens >= tokens, "the passage itself, and all that comes after it"
    assert log == [
        ("the stable block kit0/Rules changed, which voids the provider's prompt cache", "kit0")
    ]


@pytest.mark.promise(46)
async def test_a_tool_that_changes_is_charged_to_its_plugin(
    start: Start, log: list[tuple[str, object]]
) -> None:
    publisher = Publisher()
    async with start(ScriptedPlugin(*ANSWERS), plugins=[publisher, Rules()]) as bot:
        await bot.run("hi")
        publisher.publish("Look at it.")
        await bot.run("hi")
        same = costs_of(bot)
        publisher.publish("Look at it closely.")
        await bot.run("hi")
        changed, line = costs_of(bot), reported(bot)["kit0"].line

    assert same == {}, "a tool that is published again is the same for the model"
    assert changed == {"kit0": (1, True)}
    assert log[0][0].startswith("the tool look_up changed")
    assert "prompt cache missed 1 time" in line


@pytest.mark.promise(46)
async def test_who_takes_a_tool_from_the_model_pays_and_not_the_tools_plugin(
    start: Start,
) -> None:
    taker = Taker()
    async with start(ScriptedPlugin(*ANSWERS), plugins=[Publisher(), taker]) as bot:
        await bot.run("hi")
        taker.takes = True
        await bot.run("hi")
        taker.takes = False
        await bot.run("hi")
        found = costs_of(bot)

    assert found == {"kit1": (2, True)}


@pytest.mark.promise(46)
async def test_other_senders_have_other_tools_at_no_cost(start: Start) -> None:
    async with start(ScriptedPlugin(*ANSWERS), plugins=[Publisher()]) as bot:
        for sender, is_owner in (("me", True), ("guest", False), ("me", True)):
            message = InboundMessage(
                channel="cli", sender_id=sender, chat_id="group", content="hi", is_group=True
            )
            await bot.process_direct(TurnRequest(message=message, is_owner=is_owner))
        found = costs_of(bot)

    assert found == {}
