"""What the offline provider answers, decided from the request alone."""

from __future__ import annotations

import json
import re
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import replace

from nanobot_core import (
    ChatRequest,
    JsonObject,
    JsonValue,
    LLMResponse,
    Message,
    TextDelta,
    ToolCall,
    ToolDefinition,
    Usage,
    shorten,
)
from nanobot_offline.grammar import Misread, Plan, PlannedCall, Reading, parse_message

_PIECE_CHARS = 24
_CHARS_PER_TOKEN = 4


def text_pieces(text: str) -> Iterator[TextDelta]:
    """Yield `text` in pieces of a few words, as a model would."""
    for start in range(0, len(text), _PIECE_CHARS):
        yield TextDelta(text[start : start + _PIECE_CHARS])


def with_usage(response: LLMResponse, request: ChatRequest) -> LLMResponse:
    """Return `response` with tokens estimated at four characters each, and without cost."""
    sent = sum(len(message.text) + _call_chars(message.tool_calls) for message in request.messages)
    sent += sum(len(json.dumps(tool.to_schema())) for tool in request.tools)
    thought = len(response.reasoning or "")
    received = len(response.content or "") + thought + _call_chars(response.tool_calls)
    usage = Usage(
        prompt_tokens=_tokens(sent),
        completion_tokens=_tokens(received),
        reasoning_tokens=_tokens(thought),
        cost_usd=0.0,
    )
    return replace(response, usage=usage)


def _call_chars(calls: Iterable[ToolCall]) -> int:
    return sum(len(call.name) + len(json.dumps(call.arguments)) for call in calls)


def _tokens(chars: int) -> int:
    return -(-chars // _CHARS_PER_TOKEN)


INTRODUCTION = "I am nanobot's offline stand-in: no model, no network, I only carry out tool calls."
_HOW_TO_CALL = 'Write one as `tool {"argument": "value"}`; join several with `then` or `and`.'
_HOW_TO_GET_A_MODEL = """\
To talk to a model, do one of these:

- run `nanobot onboard`, which asks for provider, model and key;
- or set `agents.defaults.model` and `providers.<name>.api_key` in the configuration.

`nanobot providers list` shows the providers that are installed; to install one, run for example
`python3 -m pip install nanobot-openai`.

Until then, `help` lists the tools that I can run for you."""
_CONTEXT_BLOCK = re.compile(
    r"\s*\[runtime context\b[^\]]*\].*?\[end of runtime context\]", re.IGNORECASE | re.DOTALL
)
_GAP = re.compile(r"\n[ \t]*\n\s*")
_MAX_PARAGRAPHS = 50
_SUMMARY_CHARS = 160
_EXAMPLES: dict[str, JsonValue] = {
    "integer": 1,
    "number": 1,
    "boolean": True,
    "array": [],
    "object": {},
}


def answer(request: ChatRequest) -> LLMResponse:
    """Return the next step of what the newest user message asks for.

    The plan is read again from the message at each call, and its position is the number of
    responses with tool calls that follow it. So nothing is kept between calls.
    """
    words, following = newest_words(request)
    if re.search(r"(?:^|\n)[^\w\n]*help\W*$", words, re.IGNORECASE):
        return LLMResponse(content=_help(request.tools))
    offered = () if request.tool_choice == "none" else request.tools
    reading = _read(words, {tool.name for tool in offered})
    if isinstance(reading, Plan):
        done = sum(1 for message in following if message.tool_calls)
        if done < len(reading.steps):
            return _ask_for(reading.steps[done], len(request.messages))
        return LLMResponse(content=_report(following))
    if isinstance(reading, Misread):
        return LLMResponse(content=f"{INTRODUCTION} {reading.reason}\n\n{_HOW_TO_CALL}")
    return LLMResponse(content=f"{INTRODUCTION}\n\n{_HOW_TO_GET_A_MODEL}")


def newest_words(request: ChatRequest) -> tuple[str, Sequence[Message]]:
    """Return what the user wrote last, and the messages after it.

    The block of facts that the core puts before the user's words is left out.
    """
    messages = request.messages
    for index in range(len(messages) - 1, -1, -1):
        if messages[index].role == "user":
            text = messages[index].text
            block = _CONTEXT_BLOCK.match(text)
            return text[block.end() if block else 0 :].strip(), messages[index + 1 :]
    return "", ()


def _read(words: str, tools: Container[str]) -> Reading:
    """Read the shortest end of `words` that is a plan, paragraph by paragraph.

    Plugins may put passages of their own before the user's words, and nothing marks where those
    end. Beginning at the end keeps such a passage from adding to what the user asked for.
    """
    starts = [0, *(gap.end() for gap in _GAP.finditer(words))][-_MAX_PARAGRAPHS:]
    misread: Reading = None
    for start in reversed(starts):
        reading = parse_message(words[start:], tools)
        if isinstance(reading, Plan):
            return reading
        misread = misread or reading
    return misread


def _ask_for(calls: Sequence[PlannedCall], history_length: int) -> LLMResponse:
    return LLMResponse(
        tool_calls=tuple(
            ToolCall(f"offline_{history_length}_{index}", call.name, call.arguments)
            for index, call in enumerate(calls)
        ),
        finish_reason="tool_calls",
    )


def _report(following: Sequence[Message]) -> str:
    """The results of the turn, each under its call."""
    calls = {call.id: call for message in following for call in message.tool_calls}
    parts = [INTRODUCTION]
    for message in following:
        if message.role == "tool":
            call = calls.get(message.tool_call_id or "")
            arguments = json.dumps(call.arguments, ensure_ascii=False) if call else ""
            title = f"**{message.name or (call.name if call else 'tool')}** {_code(arguments)}"
            state = " failed" if message.is_error else ""
            parts.append(f"{title}{state}:\n\n{_fenced(message.text)}")
    return "\n\n".join(parts)


def _code(text: str) -> str:
    """`text` as inline code, whatever back-ticks it holds."""
    mark = "`" * (_longest_run(text) + 1)
    return f"{mark}{text}{mark}" if text else ""


def _fenced(text: str) -> str:
    """`text` as a code block, whatever fences it holds."""
    fence = "`" * max(3, _longest_run(text) + 1)
    return f"{fence}\n{text}\n{fence}"


def _longest_run(text: str) -> int:
    return max((len(run) for run in re.findall("`+", text)), default=0)


def _help(tools: Sequence[ToolDefinition]) -> str:
    if not tools:
        install = "pip install 'nanobot-core[standard]'"
        return f"{INTRODUCTION} There are no tools here; `{install}` installs some."
    lines = [f"- `{_signature(tool)}` {_first_sentence(tool.description)}" for tool in tools]
    arguments = json.dumps(_example_arguments(tools[0]), ensure_ascii=False)
    example = f"For example: `{tools[0].name} {arguments}`"
    return "\n".join([f"{INTRODUCTION} {_HOW_TO_CALL}", "", *lines, "", example])


def _signature(tool: ToolDefinition) -> str:
    required = _required(tool)
    parts = [
        f"{name}{'' if name in required else '?'}: {_type_of(schema)}"
        for name, schema in _properties(tool).items()
    ]
    return f"{tool.name}({', '.join(parts)})"


def _example_arguments(tool: ToolDefinition) -> JsonObject:
    properties = _properties(tool)
    return {
        name: _EXAMPLES.get(_type_of(properties.get(name)).partition(" ")[0], "…")
        for name in _required(tool)
    }


def _type_of(schema: JsonValue) -> str:
    """The type of a parameter in words, such as ``integer or null``."""
    if not isinstance(schema, dict):
        return "any"
    kinds = schema.get("type")
    if isinstance(kinds, str):
        return kinds
    if isinstance(kinds, list):
        return " or ".join(str(kind) for kind in kinds)
    options = schema.get("anyOf") or schema.get("oneOf")
    if isinstance(options, list) and options:
        return " or ".join(dict.fromkeys(_type_of(option) for option in options))
    return "any"


def _properties(tool: ToolDefinition) -> JsonObject:
    found = tool.parameters.get("properties")
    return found if isinstance(found, dict) else {}


def _required(tool: ToolDefinition) -> list[str]:
    found = tool.parameters.get("required")
    return [str(name) for name in found] if isinstance(found, list) else []


def _first_sentence(description: str) -> str:
    return shorten(description.partition("\n\n")[0].partition(". ")[0], _SUMMARY_CHARS)
