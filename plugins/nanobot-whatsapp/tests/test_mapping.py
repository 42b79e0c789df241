"""Messages of WhatsApp, however strange, become messages of the right person or nothing."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, strategies as st
from pydantic import ValidationError

from nanobot_core import InboundMessage
from nanobot_whatsapp import wire
from nanobot_whatsapp.bridge_frames import MessageFrame, identity_of, parse_jid, read_frame
from nanobot_whatsapp.envelope import changes, parsed
from nanobot_whatsapp.mapping import Quoted, Sender, person_of, read_message
from nanobot_whatsapp.outgoing import recipient

_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=12),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=8,
)
_PHONES = st.sampled_from(["4915100000001", "4915100000002", "1", "x", "", "1|2", "12345\n"])
_IDS = st.sampled_from(["DE.1", "US.ENT.2", "DE.x y", "", "de.1"])
_WORDS = st.text(max_size=20) | st.sampled_from(["/stop", "\u202e", "|", "\x00"])


def _some(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Return objects with any of these fields, some of which hold something else."""
    mixed = {name: values | _JSON for name, values in fields.items()}
    return st.fixed_dictionaries({}, optional=mixed)


def is_attributable(message: InboundMessage) -> bool:
    """Whether the ids have no characters that could stand for another sender."""
    ids = (message.sender_id, message.chat_id)
    return all(each and each.isprintable() and "|" not in each for each in ids)


_MEDIA = _some(id=st.just("1"), mime_type=_WORDS, filename=_WORDS, caption=_WORDS)
_MESSAGES = _some(
    **{"from": _PHONES},
    id=st.just("wamid.1"),
    from_user_id=_IDS,
    timestamp=st.integers(-1, 10**30).map(str),
    type=st.sampled_from(["text", "image", "system", "reaction", "new"]),
    text=_some(body=_WORDS),
    image=_MEDIA,
    document=_MEDIA,
    location=_some(latitude=st.floats(), longitude=st.floats(), name=_WORDS),
    contacts=st.lists(_some(name=_some(formatted_name=_WORDS)), max_size=2),
    reaction=_some(message_id=_WORDS, emoji=_WORDS),
    interactive=_some(button_reply=_some(id=_WORDS, title=_WORDS)),
    context=_some(id=_WORDS, forwarded=st.booleans()),
)
_CONTACTS = st.lists(
    _some(wa_id=_PHONES, user_id=_IDS, profile=_some(name=_WORDS)) | _JSON, max_size=3
)


@given(st.lists(_MESSAGES, max_size=3), _CONTACTS)
def test_no_message_has_a_wrong_sender(messages: list[Any], contacts: list[Any]) -> None:
    value = {"metadata": {"phone_number_id": "1"}, "contacts": contacts, "messages": messages}
    body = {"entry": [{"changes": [{"field": "messages", "value": value}]}]}
    (change,) = changes(body)
    people = list(parsed(wire.Person, change.contacts, lambda *_: None))
    for message in parsed(wire.Message, change.messages, lambda *_: None):
        person = person_of(message, people)
        claimed = {message.from_phone, message.from_user_id} - {None}
        if person is None:
            assert not claimed
            continue
        assert claimed <= {person.wa_id, person.user_id}
        assert claimed or len(people) == 1
        sender = Sender(id=person.wa_id or person.user_id or "", user_id=person.user_id)
        received = read_message(message, sender, Quoted("the agent", "words"))
        if received is not None:
            assert is_attributable(received.message)
            assert received.message.sender_id in {person.wa_id, person.user_id}
            assert recipient(received.message.chat_id) is not None


@given(_JSON | st.fixed_dictionaries({"entry": _JSON}))
def test_any_body_can_be_read(body: Any) -> None:  # noqa: ANN401 - any JSON
    for change in changes(body):
        assert change.messages is not None


_JIDS = st.sampled_from(
    [
        "4915100000001@s.whatsapp.net",
        "4915100000001:3@s.whatsapp.net",
        "77@lid",
        "120363@g.us",
        "status@broadcast",
        "4915100000001",
        "a|b@lid",
        "x\n@lid",
        "",
    ]
)
_FRAMES = _some(
    id=st.just("1"),
    sender=_JIDS,
    pn=_JIDS,
    participant=_JIDS,
    content=_WORDS,
    timestamp=st.integers(),
    isGroup=st.booleans(),
    wasMentioned=st.booleans(),
    media=st.lists(_WORDS, max_size=2),
)


@given(_FRAMES)
def test_no_frame_has_a_wrong_sender(fields: dict[str, Any]) -> None:
    try:
        frame = MessageFrame.model_validate(fields)
    except ValidationError:
        return
    sender_id = identity_of(frame).sender_id()
    received = read_frame(frame, sender_id)
    if received is None:
        return
    named = [parse_jid(text) for text in (frame.pn, frame.participant, frame.sender)]
    assert is_attributable(received.message)
    assert sender_id in {
        form for jid in named if jid is not None for form in (jid.phone, jid.hidden, str(jid))
    }
    assert received.message.chat_id == str(parse_jid(frame.sender))


@pytest.mark.parametrize(
    ("chat_id", "expected"),
    [
        ("4915100000001", {"to": "4915100000001"}),
        ("+49 (151) 0000-0001", {"to": "4915100000001"}),
        ("US.13491208655302741918", {"recipient": "US.13491208655302741918"}),
        ("US.ENT.11815799212886844830", {"recipient": "US.ENT.11815799212886844830"}),
        ("us.1", None),
        ("Anna", None),
        ("", None),
        ("49\n1", None),
        ("٤٩١٥١", None),
    ],
)
def test_chats_are_addressed_in_the_right_field(
    chat_id: str, expected: dict[str, str] | None
) -> None:
    found = recipient(chat_id)

    assert found == (expected and {"recipient_type": "individual", **expected})


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ({"filename": "../../etc/passwd"}, "passwd"),
        ({"filename": "a\\b.pdf"}, "b.pdf"),
        ({"mime_type": "audio/ogg; codecs=opus"}, "audio-1.ogg"),
        ({"mime_type": "audio/mp4"}, "audio-1.m4a"),
        ({"mime_type": "application/x-unknown-type"}, "audio-1.ogg"),
    ],
)
def test_files_have_a_name(file: dict[str, str], name: str) -> None:
    media = {"id": "1", **file}
    message = wire.Message.model_validate({"id": "w", "from": "491511", "audio": media})
    received = read_message(message, Sender(id="491511"), None)

    assert received is not None
    assert [each.name for each in received.files] == [name]
