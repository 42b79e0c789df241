"""Pages, messages, docstrings and comments use plain English."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rules.checks.english import CODE, NO_NOUN, PAGES, TESTS, files, idiom_findings, prose_of

LIST = "tests/rules/checks/english.py"
HERE = "tests/rules/test_plain_english.py"
NO_NOUN_LIMIT = 5
"""Occurrences of "is no NOUN" per 10,000 words; the documentation of tox has 0.7."""


def test_no_file_has_an_idiom(repository: Path) -> None:
    found = [
        finding
        for path, text in files(repository, *PAGES, *CODE, *TESTS)
        if path not in {LIST, HERE}
        for finding in idiom_findings(path, text)
    ]

    assert found == []


def test_negations_come_before_the_noun_rarely(repository: Path) -> None:
    words = negations = 0
    for path, text in files(repository, *PAGES, *CODE):
        for _, prose in prose_of(path, text):
            words += len(prose.split())
            negations += len(NO_NOUN.findall(prose))

    assert negations * 10_000 / words <= NO_NOUN_LIMIT


@pytest.mark.parametrize(
    ("path", "text", "line"),
    [
        ("docs/a.md", "First.\n\nWrite it\nanew.\n", 3),
        ("nanobot_core/a.py", 'x = 1\ny = "write it " "anew"\n', 2),
        ("nanobot_core/a.py", "x = 1\n# Write\n# it anew.\n", 2),
        ("nanobot_core/a.py", 'def f():\n    """Write it\n    anew.\n    """\n', 2),
    ],
    ids=["page", "string", "comment", "docstring"],
)
def test_an_idiom_is_reported_with_the_plain_term(path: str, text: str, line: int) -> None:
    assert idiom_findings(path, text) == [f"{path}:{line}: 'anew'; write: again"]


def test_code_is_not_prose() -> None:
    assert idiom_findings("nanobot_core/a.py", "anew = {'anew': mend(whoever)}\n") == []
