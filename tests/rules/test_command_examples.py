"""The help of each command shows an example, and each example works."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Annotated

import pytest
import typer

from tests.rules.checks.examples import example_findings

FINDINGS = """
import sys
from pathlib import Path
from nanobot_core.cli.root import app
from tests.rules.checks.examples import example_findings
print(*example_findings(app, Path(sys.argv[1])), sep="\\n")
"""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    file = tmp_path / "config.yaml"
    file.write_text("{}\n", "utf-8")
    return file


def test_every_command_shows_an_example_that_works(repository: Path, config: Path) -> None:
    # A process of its own, because commands import their plugins and configure the log.
    done = subprocess.run(
        [sys.executable, "-c", FINDINGS, str(config)],
        cwd=repository,
        env={**os.environ, "NANOBOT_HOME": str(config.parent)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr

    assert done.stdout.split("\n") == ["", ""]


@pytest.mark.parametrize(
    ("shown", "finding"),
    [
        ("Example: nanobot bake bread --minutes 40", None),
        ("Examples: nanobot bake rye; cat list | nanobot bake rye > log.txt", None),
        ("For example:\n\n    \b\n      nanobot bake rye    what we eat", None),
        ("It needs an oven.", "its help has no example of it"),
        ("Example: nanobot eat cake", "its help has no example of it"),
        ("Example: nanobot bake", "'nanobot bake' fails: Missing argument 'WHAT'."),
        ("Example: nanobot bake rye --hours 1", "fails: No such option: --hours"),
        ("Example: nanobot bake rye --minutes long", "fails: Invalid value for '--minutes'"),
        ("Example: nanobot bake rye bread", "unexpected extra argument"),
        ("Example: nanobot backe rye", "fails: No such command 'backe'"),
    ],
)
def test_a_command_without_an_example_that_works_is_named(
    config: Path, shown: str, finding: str | None
) -> None:
    app = typer.Typer(rich_markup_mode=None)

    @app.command(help=f"Bake something.\n\n{shown}")
    def bake(what: Annotated[str, typer.Argument(metavar="WHAT")], minutes: int = 30) -> None: ...

    @app.command(help="Eat it.\n\nExample: nanobot eat cake")
    def eat(what: str) -> None: ...

    found = [*example_findings(app, config)]

    assert not finding or finding in found[0]
    assert all(each.startswith("nanobot bake: ") for each in found)
    assert bool(found) is bool(finding)
