from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from nanobot_core import (
    BadRequest,
    ChatRequest,
    Completed,
    ConfigInvalid,
    ConfigUnreadable,
    LLMProvider,
    Message,
    RateLimited,
    ReasoningDelta,
    TextDelta,
)
from nanobot_core.testing import FakeClock, FakePluginContext
from nanobot_offline.plugin import contribute_providers
from nanobot_offline.provider import create_provider
from nanobot_offline.script import load_script
from nanobot_offline.settings import OfflineSettings

REQUEST = ChatRequest(messages=(Message(role="user", content="hi"),), model="offline")


def scripted(tmp_path: Path, text: str) -> tuple[LLMProvider, FakeClock]:
    clock = FakeClock()
    context = FakePluginContext(tmp_path, clock=clock)
    (context.workspace / "demo.yaml").write_text(text, encoding="utf-8")
    (spec,) = contribute_providers(context)
    return create_provider(context, spec, OfflineSettings(script="demo.yaml")), clock


@pytest.mark.anyio
async def test_a_conversation_is_replayed_step_by_step(tmp_path: Path) -> None:
    provider, _ = scripted(
        tmp_path,
        """
- - think: What now?
  - text: "Looking, {user}. "
  - call: list_dir
    arguments: {path: .}
  - call: read_file
- error: RateLimited
  reason: too fast
  retry_after_s: 7
  status: 429
- text: 42
""",
    )

    first = await provider.chat(REQUEST)
    assert (first.reasoning, first.content) == ("What now?", "Looking, hi. ")
    assert [(call.name, call.arguments) for call in first.tool_calls] == [
        ("list_dir", {"path": "."}),
        ("read_file", {}),
    ]
    assert first.finish_reason == "tool_calls"
    assert len({call.id for call in first.tool_calls}) == 2

    with pytest.raises(RateLimited, match="provider 'offline': too fast") as raised:
        await provider.chat(REQUEST)
    assert (raised.value.retry_after_s, raised.value.status) == (7, 429)

    assert (await provider.chat(REQUEST)).content == "42"

    with pytest.raises(BadRequest, match=r"demo\.yaml' has ended after 3 steps"):
        await provider.chat(REQUEST)


@pytest.mark.anyio
async def test_delays_follow_the_clock(tmp_path: Path) -> None:
    provider, clock = scripted(tmp_path, "- [{think: a}, {text: b}, {delay_s: 30}, {text: c}]")
    seen: list[object] = []

    async def listen() -> None:
        async for event in provider.chat_stream(REQUEST):
            seen.append(event)  # noqa: PERF401 - looked at while it grows

    async with asyncio.timeout(5), asyncio.TaskGroup() as group:
        group.create_task(listen())
        await clock.wait_for_sleepers()
        assert seen == [ReasoningDelta("a"), TextDelta("b")]
        await clock.advance(29)
        assert len(seen) == 2
        await clock.advance(1)

    assert isinstance(seen[-1], Completed)
    assert seen[-1].response.content == "bc"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            "- text: a\n- - text: b\n  - txt: c\n",
            r"3: 1\.1: a part has one of the keys text, think",
        ),
        ("- error: Tired\n", r"1: 0\.error: Input should be 'AuthenticationFailed'"),
        ("- text: a\n- delay_s: -1\n", r"2: 1\.delay_s: .*greater than or equal to 0"),
        ("- call: x\n  arguments: 5\n", r"2: 0\.arguments: .*dictionary, found 5"),
        ("- text: a\n  loud: true\n", r"2: 0\.loud: Extra inputs"),
        ("- - error: Overloaded\n  - text: a\n", r"1: 0: Value error, an error ends the call"),
        ("text: a\n", r"1: script: Input should be a valid tuple"),
        ("", r"1: script: Input should be a valid tuple"),
        ("- 5\n", r"1: 0: a part has one of the keys"),
    ],
)
def test_a_bad_script_is_reported_with_file_and_line(
    tmp_path: Path, text: str, problem: str
) -> None:
    file = tmp_path / "bad.yaml"
    file.write_text(text, encoding="utf-8")

    with pytest.raises(ConfigInvalid, match=rf"bad\.yaml:{problem}"):
        load_script(file)


def test_text_that_is_not_a_yaml_is_reported_with_its_line(tmp_path: Path) -> None:
    file = tmp_path / "bad.yaml"
    file.write_text("- text: a\n- {text: b\n", encoding="utf-8")

    with pytest.raises(ConfigUnreadable, match=r"bad\.yaml.*line 3"):
        load_script(file)


def test_a_script_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigUnreadable, match=r"absent\.yaml"):
        load_script(tmp_path / "absent.yaml")
    (tmp_path / "latin.yaml").write_bytes(b"- text: \xff\n")
    with pytest.raises(ConfigUnreadable, match=r"latin\.yaml.*utf-8"):
        load_script(tmp_path / "latin.yaml")


def test_a_script_of_an_unknown_user_is_an_error_of_the_configuration(tmp_path: Path) -> None:
    context = FakePluginContext(tmp_path)
    (spec,) = contribute_providers(context)
    with pytest.raises(ConfigUnreadable, match=r"demo\.yaml': there is no such user"):
        create_provider(context, spec, OfflineSettings(script="~nobody-here/demo.yaml"))
