"""Replies are shown as intended: the real SDK with the local Bot API."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from nanobot_core import Button, DeliveryError, OutboundMessage
from nanobot_core.chat import plan_pieces
from nanobot_core.testing import FakePluginContext
from nanobot_telegram.call import TimeLimits
from nanobot_telegram.channel import build_channel
from nanobot_telegram.platform import LIMITS

bot_api: LocalApi = importlib.import_module("telegram_bot_api")
Opened: TypeAlias = Callable[..., AbstractAsyncContextManager[Any]]
LocalApi: TypeAlias = Any
"""Its module is loaded by path, so its types are unknown here."""
MakeContext: TypeAlias = Callable[..., FakePluginContext]
Talk: TypeAlias = Any

SHORT = TimeLimits(step_s=1.0, call_s=1.0, transfer_s=1.0, poll_s=1.0)
GROUP_ID = "-100200300"

ANSWER = """\
# Result

It **works**, see [the page](https://e.org/a_b), `snake_case` and Vec<T>:

```python
print("<hi>")  # 😀
```

| name | size |
| --- | --- |
| a | 1 |

> quoted
"""


async def test_an_answer_looks_as_it_was_meant(opened: Opened) -> None:
    async with opened() as talk:
        await talk.send(ANSWER)

    assert (
        talk.api.transcript()
        == """\
#11: Result

It works, see the page, snake_case and Vec<T>:

print("<hi>")  # 😀

name | size
-----+-----
a    | 1

quoted
   <bold> Result
   <bold> works
   <text_link> the page
   <code> snake_case
   <pre> print("<hi>")  # 😀
   <pre> name | size
-----+-----
a    | 1
   <blockquote> quoted"""
    )


async def test_a_long_answer_comes_in_parts_with_its_buttons_below_the_last(opened: Opened) -> None:
    text = "\n".join(f"line {number} 😀" for number in range(1_200))
    async with opened() as talk:
        await talk.send(text, buttons=((Button("Go on", "more"),),))

    shown = talk.api.shown()
    assert len(shown) > 3
    assert "".join(part.text for part in shown).split() == text.split()
    assert all(bot_api.utf16(part.text) <= 4_000 for part in shown)
    assert [bool(part.buttons) for part in shown] == [False] * (len(shown) - 1) + [True]


async def test_a_topic_gets_what_is_written_to_it(opened: Opened) -> None:
    async with opened() as talk:
        await talk.send("hi", f"{GROUP_ID}:77")
        await talk.channel.show_typing(f"{GROUP_ID}:77")
        await talk.channel.show_typing("1001")

    assert [shown.thread for shown in talk.api.shown(-100200300)] == [77]
    assert talk.api.typing == [(-100200300, 77), (1001, None)]


@pytest.mark.parametrize(
    ("reply_to", "wanted", "expected"),
    [
        ("11", True, 11),
        ("1001:11", True, 11),
        ("-100200300:11:1790000000", True, 11),
        ("callback:123", True, None),
        (None, True, None),
        ("11", False, None),
    ],
)
async def test_an_answer_quotes_its_question_where_the_owner_wants_it(
    opened: Opened, reply_to: str | None, wanted: bool, expected: int | None
) -> None:
    async with opened(reply_to_message=wanted) as talk:
        await talk.send("yes\n" * 2_000, reply_to=reply_to)

    assert [shown.reply_to for shown in talk.api.shown()][:2] == [expected, None]


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("a.jpg", "photo"),
        ("a.PNG", "photo"),
        ("a.ogg", "voice"),
        ("a.mp3", "audio"),
        ("a.mp4", "video"),
        ("a.gif", "animation"),
        ("Größe 1.pdf", "document"),
        ("a", "document"),
    ],
)
async def test_a_file_is_sent_as_what_it_is(
    opened: Opened, tmp_path: Path, name: str, kind: str
) -> None:
    path = tmp_path / name
    path.write_bytes(bytes(range(256)))
    async with opened() as talk:
        await talk.send("**look**", media=(str(path),))

    (shown,) = talk.api.shown()
    assert shown.files == [(kind, name, bytes(range(256)))]
    assert (shown.text, shown.spans()) == ("look", [("bold", "look")])


async def test_files_of_one_sort_are_an_album(opened: Opened, tmp_path: Path) -> None:
    names = [*(f"{n}.jpg" for n in range(11)), "v.mp4", "a.pdf", "b.pdf", "s.ogg", "m.mp3"]
    for name in names:
        (tmp_path / name).write_bytes(name.encode())
    async with opened() as talk:
        await talk.send("trip", media=tuple(str(tmp_path / name) for name in names))

    sizes = [len(shown.files) for shown in talk.api.shown()]
    assert sizes == [10, 2, 2, 1, 1]
    assert [f[1] for shown in talk.api.shown() for f in shown.files] == names
    assert [shown.text for shown in talk.api.shown()] == ["trip", "", "", "", ""]


async def test_a_long_text_comes_before_its_file(opened: Opened, tmp_path: Path) -> None:
    path = tmp_path / "a.pdf"
    path.write_bytes(b"x")
    async with opened() as talk:
        await talk.send("word " * 300, media=(str(path),))

    text, file = talk.api.shown()
    assert (len(text.files), file.text) == (0, "")


async def test_a_file_that_cannot_be_sent_is_reported_in_the_chat(
    opened: Opened, tmp_path: Path
) -> None:
    (tmp_path / "empty.txt").touch()
    with (tmp_path / "huge.bin").open("wb") as huge:
        huge.truncate(51 * 1024 * 1024)
    names = ("gone.txt", "empty.txt", "huge.bin")
    async with opened() as talk:
        await talk.send("here", media=tuple(str(tmp_path / name) for name in names))

    (shown,) = talk.api.shown()
    assert shown.text.startswith("here\n\n")
    assert all(f"{name} could not be sent" in shown.text for name in names)


async def test_buttons_without_words_still_come(opened: Opened) -> None:
    async with opened() as talk:
        await talk.send("", buttons=((Button("Yes", "y"), Button("No", "n")),))

    assert talk.api.shown()[0].buttons == [[("Yes", "y"), ("No", "n")]]


async def test_an_empty_message_sends_nothing(opened: Opened) -> None:
    async with opened() as talk:
        await talk.send(" \n ")

    assert talk.api.shown() == []


# --- refusals


async def test_refused_formatting_is_sent_as_plain_text(opened: Opened) -> None:
    async with opened() as talk:
        talk.api.fail("sendMessage", code=400, description="Bad Request: can't parse entities")
        await talk.send("**bold** words")

    (shown,) = talk.api.shown()
    assert (shown.text, shown.entities) == ("bold words", [])


async def test_a_refused_picture_is_sent_as_a_document(opened: Opened, tmp_path: Path) -> None:
    path = tmp_path / "strip.png"
    path.write_bytes(b"x")
    async with opened() as talk:
        talk.api.fail("sendPhoto", code=400, description="Bad Request: PHOTO_INVALID_DIMENSIONS")
        await talk.send("**see**", media=(str(path),))

    (shown,) = talk.api.shown()
    assert shown.files == [("document", "strip.png", b"x")]
    assert shown.spans() == [("bold", "see")]


async def test_a_refused_album_is_sent_file_by_file(opened: Opened, tmp_path: Path) -> None:
    paths = [tmp_path / "a.jpg", tmp_path / "b.jpg"]
    for path in paths:
        path.write_bytes(b"x")
    async with opened() as talk:
        talk.api.fail("sendMediaGroup", code=400, description="Bad Request: group send failed")
        await talk.send("two", media=tuple(map(str, paths)))

    assert [shown.files[0][:2] for shown in talk.api.shown()] == [
        ("photo", "a.jpg"),
        ("photo", "b.jpg"),
    ]
    assert [shown.text for shown in talk.api.shown()] == ["two", ""]


async def refusal(talk: Talk, *args: Any, **fields: Any) -> DeliveryError:
    with pytest.raises(DeliveryError) as raised:
        await talk.send(*args, **fields)
    return raised.value


async def test_a_person_who_blocked_the_bot_is_not_tried_again(opened: Opened) -> None:
    async with opened() as talk:
        talk.api.blocked.add(1001)
        error = await refusal(talk, "**hi**")

    assert (error.retryable, error.channel) == (False, "telegram")
    assert "blocked" in error.reason
    assert talk.api.calls.count("sendMessage") == 1


@pytest.mark.parametrize("chat_id", ["5", "nobody", "1001:x"])
async def test_a_chat_that_is_not_there_is_not_tried_again(opened: Opened, chat_id: str) -> None:
    async with opened() as talk:
        assert not (await refusal(talk, "hi", chat_id)).retryable


async def test_a_rate_limit_says_how_long_to_wait(opened: Opened) -> None:
    async with opened() as talk:
        talk.api.fail("sendMessage", code=429, description="Too Many Requests", retry_after=3)
        error = await refusal(talk, "hi")
        await talk.send("hi")

    assert (error.retryable, error.retry_after_s) == (True, 3.0)
    assert len(talk.api.shown()) == 1


@pytest.mark.parametrize("kind", ["cut", "hang", "garbage", "refuse"])
@pytest.mark.parametrize("method", ["sendMessage", "sendDocument", "sendMediaGroup"])
async def test_passing_troubles_may_be_tried_again(
    opened: Opened, tmp_path: Path, method: str, kind: str
) -> None:
    names = {"sendMessage": [], "sendDocument": ["a.txt"], "sendMediaGroup": ["a.txt", "b.txt"]}
    media = tuple(str(tmp_path / name) for name in names[method])
    for path in media:
        Path(path).write_bytes(b"x")
    async with opened(limits=SHORT) as talk:
        talk.api.fail(method, kind, code=500)
        error = await refusal(talk, "hi", media=media)
        await talk.send("hi", media=media)

    assert error.retryable
    assert len(talk.api.shown()) == 1


async def test_a_token_that_was_revoked_keeps_messages_for_later(opened: Opened) -> None:
    async with opened() as talk:
        talk.api.fail("sendMessage", code=401, description="Unauthorized")

        assert (await refusal(talk, "hi")).retryable


async def test_a_group_that_moved_gets_its_messages(opened: Opened) -> None:
    async with opened() as talk:
        talk.api.moved[-55] = -100777
        error = await refusal(talk, "hi", "-55")
        await talk.send("hi", "-55")

    assert error.retryable
    assert [shown.text for shown in talk.api.shown(-100777)] == ["hi"]


async def test_a_retry_goes_on_with_the_piece_that_failed(
    opened: Opened, ctx_with: MakeContext, tmp_path: Path
) -> None:
    """Also over another connection, as the gateway makes one after a failure."""
    path = tmp_path / "a.pdf"
    path.write_bytes(b"x")
    message = OutboundMessage(
        channel="telegram",
        chat_id="1001",
        content="word " * 2_000,
        media=(str(path),),
        idempotency_key="k",
    )
    ctx = ctx_with()
    async with opened(ctx=ctx) as talk:
        talk.api.fail("sendDocument", code=500)
        with pytest.raises(DeliveryError):
            await talk.channel.send(message)
    async with opened(ctx=ctx) as again:
        await again.channel.send(message)
        await again.channel.send(message)

    texts = [shown.text for shown in talk.api.shown() if not shown.files]
    assert "".join(texts).split() == message.content.split()
    assert [len(shown.files) for shown in talk.api.shown()] == [0, 0, 0, 1]


# --- without receiving


async def test_who_the_bot_is_can_be_asked_without_receiving(
    ctx_with: MakeContext, api: LocalApi
) -> None:
    channel = build_channel(ctx_with())
    assert await channel.login() == "@nano_bot (Nano, id 4839574812)"
    await channel.stop()

    assert api.calls == ["getMe"]
    with pytest.raises(DeliveryError) as raised:
        await channel.send(OutboundMessage(channel="telegram", chat_id="1001", content="x"))
    assert raised.value.retryable


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40)
@given(st.text(max_size=3_000), st.lists(st.integers(0, 5), max_size=14))
def test_the_same_message_gives_the_same_pieces(
    tmp_path: Path, content: str, files: list[int]
) -> None:
    paths = []
    for number in files:
        path = tmp_path / f"f{number}.{['jpg', 'mp4', 'pdf', 'mp3', 'ogg', 'gif'][number]}"
        path.write_bytes(b"x")
        paths.append(str(path))
    message = OutboundMessage(channel="telegram", chat_id="1", content=content, media=tuple(paths))

    pieces = plan_pieces(message, LIMITS)

    assert plan_pieces(message, LIMITS) == pieces
    assert [str(file.path) for piece in pieces for file in piece.files] == paths
    assert all(piece.files or piece.text.text.strip() for piece in pieces)
    assert all(len(piece.files) <= 10 for piece in pieces)
    json.dumps([piece.text.text for piece in pieces])
