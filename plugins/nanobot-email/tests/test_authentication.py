"""Which methods prove the sender: spec of `Authentication-Results`, and what people forge."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from nanobot_email.authentication import proven_methods

OURS = "mx.example.com"
DOMAIN = "example.org"
AR = "Authentication-Results"
BOTH = frozenset({"dkim", "spf"})


def proven(*headers: tuple[str, str] | str) -> frozenset[str]:
    pairs = [(AR, header) if isinstance(header, str) else header for header in headers]
    return proven_methods([*pairs, ("From", "alice@example.org")], [OURS], DOMAIN)


DKIM = f"{OURS}; dkim=pass header.d=example.org"
SPF = f"{OURS}; spf=pass smtp.mailfrom=alice@example.org"


@pytest.mark.parametrize(
    ("text", "methods"),
    [
        (DKIM, {"dkim"}),
        (SPF, {"spf"}),
        (f"{OURS} 1; dkim=pass header.i=@example.org; spf=pass smtp.mailfrom=example.org", BOTH),
        # As Gmail writes it.
        (
            (
                f"{OURS};\r\n dkim=pass header.i=@example.org header.s=a header.b=b1;\r\n spf=pass "
                "(google.com: domain of alice@example.org designates 192.0.2.1 as a sender)"
                " smtp.mailfrom=alice@example.org;\r\n"
                ' dmarc=pass (p=NONE; d="x") header.from=example.org'
            ),
            BOTH,
        ),
        (f"{OURS}; dkim=pass(ok)header.d=example.org", {"dkim"}),
        (f'{OURS}; dkim=pass reason="a; spf=pass" header.d="example.org"', {"dkim"}),
        (f"{OURS.upper()}; DKIM=Pass Header.D=EXAMPLE.ORG", {"dkim"}),
        # Two signatures, of a list and of the sender.
        (f"{OURS}; dkim=fail header.d=example.org; dkim=pass header.d=example.org", {"dkim"}),
        (f"{OURS}; none", set()),
        (f"{OURS}; dkim=fail header.d=example.org; spf=softfail smtp.mailfrom=example.org", set()),
        # Another domain, or one that only looks alike.
        (f"{OURS}; dkim=pass header.d=evil.example", set()),
        (f"{OURS}; dkim=pass header.d=notexample.org", set()),
        (f"{OURS}; dkim=pass header.d=sub.example.org", set()),
        (f"{OURS}; dkim=pass header.d=org", set()),
        (f"{OURS}; spf=pass smtp.helo=example.org", set()),
        (f"{OURS}; spf=pass smtp.mailfrom=evil.example header.from=example.org", set()),
        (f"{OURS}; dkim=pass", set()),
        (f"{OURS}; arc=pass header.d=example.org", set()),
        # Hidden in comments and quotations.
        (f"{OURS}; x=y (dkim=pass header.d=example.org)", set()),
        (f'{OURS}; x=y reason="; dkim=pass header.d=example.org"', set()),
        (f"{OURS}; (unclosed; dkim=pass header.d=example.org", set()),
        (f'{OURS}; "unclosed; dkim=pass header.d=example.org', set()),
        (f'{OURS}; x="\\"; dkim=pass header.d=example.org', set()),
        # Another server, or none.
        ("mx.evil.example; dkim=pass header.d=example.org", set()),
        (f"x{OURS}; dkim=pass header.d=example.org", set()),
        (f"evil {OURS}; dkim=pass header.d=example.org", set()),
        ("dkim=pass header.d=example.org", set()),
        ("", set()),
        # The verdict of the whole counts more.
        (f"{DKIM}; dmarc=fail header.from=example.org", set()),
    ],
)
def test_only_a_pass_of_our_server_for_the_senders_domain_counts(
    text: str, methods: set[str]
) -> None:
    assert proven(text) == methods


def test_a_domain_above_the_senders_proves_it() -> None:
    headers = [(AR, DKIM), ("From", "alice@eu.example.org")]
    assert proven_methods(headers, [OURS], "eu.example.org") == {"dkim"}


def test_without_a_name_of_our_server_nothing_is_proven() -> None:
    assert proven_methods([(AR, f"; {DKIM}"), (AR, DKIM)], [], DOMAIN) == set()


def test_results_may_be_in_several_headers() -> None:
    received = ("Received", "from mx by mda")
    assert proven(received, DKIM, ("Received-SPF", "pass"), SPF) == BOTH


def test_a_provider_may_use_several_names() -> None:
    headers = [
        (AR, "dkim-verifier.icloud.com; dkim=pass header.d=example.org"),
        (AR, "spf.icloud.com; spf=pass smtp.mailfrom=example.org"),
        (AR, "icloud.com.evil.example; dkim=pass header.d=example.org"),
    ]
    assert proven_methods(headers, ["*.icloud.com"], DOMAIN) == BOTH
    assert proven_methods(headers, ["spf.icloud.com", OURS], DOMAIN) == {"spf"}
    assert proven_methods(headers[2:], ["*.icloud.com"], DOMAIN) == set()


def test_what_the_sender_wrote_below_does_not_count() -> None:
    genuine = f"{OURS}; dkim=none; spf=fail smtp.mailfrom=example.org"
    forged = f"{OURS}; dkim=pass header.d=example.org; spf=pass smtp.mailfrom=example.org"
    assert proven(genuine, forged) == set()
    assert proven(("Date", "today"), forged) == set()
    assert proven(("Subject", "x"), forged) == set()


def test_a_very_long_header_is_ignored() -> None:
    assert proven(f"{DKIM}; {'(' * 30_000}") == set()


@given(st.text(alphabet='mx.example.com;=() "\\/dkimspfpassheader@org,\r\n\t1', max_size=200))
def test_no_header_raises(text: str) -> None:
    proven(text)


@given(st.text(max_size=100))
def test_nobody_else_can_write_for_our_server(text: str) -> None:
    for header in (text, f"{text}; dkim=pass header.d=example.org", f"({text}) x; {DKIM}"):
        if not header.replace("(", " ").strip().lower().startswith(OURS[:3]):
            assert proven(header) == set()
