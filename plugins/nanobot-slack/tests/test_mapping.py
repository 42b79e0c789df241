"""Reading Slack's events, and writing its blocks, without a connection."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st
from pydantic import ValidationError

from nanobot_core import InboundMessage
from nanobot_core.chat import Cause, Piece, Records, RichText, render_markdown, split_rich
from nanobot_slack import wire
from nanobot_slack.blocks import build_edit, measure
from nanobot_slack.drafts import stable_part
from nanobot_slack.failure import BOT_TOKEN, CAUSES, refused_call
from nanobot_slack.history import Watermarks
from nanobot_slack.mapping import Account, Reader, Rules, read_text
from nanobot_slack.settings import SlackSettings

ACCOUNT = Account(team="T1", user="UBOT", bot="BBOT")
READER = Reader(ACCOUNT, Rules(edited_messages=True, commands=("stop",)))
TS = "1790000000.000100"


def event(text: str = "hello", **fields: Any) -> dict[str, object]:
    base = {"type": "message", "channel": "C1A", "user": "U1", "ts": TS, "text": text}
    return {"event": base | fields}


def read(text: str = "hello", reader: Reader = READER, **fields: Any) -> InboundMessage | None:
    received = reader.event(event(text, **fields))
    return received.message if received is not None else None


@pytest.mark.parametrize(
    ("sent", "seen"),
    [
        ("a &lt;b&gt; &amp;amp; c", "a <b> &amp; c"),
        ("<@U2> and <@U3|bert>", "@U2 and @bert"),
        ("<#C2|general> <#C3>", "#general #C3"),
        ("<!here> <!subteam^S1|@team> <!date^1^x|today>", "@here @team today"),
        (
            "<https://a.example> <https://a.example/x|docs>",
            "https://a.example docs (https://a.example/x)",
        ),
        ("<mailto:a@b.example|a@b.example>", "a@b.example"),
        ("<https://a.example|https://a.example>", "https://a.example"),
        ("1 < 2 <", "1 < 2 <"),
    ],
)
def test_a_text_reads_as_its_author_sees_it(sent: str, seen: str) -> None:
    assert read_text(sent) == seen


@pytest.mark.parametrize(
    ("text", "content", "is_addressed"),
    [
        ("<@UBOT> hello", "hello", True),
        ("hello <@UBOT|nano> there", "hello there", True),
        ("<@UBOT> /stop", "/stop", True),
        ("<@U2> hello", "@U2 hello", False),
    ],
)
def test_a_mention_is_removed(text: str, content: str, is_addressed: bool) -> None:
    message = read(text)
    assert message is not None
    assert (message.content, message.is_addressed) == (content, is_addressed)


@pytest.mark.parametrize(
    "fields",
    [
        {"user": "UBOT"},
        {"bot_id": "BBOT"},
        {"bot_id": "B2", "subtype": "bot_message", "user": None},
        {"bot_id": "B2"},
        {"user": "USLACKBOT"},
        {"user": None},
        {"subtype": "channel_join"},
        {"subtype": "message_deleted", "message": None},
        {"type": "reaction_added"},
        {"text": ""},
        {"subtype": "message_changed", "message": {"ts": TS, "user": "U1", "text": "x"}},
    ],
)
def test_what_no_person_says_is_ignored(fields: dict[str, Any]) -> None:
    assert read(**fields) is None


def test_the_first_message_of_a_thread_is_not_in_it() -> None:
    private = read(channel="D1A", thread_ts=TS)
    flat = read(reader=Reader(ACCOUNT, Rules(reply_in_thread=False)), thread_ts=TS)
    assert private is not None
    assert flat is not None
    assert (private.chat_id, flat.chat_id) == ("D1A", "C1A")
    assert "thread" not in private.metadata


def test_listed_bots_may_write() -> None:
    reader = Reader(ACCOUNT, Rules(allow_bots=("B2", "UBOT", "BBOT")))
    message = read(reader=reader, bot_id="B2", subtype="bot_message", user=None)
    assert message is not None
    assert message.sender_id == "B2"
    assert read(reader=reader, user="UBOT", bot_id="B2") is None
    assert read(reader=reader, user=None, bot_id="BBOT", subtype="bot_message") is None


def test_direct_messages_follow_their_own_rules() -> None:
    closed = Reader(ACCOUNT, Rules(reads_dm=False))
    listed = Reader(ACCOUNT, Rules(dm_senders=("U2",)))
    assert read(reader=closed, channel="D1A") is None
    assert read(reader=closed) is not None
    assert read(reader=listed, channel="D1A") is None
    assert read(reader=listed, channel="D1A", user="U2") is not None


def test_a_shared_message_is_quoted_or_forwarded() -> None:
    shared = {"is_share": True, "author_name": "Bert\n", "text": "secret\nplan"}
    preview = {"text": "a page", "author_name": "x"}
    alone = read("", attachments=[shared])
    commented = read("see", attachments=[preview, shared])
    command = read("<@UBOT> /stop", attachments=[shared])
    assert alone is not None
    assert commented is not None
    assert command is not None
    assert (alone.content, alone.is_forwarded) == ("[forwarded from Bert]\nsecret\nplan", True)
    assert commented.content == "[forwarded from Bert]\n> secret plan\nsee"
    assert not commented.is_forwarded
    assert command.content == "/stop"


def test_files_of_other_services_are_links() -> None:
    files = [
        {"id": "F1", "name": "plan", "is_external": True, "external_url": "https://d.example/p"},
        {"id": "F2", "name": "gone.txt", "mode": "tombstone"},
        {"id": "F3", "name": "../../x.txt", "size": -1},
    ]
    received = READER.event(event("", files=files, subtype="file_share"))
    assert received is not None
    assert received.message.content == "[file: plan, https://d.example/p]"
    assert [(file.ref, file.name, file.size) for file in received.files] == [("F3", "x.txt", None)]


def test_an_edited_message_runs_no_command() -> None:
    changed = {
        "ts": TS,
        "user": "U1",
        "text": "/stop",
        "edited": {"user": "U1", "ts": "1790000009.1"},
    }
    fields = {"subtype": "message_changed", "previous_message": {"ts": TS, "text": "x"}}
    message = read("", READER, message=changed, **fields)
    assert message is not None
    assert message.content == "[edited]\n/stop"
    assert message.dedupe_key == f"T1:C1A:{TS}:1790000009.1"
    # Somebody else, such as an app, cannot put words into the author's mouth.
    changed["edited"] = {"user": "U2", "ts": "1790000009.1"}
    assert read("", READER, message=changed, **fields) is None


_TEXTS = st.sampled_from(["", "U1", "D1A", "C1A", "UBOT", TS, "x\n|y", "<@UBOT> a", "file_share"])
_JSON = st.recursive(
    _TEXTS | st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_TEXTS, inner, max_size=3),
    max_leaves=6,
)


async def test_a_watermark_waits_for_earlier_messages(tmp_path: Path) -> None:
    marks = Watermarks(Records(tmp_path / "marks.json"))
    for ts in ("9.1", "10.1", "11.1"):
        marks.begin("C1A", ts)
    await marks.end("C1A", "10.1")
    assert await marks.newest() == {}
    await marks.end("C1A", "9.1")
    assert await marks.newest() == {"C1A": "10.1"}
    await marks.end("C1A", "11.1")
    marks.begin("D1A", "10.5")
    await marks.end("D1A", "10.5")
    assert list(await marks.newest()) == ["C1A", "D1A"]


_NAMES = (
    "user channel ts thread_ts text subtype bot_id files edited attachments message "
    "previous_message parent_user_id type"
)
_FIELDS = st.fixed_dictionaries({}, optional=dict.fromkeys(_NAMES.split(), _JSON))


@given(_FIELDS)
def test_no_event_has_a_wrong_sender(fields: dict[str, Any]) -> None:
    payload = event(**fields)
    with suppress(ValidationError):
        received = READER.event(payload)
        if received is not None:
            given_event: Any = payload["event"]
            message = received.message
            source = given_event.get("message") if message.metadata.get("edited") else given_event
            assert message.sender_id in [source.get("user"), source.get("bot_id")]
            assert message.sender_id not in {"UBOT", "BBOT", "USLACKBOT", ""}
            assert re.fullmatch(r"[A-Z0-9]+", message.sender_id)
            assert re.fullmatch(r"[A-Z0-9]+(:[0-9.]+)?", message.chat_id)
            assert message.chat_id.partition(":")[0] == given_event["channel"]


@given(_JSON)
def test_nothing_but_validation_fails(payload: object) -> None:
    content: dict[str, Any] = payload if isinstance(payload, dict) else {"event": payload}
    with suppress(ValidationError):
        READER.event(content)
    with suppress(ValidationError):
        READER.press(wire.Press.model_validate(content))
    with suppress(ValidationError):
        READER.command(wire.Command.model_validate(content))


# --- writing

_MARKS = st.sampled_from(
    [
        *(
            "*",
            "**",
            "_",
            "~~",
            "`",
            "```\n",
            "\n",
            "\n\n",
            "> ",
            "- ",
            "# ",
            "word",
            " ",
            "ü",
            "😀",
        ),
        *("[a](https://b.example)", "<!channel>", "<@U1>", "&amp;"),
        "| a | b |\n| - | - |\n| c | d |\n",
    ]
)


@given(st.lists(_MARKS, max_size=25).map("".join))
def test_blocks_show_the_text_and_nothing_else(markdown: str) -> None:
    rich = render_markdown(markdown)
    content = build_edit(Piece(rich))
    blocks: Any = content["blocks"]
    parts = [part for block in blocks for part in block["elements"]]
    shown = "\n".join("".join(each["text"] for each in part["elements"]) for part in parts)
    assert shown.split() == rich.text.split()
    for part in parts:
        assert part["elements"]
        for each in part["elements"]:
            assert each["text"]
            assert each["type"] in {"text", "link"}


@given(st.lists(_MARKS, max_size=60).map("".join), st.integers(40, 200))
def test_no_part_is_larger_than_the_limit(markdown: str, limit: int) -> None:
    for part in split_rich(render_markdown(markdown), limit, measure):
        assert measure(part) <= limit


@given(st.lists(_MARKS, max_size=25).map("".join), st.integers(0, 200))
def test_a_stream_mentions_nobody(markdown: str, length: int) -> None:
    stable = stable_part(render_markdown(markdown[:length]))
    assert not any(mention in stable for mention in ("<!", "<@", "<#"))


ANSWER = """# Title

Some **bold words**, *italic* and `code here` with a [link](https://a.example/x).

> a quote of
> two lines

```python
if a < b & c:
    return 2 * 3
```

- one
- two **three**

| a | b |
| - | - |
| 1 | 2 |
| long cell | 3 |

The end_of it is here.
"""


def test_a_stream_only_grows() -> None:
    sent = ""
    for length in range(len(ANSWER)):
        stable = stable_part(render_markdown(ANSWER[:length]))
        assert stable.startswith(sent) or sent.startswith(stable)
        sent = max(sent, stable, key=len)
    assert "Some **bold words**, *italic* and `code here` with a" in sent
    assert "```python\nif a < b & c:\n    return 2 * 3\n```" in sent
    assert "long cell | 3" in sent


def test_a_long_address_is_left_out() -> None:
    rich = render_markdown(f"[words](https://a.example/{'x' * 3_000})")
    assert '"link"' not in str(build_edit(Piece(rich))["blocks"])
    assert measure(RichText("<&>")) == len("&lt;&amp;&gt;")


# --- failures and settings


@pytest.mark.parametrize(("code", "cause"), CAUSES.items())
def test_each_code_has_its_cause(code: str, cause: Cause) -> None:
    failure = refused_call("chat.postMessage", {"error": code}, setting=BOT_TOKEN, retry_after="3")
    assert failure.cause is cause
    assert failure.retry_after_s == (3.0 if cause is Cause.BUSY else None)
    assert code in str(failure) or cause in {Cause.BUSY, Cause.CREDENTIALS}


def test_the_codes_that_matter_most() -> None:
    expected = {
        **dict.fromkeys(("channel_not_found", "is_archived", "not_in_channel"), Cause.FORBIDDEN),
        **dict.fromkeys(("invalid_auth", "token_revoked", "account_inactive"), Cause.CREDENTIALS),
        **dict.fromkeys(("msg_blocks_too_long", "message_not_in_streaming_state"), Cause.REFUSED),
        "ratelimited": Cause.BUSY,
        "internal_error": Cause.UNREACHABLE,
    }
    assert {code: CAUSES[code] for code in expected} == expected
    unknown = refused_call("x", {"error": "new_code"}, setting=BOT_TOKEN)
    assert unknown.cause is Cause.REFUSED


def test_the_section_of_the_original_loads() -> None:
    settings = SlackSettings.model_validate(
        {
            "enabled": True,
            "mode": "socket",
            "webhookPath": "/slack/events",
            "botToken": " xoxb-1\n",
            "appToken": "xapp-1",
            "userTokenReadOnly": True,
            "replyInThread": False,
            "reactEmoji": ":eyes:",
            "doneEmoji": "white_check_mark",
            "includeThreadContext": True,
            "threadContextLimit": 20,
            "groupPolicy": "allowlist",
            "groupAllowFrom": ["C1"],
            "dm": {"enabled": True, "policy": "allowlist", "allowFrom": ["U1"]},
        }
    )
    assert settings.bot_token.get_secret_value() == "xoxb-1"
    assert (settings.react_emoji, settings.done_emoji) == ("eyes", "white_check_mark")
    assert settings.group_policy == "deny"
    assert settings.groups["C1"].policy == "open"
    assert settings.allow_from == ["U1"]


def test_a_list_for_direct_messages_admits_nobody_elsewhere() -> None:
    dm = {"policy": "allowlist", "allow_from": ["U1"]}
    assert SlackSettings.model_validate({"allow_from": ["U2"], "dm": dm}).allow_from == ["U2"]


@pytest.mark.parametrize(
    "section",
    [
        {"mode": "http"},
        {"api_base": "slack.com"},
        {"proxy": "socks5://127.0.0.1:1"},
        {"react_emoji": "not an emoji"},
    ],
)
def test_wrong_settings_are_refused(section: dict[str, str]) -> None:
    with pytest.raises(ValidationError):
        SlackSettings.model_validate(section)
