from __future__ import annotations

from pathlib import Path

import pytest

from nanobot_core import (
    ChatRequest,
    Completed,
    LLMProvider,
    LLMResponse,
    Message,
    TextDelta,
    ToolCall,
    ToolCallDelta,
    ToolDefinition,
)
from nanobot_core.testing import FakePluginContext
from nanobot_offline.answer import INTRODUCTION
from nanobot_offline.plugin import contribute_providers
from nanobot_offline.provider import create_provider
from nanobot_offline.settings import OfflineSettings

LIST_DIR = ToolDefinition(
    name="list_dir",
    description="List a folder. Use glob to search.",
    parameters={
        "type": "object",
        "properties": {
            "path": {"type": "string"},
            "recursive": {"type": "boolean"},
            "depth": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
            "order": {"type": ["string", "null"]},
            "anything": {},
            "odd": True,
        },
        "required": ["path"],
    },
)
READ_FILE = ToolDefinition(
    name="read_file", description="Read a file.", parameters={"type": "object"}
)
TOOLS = (LIST_DIR, READ_FILE)
FIRST = 'list_dir {"path": "."} then read_file {"path": "README.md", "limit": 5}'
RUNTIME = "[Runtime context: metadata, not instructions]\nTime: now\n[End of runtime context]\n\n"


def user(text: str) -> Message:
    return Message(role="user", content=text)


def asks(*calls: ToolCall) -> Message:
    return Message(role="assistant", tool_calls=calls)


def result(call: ToolCall, text: str, *, is_error: bool = False) -> Message:
    return Message(
        role="tool", content=text, tool_call_id=call.id, name=call.name, is_error=is_error
    )


@pytest.fixture
def provider(tmp_path: Path) -> LLMProvider:
    context = FakePluginContext(tmp_path)
    (spec,) = contribute_providers(context)
    return create_provider(context, spec, OfflineSettings())


async def ask(provider: LLMProvider, *messages: Message) -> LLMResponse:
    return await provider.chat(ChatRequest(messages=messages, model="offline", tools=TOOLS))


@pytest.mark.anyio
async def test_the_first_command_of_the_readme_becomes_two_steps_and_a_report(
    provider: LLMProvider,
) -> None:
    history = [Message(role="system", content="rules"), user(RUNTIME + FIRST)]

    first = await ask(provider, *history)
    assert [(call.name, call.arguments) for call in first.tool_calls] == [
        ("list_dir", {"path": "."})
    ]
    assert (first.finish_reason, first.content) == ("tool_calls", None)
    history += [asks(*first.tool_calls), result(first.tool_calls[0], "README.md")]

    second = await ask(provider, *history)
    assert [(call.name, call.arguments) for call in second.tool_calls] == [
        ("read_file", {"path": "README.md", "limit": 5})
    ]
    assert second.tool_calls[0].id != first.tool_calls[0].id
    history += [asks(*second.tool_calls), result(second.tool_calls[0], "1|# nanobot")]

    last = await ask(provider, *history)
    assert last.finish_reason == "stop"
    assert last.content == (
        f'{INTRODUCTION}\n\n**list_dir** `{{"path": "."}}`:\n\n```\nREADME.md\n```\n\n'
        '**read_file** `{"path": "README.md", "limit": 5}`:\n\n```\n1|# nanobot\n```'
    )


@pytest.mark.anyio
async def test_calls_joined_by_and_come_in_one_response(provider: LLMProvider) -> None:
    response = await ask(provider, user('list_dir {"path": "a"} and list_dir {"path": "b"}'))

    assert [call.arguments for call in response.tool_calls] == [{"path": "a"}, {"path": "b"}]
    assert len({call.id for call in response.tool_calls}) == 2


@pytest.mark.anyio
async def test_failures_and_fences_in_results_stay_readable(provider: LLMProvider) -> None:
    call = ToolCall("1", "read_file", {"path": "`a`"})

    response = await ask(
        provider,
        user('read_file {"path": "`a`"}'),
        asks(call),
        result(call, "```\ncode\n```", is_error=True),
    )

    assert response.content == (
        f'{INTRODUCTION}\n\n**read_file** ``{{"path": "`a`"}}`` failed:\n\n'
        "````\n```\ncode\n```\n````"
    )


@pytest.mark.anyio
async def test_only_the_newest_user_message_counts(provider: LLMProvider) -> None:
    call = ToolCall("1", "list_dir", {})

    response = await ask(
        provider, user("list_dir"), asks(call), result(call, "x"), user("read_file")
    )

    assert [call.name for call in response.tool_calls] == ["read_file"]


@pytest.mark.anyio
@pytest.mark.parametrize(
    "before", ["", RUNTIME, f"{RUNTIME}## Memory\n\nYou like grep {{}}.\n\nlist_dir and\n\n"]
)
async def test_what_stands_before_the_users_words_adds_nothing(
    provider: LLMProvider, before: str
) -> None:
    response = await ask(provider, user(f'{before}read_file {{"path": "a\\n\\nb",\n\n"limit": 1}}'))

    assert [(call.name, call.arguments) for call in response.tool_calls] == [
        ("read_file", {"path": "a\n\nb", "limit": 1})
    ]
    assert "list_dir(" in str((await ask(provider, user(f"{before}Help!"))).content)


@pytest.mark.anyio
async def test_help_lists_the_tools_with_their_parameters(provider: LLMProvider) -> None:
    response = await ask(provider, user("help"))

    assert response.content is not None
    assert response.content.startswith(INTRODUCTION)
    assert (
        "- `list_dir(path: string, recursive?: boolean, depth?: integer or null, "
        "order?: string or null, anything?: any, odd?: any)` List a folder\n"
        "- `read_file()` Read a file.\n"
    ) in response.content
    assert 'For example: `list_dir {"path": "…"}`' in response.content


@pytest.mark.anyio
async def test_help_without_tools_says_how_to_get_some(provider: LLMProvider) -> None:
    response = await provider.chat(ChatRequest(messages=(user("help"),), model="offline"))

    assert "pip install" in str(response.content)


@pytest.mark.anyio
@pytest.mark.parametrize("text", ["Hello there", "", "what is grep?"])
async def test_other_text_is_reported_how_to_get_a_model(provider: LLMProvider, text: str) -> None:
    content = str((await ask(provider, user(text))).content)

    assert content.startswith(INTRODUCTION)
    assert "nanobot onboard" in content
    assert "pip install nanobot-openai" in content
    assert "agents.defaults.model" in content


@pytest.mark.anyio
async def test_a_misspelt_tool_is_named(provider: LLMProvider) -> None:
    content = str((await ask(provider, user('lst_dir {"path": "."}'))).content)

    assert content.startswith(INTRODUCTION)
    assert "There is no tool 'lst_dir' here" in content


@pytest.mark.anyio
async def test_tools_that_are_not_offered_are_not_called(provider: LLMProvider) -> None:
    request = ChatRequest(
        messages=(user("list_dir"),), model="offline", tools=TOOLS, tool_choice="none"
    )

    assert not (await provider.chat(request)).tool_calls
    assert not (await provider.chat(ChatRequest(messages=(), model="offline"))).tool_calls


@pytest.mark.anyio
async def test_answers_stream_in_pieces_that_add_up(provider: LLMProvider) -> None:
    request = ChatRequest(messages=(user("hello"),), model="offline")

    events = [event async for event in provider.chat_stream(request)]

    pieces = [event.text for event in events if isinstance(event, TextDelta)]
    assert len(pieces) > 1
    assert isinstance(events[-1], Completed)
    assert "".join(pieces) == events[-1].response.content


@pytest.mark.anyio
async def test_calls_are_announced_in_the_stream(provider: LLMProvider) -> None:
    request = ChatRequest(messages=(user("list_dir and read_file"),), model="offline", tools=TOOLS)

    events = [event async for event in provider.chat_stream(request)]

    assert events[:-1] == [ToolCallDelta(0, "list_dir"), ToolCallDelta(1, "read_file")]


@pytest.mark.anyio
async def test_usage_is_estimated_and_costs_nothing(provider: LLMProvider) -> None:
    request = ChatRequest(messages=(user("x" * 400),), model="offline")

    response = await provider.chat(request)

    assert response.usage.prompt_tokens == 100
    assert response.usage.completion_tokens == -(-len(str(response.content)) // 4)
    assert response.usage.cost_usd == 0
