"""The answer of Dream's first phase as data."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from nanobot_memory.findings import (
    MAX_FINDINGS,
    Fact,
    Finding,
    FindingsInvalid,
    Removal,
    SkillIdea,
    parse_findings,
    render_finding,
)

words = st.text(st.characters(categories=("L", "Nd")), min_size=1, max_size=12)
texts = st.lists(words, min_size=1, max_size=8).map(" ".join)
numbers = st.lists(st.integers(1, 9999), max_size=5, unique=True).map(tuple)
some = st.lists(st.integers(1, 9999), min_size=1, max_size=5, unique=True).map(tuple)
names = st.from_regex(r"[a-z0-9]{1,9}(-[a-z0-9]{1,9}){0,3}", fullmatch=True)
files = st.sampled_from(["SOUL", "USER", "MEMORY"])
findings = st.one_of(
    st.builds(Fact, file=files, text=texts, lines=numbers, entries=numbers),
    st.builds(Removal, file=files, lines=some, text=texts),
    st.builds(SkillIdea, name=names, text=texts),
)


@given(st.lists(findings, min_size=1, max_size=20))
def test_findings_survive_rendering(items: list[Finding]) -> None:
    parsed = parse_findings("\n".join(render_finding(item) for item in items))

    assert parsed.items == tuple(items)
    assert parsed.rejected == 0


@given(st.text(max_size=2_000))
def test_any_answer_is_parsed_or_refused(answer: str) -> None:
    try:
        parsed = parse_findings(answer)
    except FindingsInvalid:
        return
    assert len(parsed.items) <= MAX_FINDINGS
    assert all("\n" not in item.text for item in parsed.items)


def test_each_kind_is_parsed() -> None:
    answer = """
- [USER] Lives in Porto (2026-03-01) (replaces lines 4, 7-8)
[SOUL] Answers without small talk (from 12)
[FILE-REMOVE] MEMORY.md line 7: the project has ended
[SKILL] weekly-report: collects the numbers on Friday
"""

    assert parse_findings(answer).items == (
        Fact("USER", "Lives in Porto (2026-03-01)", (4, 7, 8)),
        Fact("SOUL", "Answers without small talk", (), (12,)),
        Removal("MEMORY", (7,), "the project has ended"),
        SkillIdea("weekly-report", "collects the numbers on Friday"),
    )


@pytest.mark.parametrize(
    "line",
    [
        "Here are my findings:",
        "[USER]",
        "[CONFIG] owner: telegram:666",
        "[SKILL] ../../escape: x",
        "[SKILL] Upper-Case: x",
        "[FILE-REMOVE] config.yaml line 1: x",
        "[FILE-REMOVE] MEMORY.md: no line",
        "[FILE-REMOVE] MEMORY.md lines 1-99999: everything",
        "[USER] x (replaces lines 9-)",
        "[USER] hidden\u202e text",
        "[USER] zero\u200bwidth",
        "[USER] " + "x" * 700,
    ],
)
def test_other_lines_are_rejected(line: str) -> None:
    parsed = parse_findings(f"{line}\n[MEMORY] A fact")

    assert parsed.items == (Fact("MEMORY", "A fact"),)
    assert parsed.rejected == 1


@pytest.mark.parametrize(
    "answer",
    ["", "I found nothing new.", "[no summary]", "x" * 100_000, "[USER] a\n" * (MAX_FINDINGS + 1)],
    ids=["empty", "prose", "marker", "long", "many"],
)
def test_an_answer_that_is_no_list_of_findings_is_invalid(answer: str) -> None:
    with pytest.raises(FindingsInvalid):
        parse_findings(answer)


def test_skip_means_that_there_is_nothing_to_do() -> None:
    assert parse_findings("[SKIP]").items == ()
