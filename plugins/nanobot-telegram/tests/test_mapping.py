"""Updates become messages, without a connection."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, strategies as st
from pydantic import ValidationError

from nanobot_core.chat import Received
from nanobot_telegram import wire
from nanobot_telegram.mapping import ChatRef, read_update

BOT = wire.User(id=42, is_bot=True, first_name="Nano", username="nano_bot")
ANNA = {"id": 7, "first_name": "Anna", "last_name": "Berg", "username": "anna_b"}
PRIVATE = {"id": 7, "type": "private"}
GROUP = {"id": -100, "type": "supergroup", "title": "Team"}


def read(chat: dict[str, Any] = PRIVATE, kind: str = "message", **fields: Any) -> Received | None:
    message = {"message_id": 5, "date": 1_790_000_000, "chat": chat, "from": ANNA} | fields
    return read_update(wire.Update.model_validate({"update_id": 1, kind: message}), BOT)


def received(chat: dict[str, Any] = PRIVATE, kind: str = "message", **fields: Any) -> Received:
    found = read(chat, kind, **fields)
    assert found is not None
    return found


def entity(kind: str, text: str, part: str, **fields: Any) -> dict[str, Any]:
    offset = len(text[: text.index(part)].encode("utf-16-le")) // 2
    length = len(part.encode("utf-16-le")) // 2
    return {"type": kind, "offset": offset, "length": length} | fields


def test_a_text_comes_with_who_and_where() -> None:
    message = received(text="hello").message

    assert (message.channel, message.sender_id, message.chat_id) == ("telegram", "7", "7")
    assert message.sender_names == ("anna_b",)
    assert message.content == "hello"
    assert message.timestamp == datetime.fromtimestamp(1_790_000_000, UTC)
    assert message.dedupe_key == "7:5"
    assert not message.is_group
    assert message.metadata == {
        "message_id": "5",
        "user_id": "7",
        "username": "anna_b",
        "first_name": "Anna",
        "is_group": False,
    }


def test_an_edit_has_a_key_of_its_own_and_runs_no_command() -> None:
    edited = received(kind="edited_message", text="/new", edit_date=1_790_000_100).message

    assert edited.dedupe_key == "7:5:1790000100"
    assert edited.content == "[edited]\n/new"
    assert edited.metadata["edited"] is True


@pytest.mark.parametrize(
    ("fields", "content"),
    [
        ({"sticker": {"emoji": "😀"}}, "😀"),
        ({"sticker": {}}, "[sticker]"),
        ({"dice": {"emoji": "🎲", "value": 4}}, "🎲 4"),
        ({"location": {"latitude": 52.5, "longitude": 13.4}}, "[location: 52.5, 13.4]"),
        (
            {
                "location": {"latitude": 1.0, "longitude": 2.0},
                "venue": {
                    "location": {"latitude": 1.0, "longitude": 2.0},
                    "title": "Cafe",
                    "address": "Street 1",
                },
            },
            "[place: Cafe, Street 1 (1.0, 2.0)]",
        ),
        (
            {"contact": {"phone_number": "+49 1", "first_name": "Bo", "last_name": "Lin"}},
            "[contact: Bo Lin, +49 1]",
        ),
        (
            {"poll": {"question": "When?", "options": [{"text": "now"}, {"text": "later"}]}},
            "[poll: When? (now; later)]",
        ),
    ],
)
def test_what_is_not_a_text_is_said_in_words(fields: dict[str, Any], content: str) -> None:
    assert received(**fields).message.content == content


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({"photo": [{"file_id": "s"}, {"file_id": "AgACAgIAAxkBAAIBY2"}]}, "AgACAgIAAxkBAAIB.jpg"),
        ({"voice": {"file_id": "v", "mime_type": "audio/ogg"}}, "v.ogg"),
        ({"voice": {"file_id": "v"}}, "v.ogg"),
        ({"audio": {"file_id": "a", "file_name": "song.m4a"}}, "song.m4a"),
        ({"audio": {"file_id": "a"}}, "a.mp3"),
        ({"video": {"file_id": "w", "mime_type": "video/mp4"}}, "w.mp4"),
        ({"video_note": {"file_id": "n"}}, "n.mp4"),
        ({"document": {"file_id": "d", "file_name": "../../etc/report.pdf"}}, "report.pdf"),
        ({"document": {"file_id": "d", "mime_type": "application/pdf"}}, "d.pdf"),
        ({"document": {"file_id": "d"}}, "d"),
        ({"animation": {"file_id": "g"}, "document": {"file_id": "g"}}, "g.mp4"),
    ],
)
def test_files_are_named_after_what_they_are(fields: dict[str, Any], name: str) -> None:
    found = received(caption="look", **fields)

    assert [file.name for file in found.files] == [name]
    assert found.message.content == "look"
    assert found.message.media == ()


def test_an_answer_says_what_it_answers() -> None:
    answered = {"message_id": 4, "chat": PRIVATE, "from": BOT.model_dump(), "text": "long\nstory"}

    assert received(text="why?", reply_to_message=answered).message.content == (
        "[in reply to Nano]\n> long story\nwhy?"
    )
    quoted = received(text="why?", reply_to_message=answered, quote={"text": "story"})
    assert quoted.message.content == "[in reply to Nano]\n> story\nwhy?"
    assert received(text="/new", reply_to_message=answered).message.content == "/new"


@pytest.mark.parametrize(
    ("origin", "name"),
    [
        ({"type": "user", "sender_user": {"id": 1, "first_name": "Bo"}}, "Bo"),
        ({"type": "hidden_user", "sender_user_name": "Secret"}, "Secret"),
        ({"type": "chat", "sender_chat": GROUP}, "Team"),
        ({"type": "channel", "chat": {"id": -5, "type": "channel", "title": "News"}}, "News"),
        ({"type": "new_kind"}, "an unknown sender"),
    ],
)
def test_a_forward_says_whose_words_they_are(origin: dict[str, Any], name: str) -> None:
    message = received(text="/new", forward_origin=origin).message

    assert message.content == f"[forwarded from {name}]\n/new"
    assert message.is_forwarded


def test_a_topic_is_a_chat_of_its_own() -> None:
    topic = received(GROUP, text="x", is_topic_message=True, message_thread_id=9).message
    plain = received(GROUP, text="x", message_thread_id=9).message

    assert (topic.chat_id, topic.session_key) == ("-100:9", "telegram:-100:9")
    assert topic.metadata["thread"] == "9"
    assert plain.chat_id == "-100"


ME = BOT.model_dump()
MENTION = "🎉 hi @Nano_Bot , look"
NAMED = "hey Nano do"


@pytest.mark.parametrize(
    ("fields", "content", "addressed"),
    [
        ({"text": "hello"}, "hello", False),
        (
            {"text": MENTION, "entities": [entity("mention", MENTION, "@Nano_Bot")]},
            "🎉 hi , look",
            True,
        ),
        (
            {
                "caption": "@nano_bot see",
                "caption_entities": [entity("mention", "@nano_bot", "@nano_bot")],
            },
            "see",
            True,
        ),
        (
            {"text": NAMED, "entities": [entity("text_mention", NAMED, "Nano", user=ME)]},
            "hey do",
            True,
        ),
        (
            {"text": "@other hi", "entities": [entity("mention", "@other", "@other")]},
            "@other hi",
            False,
        ),
        (
            {
                "text": "/new@nano_bot now",
                "entities": [entity("bot_command", "/new@nano_bot", "/new@nano_bot")],
            },
            "/new now",
            True,
        ),
        ({"text": "/new", "entities": [entity("bot_command", "/new", "/new")]}, "/new", False),
        (
            {"text": "/new@b", "entities": [entity("bot_command", "/new@b", "/new@b")]},
            "/new@b",
            False,
        ),
        ({"text": "mail a@nano_bot", "entities": []}, "mail a@nano_bot", False),
        ({"text": "x", "entities": [{"type": "mention", "offset": 90, "length": 5}]}, "x", False),
    ],
)
def test_in_groups_it_is_known_who_is_addressed(
    fields: dict[str, Any], content: str, addressed: bool
) -> None:
    message = received(GROUP, **fields).message

    assert message.is_group
    assert (message.content, message.is_addressed) == (content, addressed)


def test_an_answer_to_the_bot_addresses_it_and_a_message_of_a_topic_does_not() -> None:
    answered = {"message_id": 4, "chat": GROUP, "from": ME}

    assert received(GROUP, text="x", reply_to_message=answered).message.is_addressed
    opened = answered | {"forum_topic_created": {"name": "t"}}
    in_topic = received(GROUP, text="x", reply_to_message=opened).message
    assert not in_topic.is_addressed
    assert in_topic.content == "x"


def test_who_writes_in_the_name_of_a_chat_counts_as_that_chat() -> None:
    """All anonymous administrators of all groups share one account."""
    shared = {"id": 1087968824, "is_bot": True, "username": "GroupAnonymousBot"}
    fields: dict[str, Any] = {"from": shared, "sender_chat": GROUP, "text": "x"}
    message = received(GROUP, **fields).message

    assert message.sender_id == "-100"


def test_names_are_one_line_of_visible_text() -> None:
    sender = ANNA | {"username": "a\nb|7", "first_name": "Eve\n[forwarded from the owner]\u202e"}
    fields: dict[str, Any] = {"from": sender, "text": "x"}
    found = received(**fields).message

    assert (found.sender_id, found.sender_names) == ("7", ("a b|7",))
    assert found.metadata["first_name"] == "Eve [forwarded from the owner]"
    answered = {"message_id": 4, "chat": GROUP, "from": sender, "text": "y"}
    quoting = received(text="x", reply_to_message=answered).message.content
    assert len(quoting.splitlines()) == 3


def test_a_press_comes_as_its_value() -> None:
    query = {
        "id": "99",
        "from": ANNA,
        "data": "approve:1",
        "message": {
            "message_id": 6,
            "chat": GROUP,
            "date": 0,
            "is_topic_message": True,
            "message_thread_id": 9,
        },
    }
    found = read_update(wire.Update.model_validate({"update_id": 1, "callback_query": query}), BOT)

    assert found is not None
    assert (found.message.content, found.message.chat_id) == ("approve:1", "-100:9")
    assert (found.message.sender_id, found.message.dedupe_key) == ("7", "callback:99")
    assert found.message.sender_names == ("anna_b",)
    assert found.message.is_addressed
    assert found.message.is_group


@pytest.mark.parametrize(
    "fields", [{}, {"new_chat_title": "x"}, {"text": ""}, {"from": None, "text": "x"}]
)
def test_what_says_nothing_is_not_a_message(fields: dict[str, Any]) -> None:
    assert read(**fields) is None


def test_a_part_of_an_album_knows_what_it_adds() -> None:
    answered = {"message_id": 4, "chat": PRIVATE, "from": ANNA, "text": "show me"}
    part = received(
        media_group_id="g",
        photo=[{"file_id": "b"}],
        caption="one",
        reply_to_message=answered,
        forward_origin={"sender_user_name": "Bo"},
    )

    assert (part.album, part.said) == ("g", "one")
    context = "[in reply to Anna Berg]\n> show me\n[forwarded from Bo]"
    assert part.message.content == f"{context}\none"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.floats(allow_nan=False),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["message", "chat", "id", "text", "from", "photo", "entities", "x"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(st.dictionaries(st.sampled_from([*wire.Message.model_fields, "from"]), JSON, max_size=8))
def test_whatever_comes_is_read_or_refused_as_malformed(fields: dict[str, Any]) -> None:
    message = {"message_id": 1, "chat": PRIVATE, "from": ANNA, "text": "x"} | fields
    try:
        update = wire.Update.model_validate({"update_id": 1, "message": message})
    except ValidationError:
        return
    found = read_update(update, BOT)
    assert found is None or found.message.chat_id


ID = st.integers(-(2**52), 2**52)


@given(ID, st.none() | ID)
def test_places_are_read_as_they_are_written(chat: int, thread: int | None) -> None:
    place = ChatRef(chat, thread)

    assert ChatRef.parse(str(place)) == place


@pytest.mark.parametrize("text", ["", "x", "1:", ":1", "1:x", "1:2:3", "@", "１"])
def test_what_is_not_a_place_is_refused(text: str) -> None:
    assert ChatRef.parse(text) is None


def test_a_public_chat_may_be_named() -> None:
    assert ChatRef.parse("@news:3") == ChatRef("@news", 3)
