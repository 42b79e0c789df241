"""The parts of the page that need no browser."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from nanobot_core import JsonValue
from nanobot_core.testing import FakeClock, FakePluginContext
from nanobot_page.access import Logins
from nanobot_page.codes import CODE_LIFE_S, MAX_CODES, Codes, TooManyTries
from nanobot_page.events import MAX_EVENTS, Events
from nanobot_page.files import Files
from nanobot_page.markdown import MAX_CHARS, to_blocks, to_html
from nanobot_page.notices import Notice, Notices

_TAG = re.compile(r"<(/?)([a-z0-9]+)([^<>]*)>")


def context(
    tmp_path: Path, clock: FakeClock | None = None, **section: JsonValue
) -> FakePluginContext:
    return FakePluginContext(
        tmp_path, plugin_id="page", settings=section, clock=clock or FakeClock()
    )


@given(st.text(alphabet="<>\"'=/&;:()[]!#`*_~|\\-abhrefsconload \n", max_size=300))
def test_no_markdown_gives_markup_of_its_writer(text: str) -> None:
    html = to_html(text)
    for _, name, attributes in _TAG.findall(html):
        assert name not in {"script", "img", "iframe", "svg", "style", "form", "object"}
        assert not re.search(r"\son\w+\s*=", attributes)
        for address in re.findall(r'href="([^"]*)"', attributes):
            assert re.match(r"(?i)https?://|mailto:", address)


@given(st.lists(st.sampled_from(["# a\n", "- b\n", "\n", "```\n", "c\n", "| d |\n| - |\n", "> e"])))
def test_the_blocks_of_a_growing_text_hold_all_of_it(lines: list[str]) -> None:
    text = "".join(lines)
    words = re.findall(r"[a-e]", re.sub(r"```.*", "", text))
    shown = re.sub(r"<[^>]*>", "", "".join(to_blocks(text)))
    assert all(word in shown for word in words)


def test_what_would_take_long_is_shown_as_it_is() -> None:
    for text in ("![" * 20_000, "x" * (MAX_CHARS + 1), "<b>" + "[" * 5_000):
        assert to_html(text).startswith('<pre class="plain"')
    assert "<b>" not in to_html("<b>" + "[" * 5_000)
    assert "s-k" not in to_html(f"```python\n{'if x:' * 10_000}\n```")
    assert 'class="s-k"' in to_html("```python\nif x: pass\n```")


def test_a_picture_of_another_server_becomes_a_link() -> None:
    html = to_html("![secret](http://evil.example/?q=1) [x](/desk)")
    assert "<img" not in html
    assert 'href="http://evil.example/?q=1"' in html
    assert 'rel="noopener noreferrer nofollow"' in html
    assert 'href="/desk"' not in html


def test_numbers_in_a_table_are_aligned_without_styles() -> None:
    html = to_html("| a | b | c |\n| - | -: | :-: |\n| 1 | 2 | 3 |")
    assert "<td>1</td>" in html
    assert '<th align="right">b</th>' in html
    assert '<td align="center">3</td>' in html
    assert "style" not in html


async def test_a_code_is_valid_once_and_for_a_minute(tmp_path: Path) -> None:
    clock = FakeClock()
    ctx = context(tmp_path, clock)
    codes = ctx.shared(Codes)
    first, second = codes.issue(), codes.issue()
    assert codes.redeem(first)
    assert not codes.redeem(first)
    await clock.advance(CODE_LIFE_S)
    assert not codes.redeem(second)
    oldest = codes.issue()
    for _ in range(MAX_CODES):
        codes.issue()
    assert not codes.redeem(oldest)


async def test_wrong_codes_of_others_do_not_keep_the_owner_out(tmp_path: Path) -> None:
    codes = context(tmp_path, password="correct horse battery").shared(Codes)
    code = codes.issue()
    assert not any(codes.redeem(f"{number}") for number in range(100))
    assert codes.redeem(code)
    assert codes.accepts_password("correct horse battery")


async def test_five_wrong_passwords_a_minute_are_enough(tmp_path: Path) -> None:
    clock = FakeClock()
    ctx = context(tmp_path, clock, password="correct horse battery")
    codes = ctx.shared(Codes)
    assert codes.accepts_password("correct horse battery")
    for _ in range(5):
        assert not codes.accepts_password("wrong")
    with pytest.raises(TooManyTries) as refused:
        codes.accepts_password("correct horse battery")
    assert 0 < refused.value.wait_s <= 60
    await clock.advance(60)
    assert codes.accepts_password("correct horse battery")


def test_no_password_signs_nobody_in(tmp_path: Path) -> None:
    assert not context(tmp_path).shared(Codes).accepts_password("")


async def test_a_login_is_stored_hashed_and_ends(tmp_path: Path) -> None:
    clock = FakeClock()
    ctx = context(tmp_path, clock, login_days=2)
    logins = ctx.shared(Logins)
    cookie = await logins.add("Browser")
    assert cookie not in (ctx.data_dir / "logins.json").read_text("utf-8")
    again = Logins(ctx)
    found = await again.find(cookie)
    assert found is not None
    assert await again.find(f"{cookie}x") is None
    await clock.advance(86_400)
    assert await again.find(cookie) is not None  # used, so that the two days begin again
    await clock.advance(86_400 * 1.5)
    assert await again.find(cookie) is not None
    await clock.advance(86_400 * 2)
    assert await again.find(cookie) is None


async def test_a_revoked_login_ends_its_streams(tmp_path: Path) -> None:
    logins = context(tmp_path).shared(Logins)
    login = await logins.find(await logins.add("Browser"))
    assert login is not None
    assert await logins.revoke(login.id)
    assert login.ended.is_set()
    assert not await logins.revoke(login.id)


async def test_a_damaged_file_of_logins_signs_everyone_out(tmp_path: Path) -> None:
    ctx = context(tmp_path)
    cookie = await ctx.shared(Logins).add("Browser")
    (ctx.data_dir / "logins.json").write_text("{", "utf-8")
    assert await Logins(ctx).find(cookie) is None


def test_events_can_be_followed_without_a_gap(tmp_path: Path) -> None:
    events = context(tmp_path).shared(Events)
    start = events.last
    assert events.after(start) == []
    for number in range(3):
        events.add({"n": number})
    found = events.after(start)
    assert found is not None
    assert [event.number for event in found] == [1, 2, 3]
    assert events.after(events.last) == []
    for unknown in ("", "-1", "other-1", f"{start.partition('-')[0]}-99", f"{start}x"):
        assert events.after(unknown) is None
    for number in range(MAX_EVENTS):
        events.add({"n": number})
    assert events.after(start) is None


async def test_notices_are_kept_once_and_in_their_place(tmp_path: Path) -> None:
    notices = context(tmp_path).shared(Notices)
    for key, after in (("a", 2), ("b", 5), ("a", 9)):
        await notices.add(Notice(id=key, session="web:x", after=after, text=key))
    assert [each.id for each in await notices.of("web:x", 0, None)] == ["a", "b"]
    assert [each.id for each in await notices.of("web:x", 3, None)] == ["b"]
    assert [each.id for each in await notices.of("web:x", 0, 5)] == ["a"]
    await notices.forget("web:x")
    assert await notices.of("web:x", 0, None) == []


async def test_only_files_of_the_media_store_are_shown(tmp_path: Path) -> None:
    ctx = context(tmp_path)
    files = ctx.shared(Files)
    secret = tmp_path / "secret.txt"
    secret.write_text("x", "utf-8")

    async def content() -> AsyncIterator[bytes]:
        yield b"GIF89a"

    path = await ctx.media.save("a\u202eb.gif", content())
    text, found = files.split(f"look\n\nAttached file: {path}")
    assert text == "look"
    assert [each.kind for each in found] == ["image"]
    for other in (secret, f"{path}/../../{path.parent.name}/{path.name}", "/etc/passwd"):
        written = f"look\n\nAttached file: {other}"
        assert files.split(written) == (written, [])
