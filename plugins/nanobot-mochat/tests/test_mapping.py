"""Messages of Mochat as messages of nanobot."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, strategies as st
from pydantic import ValidationError

from nanobot_core.chat import CallFailed, Cause, Received
from nanobot_mochat import wire
from nanobot_mochat.mapping import joined, read_message
from nanobot_mochat.platform import CODES, failure_of
from nanobot_mochat.settings import MochatSettings

AGENT = "agent-7"
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["mentions", "id", "mentioned", "x"]), inner, max_size=3)
    ),
    max_leaves=5,
)
FIELDS = st.sampled_from(
    ["messageId", "_id", "author", "authorInfo", "content", "meta", "groupId", "createdAt"]
)


def read(is_panel: bool = False, **fields: Any) -> Received | None:
    message = {"messageId": "m1", "author": "anna", "content": "hello"} | fields
    return read_message("panel-1", wire.Message.model_validate(message), AGENT, is_panel=is_panel)


def received(is_panel: bool = False, **fields: Any) -> Received:
    found = read(is_panel, **fields)
    assert found is not None
    return found


def test_a_message_says_who_and_where() -> None:
    info = {"nickname": "Anna", "email": "anna@example.org", "agentId": None}
    message = received(authorInfo=info, createdAt="2026-11-23T10:00:00Z").message
    assert (message.sender_id, message.chat_id, message.content) == ("anna", "panel-1", "hello")
    assert message.sender_names == ("anna@example.org",)
    assert message.dedupe_key == "panel-1:m1"
    assert message.timestamp is not None
    assert message.timestamp.isoformat() == "2026-11-23T10:00:00+00:00"
    assert not message.is_group


@pytest.mark.parametrize(
    "fields",
    [
        {"author": AGENT},
        {"author": ""},
        {"messageId": None},
        {"content": "  "},
        {"content": None},
        {"authorInfo": {"agentId": "other"}},
    ],
)
def test_what_is_not_for_the_agent_is_left_out(fields: dict[str, Any]) -> None:
    assert read(**fields) is None


def test_listed_agents_may_write() -> None:
    message = wire.Message.model_validate(
        {"messageId": "m", "author": "bot", "content": "x", "authorInfo": {"agentId": "a"}}
    )
    assert read_message("s", message, AGENT, is_panel=False, allow_bots=["bot"]) is not None


@pytest.mark.parametrize(
    ("fields", "is_addressed", "content"),
    [
        ({"content": f"<@{AGENT}> help"}, True, "help"),
        ({"content": f"help @{AGENT}"}, True, "help"),
        ({"content": f"@{AGENT}5 help"}, False, f"@{AGENT}5 help"),
        ({"meta": {"mentioned": True}}, True, "hello"),
        ({"meta": {"mentionIds": [AGENT]}}, True, "hello"),
        ({"meta": {"mentions": [{"userId": AGENT}]}}, True, "hello"),
        ({"meta": {"mentions": [{"userId": "other"}, 7, None]}}, False, "hello"),
        ({"content": {"image": "x"}}, False, '[not a text: {"image": "x"}]'),
    ],
)
def test_mentions_address_the_agent(
    fields: dict[str, Any], is_addressed: bool, content: str
) -> None:
    message = received(is_panel=True, **fields).message
    assert (message.is_addressed, message.content, message.is_group) == (
        is_addressed,
        content,
        True,
    )


def test_collected_messages_are_quoted() -> None:
    earlier = received(content="one\ntwo", author="bert", authorInfo={"nickname": "Bert\n> x"})
    whole = joined([earlier, received(content="now")]).message
    assert whole.content == "[earlier in this panel]\n> Bert > x: one two\nnow"
    assert whole.sender_id == "anna"
    assert joined([earlier, received(content="/stop")]).message.content == "/stop"


@given(st.dictionaries(FIELDS, JSON, max_size=6))
def test_no_message_is_a_crash(fields: dict[str, Any]) -> None:
    try:
        message = wire.Message.model_validate(fields)
    except ValidationError:
        return
    found = read_message("s", message, AGENT, is_panel=True)
    assert found is None or found.message.sender_id == str(fields["author"])


@pytest.mark.parametrize(("code", "cause"), [*CODES.items(), (500, Cause.UNREACHABLE)])
def test_codes_are_causes_wherever_they_are(code: int, cause: Cause) -> None:
    for failure in (failure_of(200, {"code": code, "message": "why"}), failure_of(code, {})):
        assert isinstance(failure, CallFailed)
        assert failure.cause is cause
    assert failure_of(200, {"code": 200, "data": {}}) is None


def test_the_section_of_the_original_loads() -> None:
    settings = MochatSettings.model_validate(
        {
            "enabled": True,
            "baseUrl": "https://mochat.io/",
            "socketReconnectDelayMs": 1000,
            "socket_connect_timeout_ms": 10_000,
            "maxRetryAttempts": 0,
            "clawToken": "t",
            "agentUserId": AGENT,
            "mention": {"requireInGroups": True},
            "groups": {"g": {"requireMention": False}},
        }
    )
    assert (settings.base_url, settings.group_policy) == ("https://mochat.io", "mention")
    assert settings.groups["g"].policy == "open"
