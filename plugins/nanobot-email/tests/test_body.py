"""The sender's own words, in text and HTML."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from nanobot_email.body import split_body
from nanobot_email.html_text import render_html

QUOTE = "> What shall\n> we do?"
OUTLOOK = "From: Nano <agent@example.com>\nSent: Monday\nTo: Alice\nSubject: Plans\n\nWhat now?"


@pytest.mark.parametrize(
    ("text", "own"),
    [
        ("Hello\r\nthere", "Hello\nthere"),
        (f"Yes.\n\nOn Mon, 1 Jan 2026, Nano <a@b.c> wrote:\n{QUOTE}", "Yes."),
        (f"Yes.\n\nOn Mon, 1 Jan 2026 at 10:00, Nano Example\n<a@b.c> wrote:\n\n{QUOTE}\n", "Yes."),
        (f"Ja.\n\nAm 01.01.26 um 10:00 schrieb Nano:\n{QUOTE}", "Ja."),
        (f"Yes.\n\n{QUOTE}\n", "Yes."),
        (f"On 1 Jan 2026 Nano <a@b.c> wrote:\n{QUOTE}\n\nNothing.", None),
        ("Yes.\n\n-----Original Message-----\nFrom: Nano\n\nWhat now?", "Yes."),
        (f"Yes.\n\n________________________________\n{OUTLOOK}", "Yes."),
        (f"Yes.\n\n{OUTLOOK}", "Yes."),
        ("Ja.\n\nVon: Nano\nGesendet: heute\nAn: Alice\nBetreff: Plan\n\nWas nun?", "Ja."),
        ("Yes.\n\n-- \nAlice\nExample Ltd", "Yes."),
        ("Yes.\n\n--\nAlice", "Yes."),
        ("Yes.\n\nSent from my iPhone", "Yes."),
        ("Yes.\n\nVon meinem iPhone gesendet\n", "Yes."),
        (f"Yes.\n-- \nAlice\n\nOn 1 Jan 2026 Nano wrote:\n{QUOTE}", "Yes."),
        # What looks similar stays.
        ("From: Berlin\nTo: Paris\nDate: Friday", "From: Berlin\nTo: Paris\nDate: Friday"),
        ("a\n---\nb", "a\n---\nb"),
        (f"Look what he says:\n{QUOTE}", f"Look what he says:\n{QUOTE}"),
        (f"{QUOTE}\nWe wait.\n> And then?\nWe go.", f"{QUOTE}\nWe wait.\n> And then?\nWe go."),
        ("/approve 1a2b3c\n\nSent from my iPhone", "/approve 1a2b3c"),
    ],
)
def test_repeated_conversation_and_signatures_are_left_out(text: str, own: str | None) -> None:
    expected = text.strip() if own is None else own
    assert split_body(text).own == expected


@pytest.mark.parametrize(
    ("text", "subject"),
    [
        ("See below.\n\n---------- Forwarded message ---------\nFrom: Bert\n\nPay now", ""),
        ("See below.\n\nBegin forwarded message:\n\n> From: Bert\n>\n> Pay now", ""),
        ("See below.\n\nFrom: Bert\nTo: Alice\nSubject: Invoice\n\nPay now", "Fwd: Invoice"),
        ("See below.\n\nVon: Bert\nBetreff: Rechnung\n\nPay now", "WG: Rechnung"),
    ],
)
def test_forwarded_text_is_kept_apart(text: str, subject: str) -> None:
    words = split_body(text, subject)
    assert words.own == "See below."
    assert words.forwarded.endswith("Pay now")
    assert not words.forwarded.endswith("> Pay now")


def test_a_mail_that_only_quotes_is_passed_on() -> None:
    words = split_body("> one\n> two")
    assert (words.own, words.forwarded) == ("", "one\ntwo")


def test_a_long_quotation_between_answers_is_shortened() -> None:
    quote = "\n".join(f"> line {number}" for number in range(100))
    own = split_body(f"A\n{quote}\nB").own
    assert own.startswith("A\n> line 90\n")
    assert own.endswith("> line 99\nB")


@pytest.mark.parametrize(
    ("html", "text"),
    [
        ("<p>One</p><p>Two <b>bold</b> &amp; more</p>", "One\n\nTwo bold & more"),
        ("a<br>b<div>c</div>d", "a\nb\nc\nd"),
        ("<ul><li>x</li><li>y</li></ul>", "- x\n- y"),
        ('<a href="https://example.org/x">here</a>', "here (https://example.org/x)"),
        ('<a href="https://example.org/">https://example.org</a>', "https://example.org"),
        ('<a href="javascript:x()">here</a>', "here"),
        ("<pre>  a\n    b</pre>", "  a\n    b".strip()),
        ("<blockquote>a<blockquote>b</blockquote></blockquote>me", "> a\n> > b\nme"),
        ("<head><title>t</title></head><style>p{}</style><script>x</script>seen", "seen"),
        ('<span style="display:none">obey me</span>seen', "seen"),
        ('<div style="FONT-SIZE: 0px; color: red">obey me</div>seen', "seen"),
        ('<div style="visibility : hidden"><p>obey</p> me</div>seen', "seen"),
        ('<p style="opacity:0">obey</p><p hidden>me</p>seen', "seen"),
        ('<p style="font-size:0.9em">seen</p>', "seen"),
        ('<div style="display:none">obey<br><img src=x>me</div>seen', "seen"),
        ("<!-- obey me -->seen", "seen"),
        ("<!-- obey me", ""),
        ("<script>obey</b> me", ""),
        ('seen<a title="1 > 0">here</a>', "seenhere"),
        ("<b>unclosed <i>tags</b> here</p></div>", "unclosed tags here"),
        ("<" * 50, "<" * 50),
    ],
)
def test_html_becomes_what_people_see(html: str, text: str) -> None:
    lines = [line.strip() for line in render_html(html).splitlines() if line.strip("> ")]
    assert lines == [line.strip() for line in text.splitlines() if line.strip("> ")]


@given(st.text(alphabet="<>/!-&; abpdiv=\"'\n#x1blockquote", max_size=300))
def test_no_html_raises(html: str) -> None:
    split_body(render_html(html))


def test_deep_and_long_html_is_bounded() -> None:
    render_html("<div>" * 50_000 + "x")
    render_html("<!-" * 50_000)
    render_html("<a href='" * 20_000)
