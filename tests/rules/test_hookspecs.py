"""What each release offers to plugins is published, and what it deprecates stays long enough."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import date
from pathlib import Path

from nanobot_core import __version__
from nanobot_core.deprecation import DEPRECATED, Deprecation

LIMIT_S = 50.0


def test_the_file_of_this_release_says_what_the_code_offers(repository: Path) -> None:
    scripts = str(repository / "docs" / "_ext")
    child = subprocess.run(
        [sys.executable, "-c", "import hookspecs; print(hookspecs.render_hookspecs(), end='')"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([scripts, str(repository)])},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert child.returncode == 0, child.stderr

    file = repository / "nanobot_core" / "hookspecs" / f"{__version__}.json"

    assert child.stdout == file.read_text("utf-8"), "run python docs/_ext/hookspecs.py"


def too_soon(entry: Deprecation) -> bool:
    """Whether a name goes after less than two minor releases."""
    since, until = (
        tuple(int(part) for part in text.split(".")[:2]) for text in (entry.since, entry.removed_in)
    )
    date.fromisoformat(entry.removed_on)
    return until[0] == since[0] and until[1] < since[1] + 2


def test_deprecated_names_stay_for_two_minor_releases() -> None:
    sample = Deprecation(
        name="nanobot_core.x",
        since="0.3",
        removed_in="0.4",
        removed_on="2031-01-01",
        replacement="y",
    )

    assert too_soon(sample)
    assert [entry.name for entry in DEPRECATED if too_soon(entry)] == []
