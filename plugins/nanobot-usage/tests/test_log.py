from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING

import pytest
from loguru import logger

from nanobot_core import (
    ApprovalResolved,
    ErrorRaised,
    JsonObject,
    Nanobot,
    Tool,
    ToolCall,
    ToolContext,
    TurnInfo,
)
from nanobot_core.testing import FakePluginContext, FakeReply
from nanobot_usage.plugin import UsagePlugin

if TYPE_CHECKING:
    from pathlib import Path

    from loguru import Record

pytestmark = pytest.mark.anyio

LIMIT_S = 5.0
TURN = TurnInfo(
    id="turn-1",
    session_key="cli:direct",
    channel="cli",
    chat_id="direct",
    sender_id="user",
    source="cli",
)
CALL = ToolCall("1", "exec", {"command": "secret words"})


@pytest.fixture
def records() -> Iterator[list[Record]]:
    found: list[Record] = []
    sink = logger.add(lambda message: found.append(message.record), level="TRACE", format="")
    yield found
    logger.remove(sink)


async def test_a_turn_leaves_a_line_for_each_step_and_none_of_its_words(
    start: Callable[..., AbstractAsyncContextManager[Nanobot]],
    reply: Callable[..., FakeReply],
    records: list[Record],
) -> None:
    steps = (FakeReply(tool_calls=(ToolCall("1", "nothing", {}),)), reply("private answer"))
    async with start(*steps) as bot:
        bot.tools.register(NothingTool())
        async with asyncio.timeout(LIMIT_S):
            await bot.run("private question")

    own = [record for record in records if record["extra"].get("plugin") == "usage-here"]
    texts = [record["message"] for record in own]
    for beginning in (
        "turn started by sdk",
        "calling script/large with ",
        "script/large answered in ",
        "tool nothing ended after ",
        "turn completed after ",
    ):
        assert any(text.startswith(beginning) for text in texts), beginning
    assert not any("private" in text for text in texts)
    answered = next(record for record in own if "answered" in record["message"])
    assert answered["extra"]["first_token_s"] >= 0
    assert answered["extra"]["session"] == "sdk:default"


async def test_what_a_scripted_turn_does_not_reach_is_logged_too(
    tmp_path: Path, records: list[Record]
) -> None:
    plugin = UsagePlugin()
    async with FakePluginContext(tmp_path) as context:
        await plugin.start(context)
        plugin.on_error(ErrorRaised(id="e1", place="job", error_type="OSError", message="m"))
        plugin.on_error(
            ErrorRaised(id="e2", place="turn", error_type="OSError", message="m", turn=TURN)
        )
        plugin.after_approval(
            ApprovalResolved(turn=TURN, id="a", call=CALL, allowed=False, by="owner")
        )

    assert [record["message"] for record in records] == [
        "job failed: OSError",
        "turn failed: OSError",
        "exec refused by owner",
    ]
    assert "turn" not in records[0]["extra"]
    assert records[1]["extra"]["turn"] == "turn-1"


def test_a_hook_before_the_start_says_so() -> None:
    with pytest.raises(RuntimeError, match="before its start hook"):
        UsagePlugin()._books  # noqa: B018 - reading it is the point


class NothingTool(Tool):
    name = "nothing"
    description = "Do nothing."
    parameters: JsonObject = {"type": "object", "properties": {}}  # noqa: RUF012 - the contract has it so

    async def execute(self, context: ToolContext, arguments: JsonObject) -> str:
        return "done"
