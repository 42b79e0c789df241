"""The words after ``/cron``, and the times in them."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, strategies as st

from nanobot_cron.request import read_duration_s, read_instant
from nanobot_cron.schedule import ScheduleInvalid
from nanobot_cron.words import VERBS, Words, WordsInvalid, parse_words

NOW = datetime(2026, 11, 23, 9, 30, tzinfo=UTC)
BERLIN = ZoneInfo("Europe/Berlin")
ZONES = [ZoneInfo(name) for name in ("Europe/Berlin", "America/New_York", "Asia/Tokyo", "UTC")]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", Words("list")),
        ("list --json", Words("list", as_json=True)),
        ("--json", Words("list", as_json=True)),
        ("REMOVE k3x9", Words("remove", "k3x9")),
        ("history k3x9 --json", Words("history", "k3x9", as_json=True)),
        ('run --json "k3x9"', Words("run", "k3x9", as_json=True)),
        (
            "add Don't forget the milk --every 1.5h --name Milk",
            Words(
                "add",
                fields={
                    "message": "Don't forget the milk",
                    "every_seconds": 5_400.0,
                    "name": "Milk",
                },
            ),
        ),
        (
            "add “Say hello” —cron “0 7 * * *” --tz=Europe/Berlin",
            Words(
                "add",
                fields={"message": "Say hello", "cron_expr": "0 7 * * *", "tz": "Europe/Berlin"},
            ),
        ),
        (
            "add look --on file --option path=a=b --option pattern=*.pdf -- --cron",
            Words(
                "add",
                fields={
                    "message": "look --cron",
                    "on": "file",
                    "options": {"path": "a=b", "pattern": "*.pdf"},
                },
            ),
        ),
        ('add {"message": "--json"}', Words("add", fields={"message": "--json"})),
        ("add x --json", Words("add", fields={"message": "x"}, as_json=True)),
        ('add --json {"at": null}', Words("add", fields={"at": None}, as_json=True)),
    ],
)
def test_words_are_read(text: str, expected: Words) -> None:
    assert parse_words(text) == expected


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("ad x", "did you mean add"),
        ("list x", "write /cron list"),
        ("remove", "/cron list shows the ids"),
        ("remove a b", "write /cron remove ID"),
        ("add x --crom 1", "did you mean --cron"),
        ("add x --at", "--at needs a value"),
        ("add x --at 1 --at 2", "given twice"),
        ("add x --every soon", "30m, 2h or 1d"),
        ("add x --option path", "KEY=VALUE"),
        ('add "x', "is not closed"),
        ('add {"message": ', "not a JSON object"),
        ("add " + "{" * 100_000, "not a JSON object"),
    ],
)
def test_what_means_nothing_is_explained(text: str, reason: str) -> None:
    with pytest.raises(WordsInvalid) as caught:
        parse_words(text)
    assert reason in str(caught.value)
    assert len(str(caught.value)) < 300


@given(st.sampled_from(["", *VERBS, "ad"]), st.text(max_size=60))
def test_any_text_is_read_or_refused(verb: str, rest: str) -> None:
    try:
        words = parse_words(f"{verb} {rest}")
    except WordsInvalid:
        return
    assert words.verb in VERBS
    assert bool(words.job_id) == (words.verb not in {"list", "add"})


@given(st.dictionaries(st.sampled_from(["message", "name", "at"]), st.text(max_size=40)))
def test_a_program_can_pass_anything_unharmed(fields: dict[str, str]) -> None:
    words = parse_words(f"add --json {json.dumps(fields)}")
    assert (words.fields, words.as_json) == (fields, True)


@given(st.lists(st.text("ab'\\ \"-=", min_size=1, max_size=8), min_size=1, max_size=4))
def test_quoted_words_stay_as_they_are(texts: list[str]) -> None:
    quoted = ['"{}"'.format(text.replace("\\", "\\\\").replace('"', '\\"')) for text in texts]
    fields = parse_words(f"add -- {' '.join(quoted)}").fields
    assert fields["message"] == " ".join(texts)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90", 90), ("30m", 1_800), ("1.5 H", 5_400), ("2w", 1_209_600), ("-1", None), ("1y", None)],
)
def test_durations(text: str, seconds: float | None) -> None:
    assert read_duration_s(text) == seconds


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-11-24T09:00", "2026-11-24T08:00+00:00"),
        ("2026-11-24 09:00:30", "2026-11-24T08:00:30+00:00"),
        ("2026-11-24T09:00-05:00", "2026-11-24T14:00+00:00"),
        ("2026-11-24T09:00Z", "2026-11-24T09:00+00:00"),
        ("+20m", "2026-11-23T09:50+00:00"),
        ("2027-03-28T02:30", "2027-03-28T01:00+00:00"),  # the clocks skip it
        ("2027-10-31T02:30", "2027-10-31T00:30+00:00"),  # it occurs twice
    ],
)
def test_a_time_without_offset_is_in_the_zone(text: str, expected: str) -> None:
    assert read_instant(text, BERLIN, NOW) == datetime.fromisoformat(expected)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("2026-11-23T10:29", "it is now Monday 2026-11-23 10:30 in Europe/Berlin"),
        ("2026-11-24", "is not a time"),
        ("20261124", "2026-11-24T09:00"),
        ("tomorrow", "2026-11-24T09:00"),
        ("+soon", "+20m, +2h or +1d"),
        ("9999-12-31T23:59-23:00", "out of range"),
        ("0001-01-01T00:00", "out of range"),
        ("1999-01-01T00:00", "in the past"),
        ("0001-01-01T00:00+14:00", "out of range"),
        ("+999999999w", "out of range"),
    ],
)
def test_a_time_that_cannot_be_used_is_explained(text: str, reason: str) -> None:
    with pytest.raises(ScheduleInvalid) as caught:
        read_instant(text, BERLIN, NOW)
    assert reason in str(caught.value)


@given(
    st.sampled_from(ZONES),
    st.integers(0, 365 * 24 * 60),
)
def test_a_local_time_is_itself_or_the_end_of_a_gap(zone: ZoneInfo, minutes: int) -> None:
    local = NOW.replace(tzinfo=None) + timedelta(days=2, minutes=minutes)
    instant = read_instant(local.isoformat(), zone, NOW)
    found = instant.astimezone(zone)
    if found.replace(tzinfo=None) != local:
        before = (instant - timedelta(seconds=1)).astimezone(zone)
        assert before.replace(tzinfo=None) < local < found.replace(tzinfo=None)
        assert before.utcoffset() != found.utcoffset()
