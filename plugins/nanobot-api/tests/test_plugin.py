"""What the plugin gives its host, and how it puts answers together."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from hypothesis import given, strategies as st

from nanobot_api.answer import AnswerText
from nanobot_api.error import failure_of
from nanobot_api.plugin import ApiPlugin
from nanobot_core import (
    AuthenticationFailed,
    BadRequest,
    BudgetExceeded,
    ContextTooLong,
    NanobotError,
    NoProvider,
    Overloaded,
    ProviderTimeout,
    RateLimited,
    SessionError,
    StreamRestarted,
    TextStreamed,
    ToolCall,
    ToolCallStarted,
    TurnInfo,
    Unreachable,
)
from nanobot_core.testing import PluginContract

pytestmark = pytest.mark.anyio
TURN = TurnInfo(
    id="t", session_key="api:x", channel="api", chat_id="x", sender_id="x", source="api"
)
RESTART = StreamRestarted(reason="again")
TOOL = ToolCallStarted(call=ToolCall("c", "look", {}), hint="look")


class TestApiPlugin(PluginContract):
    plugin_id = "api"

    def make_plugin(self) -> object:
        return ApiPlugin()


def test_importing_the_entry_module_loads_no_library() -> None:
    program = (
        "import sys, json; import nanobot_api.plugin; "
        "print(json.dumps([m for m in sys.modules if m.partition('.')[0] in "
        "('nanobot_api', 'nanobot_http', 'pydantic', 'sqlite3', 'starlette', 'typer')]))"
    )
    output = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, check=True, timeout=30
    ).stdout
    assert sorted(json.loads(output)) == ["nanobot_api", "nanobot_api.plugin"]


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (NoProvider("x/y", "configure one"), 404, "model_not_found"),
        (BudgetExceeded("day", "5", "4"), 429, "insufficient_quota"),
        (ContextTooLong("p", "too long"), 400, "context_length_exceeded"),
        (RateLimited("p", "slower"), 429, "rate_limit_exceeded"),
        (ProviderTimeout("p", "too late"), 503, None),
        (Overloaded("p", "busy"), 503, None),
        (Unreachable("p", "no route"), 503, None),
        (BadRequest("p", "no", status=400), 400, None),
        (AuthenticationFailed("p", "no", status=401), 500, None),
        (SessionError("s", "no"), 500, None),
    ],
)
def test_errors_have_the_codes_of_the_api(
    error: NanobotError, status: int, code: str | None
) -> None:
    failure = failure_of(error, "x/y")

    assert (failure.status, failure.code) == (status, code)


def _stream(*events: str | StreamRestarted | ToolCallStarted, reply: str) -> str:
    text, sent = AnswerText(), ""
    for event in events:
        one = TextStreamed(turn=TURN, iteration=1, text=event) if isinstance(event, str) else event
        if delta := text.take(one):
            sent += delta.text
    if delta := text.end(reply):
        sent += delta.text
    assert sent == text.text
    return sent


@pytest.mark.parametrize(
    ("events", "reply", "sent"),
    [
        ((), "A command's reply.", "A command's reply."),
        (("Hel", "lo"), "Hello", "Hello"),
        (("Hel", "lo"), "Hello, footer", "Hello, footer"),
        (("Hello",), "Changed", "Hello\n\nChanged"),
        (("Looking.", TOOL, "Found."), "Found.", "Looking.\n\nFound."),
        (("Hello", RESTART, "Hel", "lo wor", "ld"), "Hello world", "Hello world"),
        (("Hello", RESTART, "Good", "bye"), "Goodbye", "Hello\n\nGoodbye"),
        (("Hello", RESTART, "Hel", RESTART, "Hello!"), "Hello!", "Hello!"),
        (("Hello world", RESTART, "Hello"), "Hello", "Hello world\n\nHello"),
        (("Hello", RESTART, "Hello"), "Hello", "Hello"),
    ],
)
def test_what_was_sent_is_completed_and_not_repeated(
    events: tuple[str | StreamRestarted | ToolCallStarted, ...], reply: str, sent: str
) -> None:
    assert _stream(*events, reply=reply) == sent


@given(
    st.lists(st.text("ab", min_size=1, max_size=3) | st.just(RESTART) | st.just(TOOL), max_size=12),
    st.text("ab", max_size=8),
)
def test_a_stream_always_ends_with_the_reply(
    events: list[str | StreamRestarted | ToolCallStarted], reply: str
) -> None:
    assert _stream(*events, reply=reply).endswith(reply)
