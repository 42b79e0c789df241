"""What the agent sends, as people see it, and what follows from WhatsApp's refusals."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from nanobot_core import Button, DeliveryError
from nanobot_core.testing import FakeClock

Opened: TypeAlias = Callable[..., AbstractAsyncContextManager[Any]]
LocalWhatsApp: TypeAlias = Any

OPUS = b"OggS\0\2" + bytes(22) + b"\1\x13OpusHead\1\1" + bytes(50)
PNG = b"\x89PNG\r\n\x1a\n" + bytes(50)
JPEG = b"\xff\xd8\xff\xe0" + bytes(50)


def last(api: LocalWhatsApp) -> Any:  # noqa: ANN401 - the module of its class is loaded by path
    return api.shown(api.anna.id)[-1]


def buttons(count: int, label: str = "Label {}", value: str = "/v {}") -> tuple[Any, ...]:
    return tuple((Button(label.format(n), value.format(n)),) for n in range(count))


@pytest.mark.parametrize(
    ("name", "content", "kind", "mime_type", "sent_name"),
    [
        ("a.ogg", OPUS, "voice", "audio/ogg; codecs=opus", "a.ogg"),
        ("a.opus", OPUS, "voice", "audio/ogg; codecs=opus", "a.ogg"),
        ("a.ogg", b"OggS vorbis", "file", "audio/ogg", "a.ogg"),
        ("a.mp3", b"ID3", "audio", "audio/mpeg", "a.mp3"),
        ("a.amr", b"#!AMR", "audio", "audio/amr", "a.amr"),
        ("a.mp4", b"ftyp", "video", "video/mp4", "a.mp4"),
        ("a.png", PNG, "image", "image/png", "a.png"),
        ("a.png", JPEG, "image", "image/jpeg", "a.png"),
        ("a.png", b"GIF89a", "file", "image/png", "a.png"),
        ("a.webp", b"RIFF", "file", "image/webp", "a.webp"),
        ("Grüße.pdf", b"%PDF", "file", "application/pdf", "Grüße.pdf"),
    ],
)
async def test_files_are_sent_as_what_they_are(
    opened: Opened, api: LocalWhatsApp, tmp_path: Path, name: str, content: bytes, kind: str,
    mime_type: str, sent_name: str,
) -> None:  # fmt: skip
    path = tmp_path / name
    path.write_bytes(content)
    async with opened() as talk:
        await talk.send("", media=(str(path),))

    (file,) = last(api).files
    (upload,) = api.uploads.values()
    assert (file.kind, file.content) == (kind, content)
    assert (upload.mime_type, upload.name) == (mime_type, sent_name)


async def test_a_picture_that_is_too_large_is_sent_as_a_document(
    opened: Opened, api: LocalWhatsApp, tmp_path: Path
) -> None:
    (tmp_path / "a.png").write_bytes(PNG + bytes(5 << 20))
    async with opened() as talk:
        await talk.send("see", media=(str(tmp_path / "a.png"),))

    assert (last(api).text, last(api).files[0].kind) == ("see", "file")


async def test_a_text_is_beside_a_picture_and_before_a_voice_message(
    opened: Opened, api: LocalWhatsApp, tmp_path: Path
) -> None:
    (tmp_path / "a.png").write_bytes(PNG)
    (tmp_path / "a.ogg").write_bytes(OPUS)
    async with opened() as talk:
        await talk.send("see", media=(str(tmp_path / "a.png"),))
        await talk.send("hear", media=(str(tmp_path / "a.ogg"),))

    shown = [(each.text, len(each.files)) for each in api.shown(api.anna.id)]
    assert shown == [("see", 1), ("hear", 0), ("", 1)]


async def test_a_repeated_send_does_not_repeat_the_text_of_a_voice_message(
    opened: Opened, api: LocalWhatsApp, tmp_path: Path
) -> None:
    (tmp_path / "a.ogg").write_bytes(OPUS)
    content = {"media": (str(tmp_path / "a.ogg"),), "idempotency_key": "k"}
    async with opened() as talk:
        await api.hang_up(after=1)
        with pytest.raises(DeliveryError) as raised:
            await talk.send("hear", **content)
        await api.come_back()
        await talk.send("hear", **content)

    assert raised.value.retryable
    assert [each.text for each in api.shown(api.anna.id)] == ["hear", ""]


@pytest.mark.parametrize(
    ("rows", "kind"),
    [
        (buttons(3), "button"),
        (buttons(4), "list"),
        (buttons(10), "list"),
        (buttons(2, label="A long label with the number {}"), "list"),
        (buttons(2, label="Same"), "list"),
        (buttons(11), "text"),
        (buttons(2, label="{}" + "x" * 72), "text"),
        (buttons(2, value="same"), "text"),
    ],
)
async def test_buttons_become_what_whatsapp_takes(
    opened: Opened, api: LocalWhatsApp, rows: tuple[Any, ...], kind: str
) -> None:
    async with opened() as talk:
        await talk.send("Run?", buttons=rows)
        body = api.sent[-1]
        if kind == "text":
            assert rows[0][0].value in last(api).text
            return
        await api.press(last(api), rows[1][0].label if "Same" not in str(rows) else "Same")
        await talk.inbox.wait_for_stored(1)

    assert (body["type"], body["interactive"]["type"]) == ("interactive", kind)
    (pressed,) = talk.inbox.stored
    assert pressed.content in {row[0].value for row in rows}
    assert pressed.metadata["button"] is True


async def test_a_long_text_is_sent_before_its_buttons(opened: Opened, api: LocalWhatsApp) -> None:
    words = " ".join(f"word{number}" for number in range(300))
    async with opened() as talk:
        await talk.send(words, buttons=buttons(2))

    texts = [each.text for each in api.shown(api.anna.id)]
    assert (texts[0], len(texts)) == (words, 2)
    assert last(api).buttons == ("Label 0", "Label 1")


async def test_a_hidden_number_gets_its_answer(opened: Opened, api: LocalWhatsApp) -> None:
    """In the field for phone numbers, WhatsApp would drop the message without an error."""
    hidden = f"DE.Anna{api.anna.id[::-1]}"
    async with opened() as talk:
        await talk.send("hello", chat_id=hidden)
        await talk.send("by number", chat_id="+49 151 0000-0001")
        with pytest.raises(DeliveryError) as raised:
            await talk.send("hello", chat_id="Anna")

    assert not raised.value.retryable
    assert [each.text for each in api.shown(api.anna.id)] == ["hello", "by number"]


@pytest.mark.parametrize(("setting", "quotes"), [(True, 1), (False, 0)])
async def test_a_reply_quotes_if_that_is_set(
    opened: Opened, api: LocalWhatsApp, setting: bool, quotes: int
) -> None:
    async with opened(reply_to_message=setting) as talk:
        key = await api.say("question")
        await talk.inbox.wait_for_stored(1)
        await talk.send("answer", reply_to=key)
        await talk.send("to an old message", reply_to="wamid.forgotten")

    shown = api.shown(api.anna.id)
    assert [each.quotes for each in shown] == [None, key if quotes else None, None]


async def test_typing_marks_the_newest_message_as_read(opened: Opened, api: LocalWhatsApp) -> None:
    async with opened() as talk:
        await talk.channel.show_typing(api.anna.id)
        key = await api.say("question")
        await talk.until(lambda: api.acknowledged)
        await talk.channel.show_typing(api.anna.id)
        await talk.channel.show_typing(api.anna.id)

    assert api.read == [key, key]


async def test_whatsapp_says_how_long_to_wait(opened: Opened, api: LocalWhatsApp) -> None:
    async with opened() as talk:
        api.busy(3.5)
        with pytest.raises(DeliveryError) as named:
            await talk.send("hello")
        api.faults.append(_refused(api, 131056))
        with pytest.raises(DeliveryError) as unnamed:
            await talk.send("hello")

    assert (named.value.retryable, named.value.retry_after_s) == (True, 3.5)
    assert (unnamed.value.retryable, unnamed.value.retry_after_s) == (True, 6.0)


async def test_a_refused_picture_is_sent_as_a_document(
    opened: Opened, api: LocalWhatsApp, tmp_path: Path
) -> None:
    (tmp_path / "a.png").write_bytes(PNG)
    async with opened() as talk:
        api.faults.append(_refused(api, 131053))
        await talk.send("see", media=(str(tmp_path / "a.png"),))

    assert (last(api).text, last(api).files[0].kind) == ("see", "file")


# --- the window of 24 hours

TEMPLATE = {"name": "please_write", "language": "de"}


async def test_in_a_closed_window_the_owner_is_notified(opened: Opened, api: LocalWhatsApp) -> None:
    async with opened() as talk:
        api.close_window(api.anna.id)
        for _ in range(2):
            with pytest.raises(DeliveryError) as raised:
                await talk.send("the news")

    assert not raised.value.retryable
    assert "more than 24 hours" in raised.value.reason
    assert "set channels.whatsapp.template" in raised.value.reason
    (notice,) = talk.gateway.notices.values()
    assert raised.value.reason in notice
    assert api.sent == []


async def test_a_window_that_is_known_to_be_closed_is_not_tried(
    opened: Opened, api: LocalWhatsApp
) -> None:
    clock = FakeClock()
    async with opened(clock=clock) as talk:
        written = int((clock.now() - timedelta(hours=25)).timestamp())
        text = {"type": "text", "text": {"body": "hi"}, "timestamp": str(written)}
        await talk.until(lambda: talk.inbox.contacts)
        await api.call(api.body([{"id": "wamid.1", "from": api.anna.id, **text}]))
        await talk.until((talk.ctx.data_dir / "windows.json").exists)
        calls = len(api.calls)
        with pytest.raises(DeliveryError, match="more than 24 hours"):
            await talk.send("the news")

    assert len(api.calls) == calls


async def test_the_template_asks_once_and_the_message_is_kept(
    opened: Opened, api: LocalWhatsApp
) -> None:
    async with opened(template=TEMPLATE) as talk:
        api.close_window(api.anna.id)
        reasons = []
        for _ in range(2):
            with pytest.raises(DeliveryError) as raised:
                await talk.send("the news")
            reasons.append(raised.value.reason)
        assert [each.text for each in api.shown(api.anna.id)] == ["<please_write>"]
        await api.say("here I am")
        await talk.until(lambda: api.acknowledged)
        await talk.send("the news")

    assert "was sent, which asks the person to write" in reasons[0]
    assert "was sent before" in reasons[1]
    assert last(api).text == "the news"


async def test_a_template_can_carry_the_text(opened: Opened, api: LocalWhatsApp) -> None:
    async with opened(template=TEMPLATE | {"with_text": True}) as talk:
        api.close_window(api.anna.id)
        await talk.send("the\nnews")
        with pytest.raises(DeliveryError, match="does not fit"):
            await talk.send("x" * 1_025)

    assert last(api).text == "<please_write> the news"


async def test_a_refused_template_is_reported(opened: Opened, api: LocalWhatsApp) -> None:
    async with opened(template=TEMPLATE) as talk:
        api.faults += [_refused(api, 131047), _refused(api, 132001)]
        with pytest.raises(DeliveryError, match="does not exist in this language") as raised:
            await talk.send("the news")

    assert not raised.value.retryable


async def test_a_window_that_closes_late_is_reported_with_the_template(
    opened: Opened, api: LocalWhatsApp
) -> None:
    async with opened(template=TEMPLATE) as talk:
        api.late_faults.append(131047)
        await talk.send("the news")
        await talk.until(lambda: talk.gateway.notices)

    (notice,) = talk.gateway.notices.values()
    assert "template 'please_write'" in notice


def _refused(api: LocalWhatsApp, code: int) -> Exception:
    api.busy(0)
    fault: Exception = api.faults.pop()
    return type(fault)(code)


async def test_a_person_who_is_unreachable_is_a_final_failure(
    opened: Opened, api: LocalWhatsApp
) -> None:
    async with opened() as talk:
        api.block(api.anna.id)
        with pytest.raises(DeliveryError, match="cannot be delivered") as raised:
            await talk.send("hello")

    assert not raised.value.retryable


async def test_markdown_becomes_whatsapps_formatting(opened: Opened, api: LocalWhatsApp) -> None:
    markdown = "**bold** and a*b*c, `x_y`: [a link](https://example.org/a_b_c)"
    async with opened() as talk:
        await talk.send(markdown)

    assert last(api).text == "bold and a*b*c, x_y: a link (https://example.org/a_b_c)"
    assert last(api).spans == (("bold", "bold"), ("code", "x_y"))
    assert api.sent[-1]["text"]["preview_url"] is False
