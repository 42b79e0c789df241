"""Events of Matrix as messages of nanobot, and settings and places."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, strategies as st
from pydantic import ValidationError

from nanobot_core import GroupSettings, InboundMessage
from nanobot_core.chat import CallFailed, Cause, Received, RichText, render_markdown, split_rich
from nanobot_matrix import wire
from nanobot_matrix.content import (
    SENT_BYTES,
    edit_content,
    relation_of,
    sent_bytes,
    text_content,
    transaction_of,
)
from nanobot_matrix.homeserver import CODES, failure_of
from nanobot_matrix.mapping import Reader
from nanobot_matrix.places import RoomRef
from nanobot_matrix.settings import MatrixSettings

AGENT = "@nano:example.org"
ANNA = "@anna:example.org"
ROOM = "!room:example.org"
READER = Reader(AGENT, "Nano", edits=True)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.sampled_from(["$a", ANNA, "m.thread", "m.file"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["event_id", "m.in_reply_to", "rel_type", "user_ids", "body", "size", "m.replace"]
            ),
            inner,
            max_size=3,
        )
    ),
    max_leaves=6,
)
CONTENT = st.dictionaries(
    st.sampled_from(
        [
            *("body", "msgtype", "formatted_body", "m.relates_to", "m.mentions", "url", "info"),
            *("m.new_content", "filename", "geo_uri"),
        ]
    ),
    JSON | st.text(max_size=8) | st.sampled_from(["m.text", "m.file", "mxc://a/b"]),
)


def event(**fields: Any) -> wire.Event:
    whole = {"type": "m.room.message", "event_id": "$e", "sender": ANNA, **fields}
    return wire.Event.model_validate(whole)


def text(body: str, **content: Any) -> wire.Event:
    return event(content={"msgtype": "m.text", "body": body, **content})


def read(
    found: wire.Event, related: wire.Event | None = None, reader: Reader = READER
) -> Received | None:
    if not reader.wants(found):
        return None
    return reader.read(ROOM, found, related, is_group=True)


def message(
    found: wire.Event, related: wire.Event | None = None, reader: Reader = READER
) -> InboundMessage:
    received = read(found, related, reader)
    assert received is not None
    return received.message


def test_a_message_says_who_and_where() -> None:
    found = message(event(content={"msgtype": "m.text", "body": "hi"}, origin_server_ts=1_000))
    assert (found.sender_id, found.content, found.dedupe_key) == (ANNA, "hi", "$e")
    assert found.chat_id == "!room%3Aexample.org"
    assert found.timestamp is not None
    assert found.timestamp.timestamp() == 1.0
    assert not found.is_addressed


@pytest.mark.parametrize(
    "fields",
    [
        {"sender": AGENT},
        {"sender": "anna"},
        {"sender": "@an|na:example.org"},
        {"event_id": ""},
        {"type": "m.reaction"},
        {"content": {"msgtype": "m.notice", "body": "beep"}},
        {"content": {"msgtype": "m.text", "body": " "}},
        {"content": {"msgtype": "m.key.verification.request", "body": "verify"}},
        {"content": {"msgtype": "m.image", "body": "x.png", "url": "https://evil.example/x"}},
    ],
)
def test_what_is_not_for_the_agent_is_left_out(fields: dict[str, Any]) -> None:
    whole: dict[str, Any] = {"content": {"msgtype": "m.text", "body": "hi"}} | fields
    assert read(event(**whole)) is None


def test_notices_of_listed_bots_are_read() -> None:
    notice = event(content={"msgtype": "m.notice", "body": "beep"})
    assert message(notice, reader=Reader(AGENT, allow_bots=[ANNA])).content == "beep"


@pytest.mark.parametrize(
    ("body", "content", "is_addressed", "said"),
    [
        (f"{AGENT}: help", {}, True, "help"),
        (f"help {AGENT}", {}, True, "help"),
        (f"ask {AGENT}.uk", {}, False, f"ask {AGENT}.uk"),
        (f"see /home/{AGENT}", {}, False, f"see /home/{AGENT}"),
        ("Nano: help", {}, True, "help"),
        ("nano, help", {}, True, "help"),
        ("nano /home/nano", {}, False, "nano /home/nano"),
        ("Nano /home/nano", {"m.mentions": {"user_ids": [AGENT]}}, True, "/home/nano"),
        ("open ~/nano: it", {"m.mentions": {"user_ids": [AGENT]}}, True, "open ~/nano: it"),
        (
            "Nano: help",
            {"formatted_body": f'<a href="https://matrix.to/#/{AGENT}">Nano</a>: help'},
            True,
            "help",
        ),
        (
            "help",
            {"formatted_body": '<a href="https://matrix.to/#/%40nano%3Aexample.org">x</a>'},
            True,
            "help",
        ),
        (
            "help",
            {"formatted_body": f'<mx-reply><a href="https://matrix.to/#/{AGENT}">N</a></mx-reply>'},
            False,
            "help",
        ),
        ("all", {"m.mentions": {"room": True}}, False, "all"),
        ("all", {"m.mentions": {"user_ids": [[AGENT], None]}}, False, "all"),
    ],
)
def test_mentions_address_the_agent(
    body: str, content: dict[str, Any], is_addressed: bool, said: str
) -> None:
    found = message(text(body, **content))
    assert (found.is_addressed, found.content) == (is_addressed, said)


def test_room_mentions_count_only_by_setting() -> None:
    assert message(
        text("all", **{"m.mentions": {"room": True}}), reader=Reader(AGENT, room_mentions=True)
    ).is_addressed


def test_a_reply_has_the_words_that_it_answers_as_they_are_now() -> None:
    edit = {"content": {"m.new_content": {"msgtype": "m.text", "body": "the\nwhole"}}}
    original = event(
        sender=AGENT,
        content={"msgtype": "m.text", "body": "the"},
        unsigned={"m.relations": {"m.replace": edit}},
    )
    relation = {"m.relates_to": {"m.in_reply_to": {"event_id": "$o"}}}
    found = message(text("> <@nano:example.org> the\n\nwhy?", **relation), original)
    assert found.content == f"[in reply to {AGENT}]\n> the whole\nwhy?"
    assert found.is_addressed
    assert message(text("/stop", **relation), original).content == "/stop"


def test_a_thread_is_a_chat_of_its_own() -> None:
    relation: dict[str, Any] = {"rel_type": "m.thread", "event_id": "$root"}
    relation["is_falling_back"] = True
    relation |= {"m.in_reply_to": {"event_id": "$last"}}
    found = message(text("here", **{"m.relates_to": relation}))
    assert found.chat_id == "!room%3Aexample.org:$root"
    assert RoomRef.parse(found.chat_id) == RoomRef(ROOM, "$root")
    # In a thread, the answer is there too.
    assert relation_of(RoomRef(ROOM, "$root"), None)["event_id"] == "$root"


def test_an_edit_is_a_message_of_its_author_only() -> None:
    content = {
        "msgtype": "m.text",
        "body": "* new",
        "m.new_content": {"msgtype": "m.text", "body": "new"},
        "m.relates_to": {"rel_type": "m.replace", "event_id": "$first"},
    }
    original = text("old", **{"m.relates_to": {"rel_type": "m.thread", "event_id": "$root"}})
    found = message(event(content=content), original)
    assert (found.content, found.dedupe_key) == ("[edited]\nnew", "$first $e")
    assert found.chat_id.endswith(":$root")
    assert read(event(content=content, sender="@bert:example.org"), original) is None
    assert read(event(content=content), original, Reader(AGENT)) is None


@pytest.mark.parametrize(
    ("content", "said", "names"),
    [
        ({"msgtype": "m.image", "body": "a.png", "url": "mxc://x/1"}, "", ["a.png"]),
        (
            {"msgtype": "m.image", "body": "look", "filename": "../a.png", "url": "mxc://x/1"},
            "look",
            ["a.png"],
        ),
        ({"msgtype": "m.audio", "body": "Voice message", "url": "mxc://x/1"}, "", None),
        ({"msgtype": "m.emote", "body": "waves"}, "* waves", []),
        ({"msgtype": "m.location", "geo_uri": "geo:1,2"}, "[location: 1,2]", []),
    ],
)
def test_kinds_of_messages(content: dict[str, Any], said: str, names: list[str] | None) -> None:
    received = read(event(content=content))
    assert received is not None
    assert received.message.content == said
    found = [file.name for file in received.files]
    assert found == (["Voice message.ogg"] if names is None else names)


@given(CONTENT, st.none() | CONTENT, st.text(max_size=5) | st.just(ANNA))
def test_no_event_is_a_crash(
    content: dict[str, Any], other: dict[str, Any] | None, sender: str
) -> None:
    found = event(content=content, sender=sender)
    related = event(content=other, sender=AGENT) if other is not None else None
    received = read(found, related)
    assert received is None or received.message.sender_id == sender


@given(st.dictionaries(st.sampled_from(["next_batch", "rooms"]), JSON | st.just("s1")))
def test_no_sync_is_a_crash(fields: dict[str, Any]) -> None:
    try:
        wire.Sync.model_validate(fields)
    except ValidationError:
        assert not isinstance(fields.get("next_batch"), str) or not fields["next_batch"]


@pytest.mark.parametrize(
    ("chat_id", "place"),
    [
        ("!room:example.org", RoomRef(ROOM)),
        ("!room%3Aexample.org", RoomRef(ROOM)),
        ("!room:example.org:8448", RoomRef("!room:example.org:8448")),
        ("!room:example.org:$a_b-c", RoomRef(ROOM, "$a_b-c")),
        ("!without_a_server", RoomRef("!without_a_server")),
        ("#alias:example.org", None),
        (ANNA, None),
        ("!", None),
    ],
)
def test_places(chat_id: str, place: RoomRef | None) -> None:
    assert RoomRef.parse(chat_id) == place
    assert place is None or RoomRef.parse(str(place)) == place


@pytest.mark.parametrize(("code", "cause"), CODES.items())
def test_codes_are_causes(code: str, cause: Cause) -> None:
    failure = failure_of(400, {"errcode": code, "error": "why", "retry_after_ms": 1_500})
    assert isinstance(failure, CallFailed)
    assert failure.cause is cause
    assert failure.retry_after_s == (1.5 if cause is Cause.BUSY else None)
    assert (cause is Cause.CREDENTIALS) == ("channels.matrix.access_token" in failure.reason)
    assert failure_of(500, {"errcode": "M_UNKNOWN"}) is None
    assert failure_of(200, {"errcode": code}) is None


@pytest.mark.parametrize("word", ["<&\"' ", "ü\U0001f600 ", "**b** `c` "])
def test_an_edit_fits_an_event_with_encryption(word: str) -> None:
    for part in split_rich(render_markdown(word * 2_500), SENT_BYTES, sent_bytes):
        content = edit_content(part, "$e")
        assert len(json.dumps(content, ensure_ascii=False).encode()) * 4 / 3 < 65_536 - 1_000


def test_what_is_sent_notifies_no_one() -> None:
    content = text_content(render_markdown("**@room** see https://matrix.to/#/@anna:example.org"))
    assert content["m.mentions"] == {}
    assert "@room" not in str(content["formatted_body"])
    assert "formatted_body" not in text_content(RichText("plain"))
    edit = edit_content(RichText("new"), "$e")
    assert edit["m.mentions"] == {}
    assert edit["m.new_content"] == text_content(RichText("new"))


def test_equal_keys_have_equal_transactions() -> None:
    place = RoomRef(ROOM)
    assert transaction_of(place, "k") == transaction_of(place, "k")
    assert transaction_of(place, "k") != transaction_of(place, "l")
    assert transaction_of(place, "") != transaction_of(place, "")


def policy_of(found: InboundMessage, settings: MatrixSettings) -> str | None:
    """Return the policy of a chat as the gateway finds it: by what is before the first colon."""
    group = settings.groups.get(found.chat_id.partition(":")[0])
    return group.policy if group else settings.group_policy


def test_the_section_of_the_original_loads() -> None:
    settings = MatrixSettings.model_validate(
        {
            "enabled": True,
            "homeserver": "https://matrix.example.org",
            "userId": AGENT,
            "password": "",
            "accessToken": "t",
            "deviceId": "NANO",
            "e2eeEnabled": True,
            "sasVerification": False,
            "syncStopGraceSeconds": 2,
            "maxMediaBytes": 1_000,
            "maxConcurrentMediaDownloads": 2,
            "allowFrom": [ANNA],
            "groupPolicy": "allowlist",
            "groupAllowFrom": [ROOM],
            "allowRoomMentions": False,
            "streaming": False,
        }
    )
    assert (settings.access_token.get_secret_value(), settings.max_media_bytes) == ("t", 1_000)
    assert settings.group_policy == "deny"
    assert policy_of(message(text("hi")), settings) == "open"
    elsewhere = READER.read("!other:example.org", text("hi"), None, is_group=True)
    assert elsewhere is not None
    assert policy_of(elsewhere.message, settings) == "deny"


def test_groups_are_named_by_their_rooms() -> None:
    settings = MatrixSettings.model_validate(
        {"allow_from": [ANNA], "groups": {ROOM: {"policy": "open"}}}
    )
    assert settings.groups == {"!room%3Aexample.org": GroupSettings(policy="open")}
    assert policy_of(message(text("hi")), settings) == "open"
    relation = {"rel_type": "m.thread", "event_id": "$root"}
    assert policy_of(message(text("hi", **{"m.relates_to": relation})), settings) == "open"
    same = message(text("hi"))
    other = READER.read("!room:evil.example", text("hi"), None, is_group=True)
    assert other is not None
    assert other.message.chat_id != same.chat_id
    assert policy_of(other.message, settings) == "mention"
