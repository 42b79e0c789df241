"""Every promise of the plugin system has a test."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.promises import promise_findings, render_promises
from tests.rules.checks.sample import write_tree

PROMISES = """
[[group]]
title = "Safety"

[[group.promise]]
number = 1
title = "Gates"
text = "They refuse."

[[group.promise]]
number = 2
title = "Locks"
text = "They hold."
missing = "there is no lock yet"
"""
PROOF = """
@pytest.mark.promise({numbers})
async def test_a_gate_refuses(): ...
"""


def test_every_promise_has_a_test(repository: Path) -> None:
    assert promise_findings(repository) == []


def test_the_page_shows_promises_with_their_tests(tmp_path: Path) -> None:
    root = write_tree(
        tmp_path,
        {"tests/promises.toml": PROMISES, "plugins/a/tests/test_a.py": PROOF.format(numbers=1)},
    )

    assert promise_findings(root) == []
    assert render_promises(root) == (
        "## Safety\n\n### 1. Gates\n\nThey refuse.\n\n- `plugins/a/tests/test_a.py`"
        "\n\n### 2. Locks\n\nThey hold.\n\n*Not yet: there is no lock yet.*"
    )


NUMBERS_NEEDED = (
    "tests/test_a.py: the mark of 'test_a_gate_refuses' needs numbers from tests/promises.toml"
)


@pytest.mark.parametrize(
    ("numbers", "finding"),
    [
        ("2", "promise 1: no test has its mark"),
        ("1, 2", "promise 2: has a test, so remove 'missing'"),
        ("1, 3", NUMBERS_NEEDED),
        ("'1'", NUMBERS_NEEDED),
    ],
)
def test_what_is_not_proved_or_means_nothing_is_named(
    tmp_path: Path, numbers: str, finding: str
) -> None:
    files = {"tests/promises.toml": PROMISES, "tests/test_a.py": PROOF.format(numbers=numbers)}

    assert finding in promise_findings(write_tree(tmp_path, files))


def test_a_promise_of_an_absent_plugin_needs_no_test(tmp_path: Path) -> None:
    of_plugin = PROMISES.replace('text = "They refuse."', 'text = "They refuse."\nplugin = "a"')

    assert promise_findings(write_tree(tmp_path, {"tests/promises.toml": of_plugin})) == []
