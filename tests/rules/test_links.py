"""Links between pages lead somewhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rules.checks.links import link_findings
from tests.rules.checks.sample import write_tree


def test_all_links_lead_to_a_file(repository: Path) -> None:
    assert link_findings(repository) == []


@pytest.mark.parametrize("page", ["README.md", "docs/plugins/a.md", "plugins/nanobot-a/README.md"])
@pytest.mark.parametrize("target", ["gone.md", "gone.md#part", "<gone.md>", 'gone.md "Title"'])
def test_a_dead_link_is_named(tmp_path: Path, page: str, target: str) -> None:
    write_tree(tmp_path, {page: f"see [the\nother]({target})"})

    assert link_findings(tmp_path) == [f"{page}: links to 'gone.md', which does not exist"]


@pytest.mark.parametrize(
    "text",
    [
        "[a](other.md)",
        "[a](#part)",
        "[a](https://example.org/gone.md)",
        "```\n[a](gone.md)\n```",
        "`[a](gone.md)`",
    ],
)
def test_living_links_and_code_pass(tmp_path: Path, text: str) -> None:
    assert link_findings(write_tree(tmp_path, {"README.md": text, "other.md": ""})) == []
