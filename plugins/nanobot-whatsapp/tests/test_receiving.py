"""What people send arrives: messages of all types, files, and statuses of answers."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from nanobot_core.testing import ChatFile, FakeClock, Person, RecordingInbox

Opened: TypeAlias = Callable[..., AbstractAsyncContextManager[Any]]
LocalWhatsApp: TypeAlias = Any


def user_id(person: Person) -> str:
    return f"DE.{person.name}{person.id[::-1]}"


async def test_a_voice_message_becomes_a_recording(opened: Opened, api: LocalWhatsApp) -> None:
    async with opened() as talk:
        await api.say(files=[ChatFile("", b"OggS", "voice")])
        await talk.inbox.wait_for_stored(1)

    (message,) = talk.inbox.stored
    (path,) = map(Path, message.media)
    assert (path.suffix, path.read_bytes()) == (".ogg", b"OggS")


async def test_files_arrive_with_their_captions(opened: Opened, api: LocalWhatsApp) -> None:
    async with opened() as talk:
        await api.say("see", files=[ChatFile("../../a\u202eb.pdf", bytes(999_999))])
        await api.say("look", files=[ChatFile("", b"png", "image")])
        await talk.inbox.wait_for_stored(2)

    document, picture = talk.inbox.stored
    assert (document.content, picture.content) == ("see", "look")
    assert Path(document.media[0]).is_relative_to(talk.ctx.media.folder)
    assert Path(document.media[0]).stat().st_size == 999_999
    assert Path(picture.media[0]).suffix == ".png"


async def test_nothing_is_fetched_for_a_stranger(opened: Opened, api: LocalWhatsApp) -> None:
    async with opened(inbox=RecordingInbox(admits=lambda _: False)) as talk:
        await api.say(files=[ChatFile("a", b"x")])
        await talk.until(lambda: api.acknowledged)

    assert [method for method, path in api.calls if "bytes" in path or "/9" in path] == []


async def test_the_token_is_sent_to_hosts_of_whatsapp_only(
    opened: Opened, api: LocalWhatsApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened() as talk:
        original = api._respond

        async def respond(method: str, path: str, *rest: Any) -> Any:  # noqa: ANN401 - JSON
            answer = await original(method, path, *rest)
            if isinstance(answer, dict) and "url" in answer:
                answer["url"] = "https://lookaside.fbsbx.com.example.org/x"
            return answer

        monkeypatch.setattr(api, "_respond", respond)
        await api.say("see", files=[ChatFile("a.pdf", b"x")])
        await talk.inbox.wait_for_stored(1)

    assert talk.inbox.stored[0].media == ()
    assert "a.pdf could not be fetched" in talk.inbox.stored[0].content


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (
            {"type": "location", "location": {"latitude": 1.5, "longitude": 2}},
            "[location: 1.5, 2.0]",
        ),
        (
            {
                "type": "location",
                "location": {"latitude": 1, "longitude": 2, "name": "Bar", "address": "A 1"},
            },
            "[place: Bar, A 1 (1.0, 2.0)]",
        ),
        (
            {
                "type": "contacts",
                "contacts": [
                    {"name": {"formatted_name": "Eve"}, "phones": [{"phone": "+1 2"}, {}]},
                    {"name": {"formatted_name": "Bob\nX"}, "phones": None},
                ],
            },
            "[contact: Eve, +1 2]\n[contact: Bob X]",
        ),
        (
            {"type": "reaction", "reaction": {"message_id": "wamid.0", "emoji": "👍"}},
            "[in reply to an older message]\n[reaction: 👍]",
        ),
        (
            {"type": "text", "text": {"body": "hi"}, "context": {"forwarded": True}},
            "[forwarded from an unknown sender]\nhi",
        ),
        ({"type": "button", "button": {"payload": "/yes", "text": "Yes"}}, "/yes"),
        (
            {"type": "unsupported", "errors": [{"code": 131051}]},
            "[a message of type 'unsupported', which cannot be shown]",
        ),
        (
            {"type": "interactive", "interactive": {"type": "nfm_reply", "nfm_reply": {}}},
            "[a message of type 'interactive', which cannot be shown]",
        ),
        ({"type": "order", "order": {}}, "[a message of type 'order', which cannot be shown]"),
    ],
)
async def test_every_type_has_a_text(
    opened: Opened, api: LocalWhatsApp, content: dict[str, Any], expected: str
) -> None:
    async with opened() as talk:
        api.deliver(content)
        await talk.inbox.wait_for_stored(1)

    assert talk.inbox.stored[0].content == expected


@pytest.mark.parametrize(
    "content",
    [
        {"type": "reaction", "reaction": {"message_id": "wamid.0"}},
        {"type": "system", "system": {"body": "Anna changed her number"}},
        {"type": "text", "text": {"body": "to all"}, "group_id": "G1"},
    ],
)
async def test_what_is_not_for_the_agent_is_acknowledged_and_ignored(
    opened: Opened, api: LocalWhatsApp, content: dict[str, Any]
) -> None:
    async with opened() as talk:
        api.deliver(content)
        await talk.until(lambda: api.acknowledged)

    assert talk.inbox.attempts == []


async def test_a_quote_shows_what_was_said(opened: Opened, api: LocalWhatsApp) -> None:
    async with opened() as talk:
        own = await api.say("the first words")
        await talk.inbox.wait_for_stored(1)
        await talk.send("the answer")
        answer = api.shown(api.anna.id)[-1]
        await api.say("why?", quote=answer.id)
        await api.say("and this?", quote=own)
        await api.say("/status", quote=own)
        await talk.inbox.wait_for_stored(4)

    assert [message.content for message in talk.inbox.stored[1:]] == [
        "[in reply to the agent]\n> the answer\nwhy?",
        "[in reply to the user]\n> the first words\nand this?",
        "/status",
    ]


async def test_a_quote_is_known_after_a_restart(opened: Opened, api: LocalWhatsApp) -> None:
    async with opened() as talk:
        await talk.send("before")
    async with opened() as talk:
        await api.say("why?", quote=api.shown(api.anna.id)[-1].id)
        await talk.inbox.wait_for_stored(1)

    assert "> before" in talk.inbox.stored[0].content


async def test_a_hidden_number_is_the_same_person(opened: Opened, api: LocalWhatsApp) -> None:
    anna, hidden = api.anna, user_id(api.anna)
    text = {"type": "text", "text": {"body": "hi"}, "timestamp": "1700000000"}
    contact = {"profile": {"name": "Anna"}, "user_id": hidden}
    async with opened() as talk:
        await talk.until(lambda: talk.inbox.contacts)
        before = api.body([{"id": "wamid.1", "from_user_id": hidden, **text}])
        await api.call(before)
        await api.call(api.body([{"id": "wamid.2", "from": anna.id, **text}], [anna]))
        after = api.body([{"id": "wamid.3", **text}])
        after["entry"][0]["changes"][0]["value"]["contacts"] = [contact]
        await api.call(after)
        several = api.body([{"id": "wamid.4", **text}], [api.bert])
        several["entry"][0]["changes"][0]["value"]["contacts"].append(contact)
        await api.call(several)

    found = [(message.sender_id, message.chat_id) for message in talk.inbox.stored]
    assert found == [(hidden, hidden), (anna.id, anna.id), (anna.id, anna.id)]
    assert talk.inbox.stored[1].sender_names == (f"+{anna.id}", hidden)


async def test_names_that_people_choose_are_no_identities(
    opened: Opened, api: LocalWhatsApp
) -> None:
    mallory = Person("4915100000003", "4915100000001|Anna\n")
    async with opened() as talk:
        await talk.until(lambda: talk.inbox.contacts)
        text = {"type": "text", "text": {"body": "hi"}, "from": mallory.id, "id": "wamid.1"}
        body = api.body([text], [mallory])
        body["entry"][0]["changes"][0]["value"]["contacts"][0].pop("user_id")
        await api.call(body)

    (message,) = talk.inbox.stored
    assert (message.sender_id, message.sender_names) == (mallory.id, (f"+{mallory.id}",))
    assert message.metadata["profile_name"] == "4915100000001|Anna"


async def test_an_answer_that_is_not_delivered_is_reported_once(
    opened: Opened, api: LocalWhatsApp
) -> None:
    async with opened() as talk:
        api.late_faults.append(131026)
        await talk.send("the answer")
        await talk.until(lambda: api.answers)
        api.report("wamid.00000001", 131026)
        api.report("wamid.unknown", 131026)
        await talk.until(lambda: len(api.answers) == 3)

    (notice,) = talk.gateway.notices.values()
    assert "cannot be delivered to this number. It began: the answer" in notice


async def test_a_voice_message_that_is_not_delivered_is_reported(
    opened: Opened, api: LocalWhatsApp, tmp_path: Path
) -> None:
    """WhatsApp accepts files of a wrong type, and reports them in a status only."""
    (tmp_path / "a.mp3").write_bytes(b"ID3")
    async with opened() as talk:
        api.late_faults.append(131053)
        await talk.send("", media=(str(tmp_path / "a.mp3"),))
        await talk.until(lambda: talk.gateway.notices)

    (notice,) = talk.gateway.notices.values()
    assert "does not accept the file's type or content. It began: [a.mp3]" in notice


async def test_statuses_may_come_in_any_order(opened: Opened, api: LocalWhatsApp) -> None:
    async with opened() as talk:
        await talk.send("the answer")
        key = api.shown(api.anna.id)[-1].id
        states = [{"id": key, "status": state} for state in ("read", "delivered", "new", "sent")]
        answer = await api.call(api.body([], statuses=[*states, None, {"id": key}]))

    assert answer.status_code == 200
    assert talk.gateway.notices == {}


async def test_a_number_is_alive_as_long_as_whatsapp_answers(
    opened: Opened, api: LocalWhatsApp
) -> None:
    """While its API does not answer, WhatsApp can still deliver messages."""
    clock = FakeClock()
    async with opened(clock=clock) as talk:
        await clock.wait_for_sleepers()
        contacts = talk.inbox.contacts
        await api.hang_up()
        await clock.advance(300)
        await clock.wait_for_sleepers()
        assert talk.inbox.contacts == contacts
        await api.come_back()
        await clock.advance(300)
        await clock.wait_for_sleepers()
        assert talk.inbox.contacts == contacts + 1


async def test_old_messages_do_not_shorten_the_window(opened: Opened, api: LocalWhatsApp) -> None:
    """After an outage, WhatsApp repeats messages of up to seven days, in any order."""
    old = {"id": "wamid.old", "from": api.anna.id, "timestamp": str(int(time.time()) - 200_000)}
    async with opened() as talk:
        await api.say("new")
        await talk.inbox.wait_for_stored(1)
        await api.call(api.body([{**old, "type": "text", "text": {"body": "old"}}]))
        await talk.send("answer")

    assert api.shown(api.anna.id)[-1].text == "answer"
