"""Answers of services over the wire: pieces do not matter, and what comes out can be stored."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from nanobot_openai.provider import OpenAIProvider
from tests.fuzz.answers import KINDS, FuzzedService
from tests.fuzz.choices import Choices

TOKENS: Final = (
    b"data: ", b"event: error\n", b"data: [DONE]\n\n", b"\r\n\r\n", b"\r\r", b"\xef\xbb\xbf",
    b": x",
    b'{"choices": [{"delta": {', b'"content": "', b'"reasoning_content": "', b'"tool_calls": [{',
    b'"index": 0', b'"id": "', b'"function": {"name": "', b'"arguments": "', b'"finish_reason": "',
    b'"usage": {', b'"prompt_tokens": ', b'"total_tokens": ', b'"cost": ', b"1e999", b"NaN",
    b'"error": {"code": ', b'"message": {', b'"reasoning_details": [{', b'"extra_content": {',
    b"\\ud83d", b"[[[[[[[[[[[[[[[[", b'{"a":{"a":{"a":{"a":', b"9" * 200, b'"thinking": [{',
)  # fmt: skip


def fuzz_one(data: bytes) -> None:
    """Let a service answer with any bytes, at once and in pieces."""
    choices = Choices(data)
    kind = KINDS[choices.byte() % 3]
    name = ("openai", "openrouter", "mistral", "deepseek")[choices.byte() % 4]
    size = 1 + choices.byte()
    FuzzedService(OpenAIProvider, name).check(kind, choices.rest(), size)


def seeds() -> Iterator[bytes]:
    """Yield answers in the forms of several services."""
    for stream in (
        (
            b'data: {"choices":[{"delta":{"role":"assistant","content":"Hel"}}]}\n\n'
            b'data: {"choices":[{"delta":{"content":"lo"},"finish_reason":"stop"}],'
            b'"usage":{"prompt_tokens":3,"completion_tokens":2,"total_tokens":5,"cost":0.01}}\n\n'
            b"data: [DONE]\n\n"
        ),
        (
            b'data: {"choices":[{"delta":{"tool_calls":[{"index":0,"id":"c1","function":'
            b'{"name":"look","arguments":"{\\"a\\":"}}]}}]}\r\n\r\n'
            b'data: {"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"arguments":"1}"}}]'
            b'},"finish_reason":"tool_calls"}]}\r\n\r\ndata: [DONE]\r\n\r\n'
        ),
        (
            b': ping\n\ndata: {"choices":[{"delta":{"reasoning_content":"hm","reasoning_details":'
            b'[{"type":"reasoning.text","text":"h"},{"type":"reasoning.text","text":"m"}]}}]}\n\n'
            b'data: {"choices":[{"delta":{"content":[{"type":"thinking","thinking":[{"text":"x"}]},'
            b'{"type":"text","text":"y"}]},"finish_reason":"length"}]}\n\ndata: [DONE]\n\n'
        ),
        b'event: error\ndata: {"error":{"code":429,"message":"slow down"}}\n\n',
    ):
        yield b"\x00\x00\x07" + stream
        yield b"\x00\x01\x00" + stream
    yield (
        b'\x01\x00\x10{"choices":[{"message":{"content":"Hi","tool_calls":[{"id":"a","function":'
        b'{"name":"look","arguments":{"x":1}},"extra_content":{"sig":"s"}}]},'
        b'"finish_reason":"stop"}],"usage":{"prompt_tokens":1,"completion_tokens":1}}'
    )
