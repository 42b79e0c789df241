"""A third party's channel, built, installed beside the core, and tested with its own tests."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.gateways import REPOSITORY
from tests.integration.page import WrittenFile, steps_of
from tests.rules.checks.source import filled_lines

PACKAGE = REPOSITORY / "tests" / "strangers" / "parley"
MOST_LINES = 300
LIMIT_S = 100


def test_it_passes_the_suites_of_every_channel(tmp_path: Path) -> None:
    if find_spec("httpx") is None:
        pytest.skip("httpx is not installed")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(build, cwd=PACKAGE, check=True, capture_output=True, timeout=LIMIT_S)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "site")
    shutil.copytree(PACKAGE / "tests", tmp_path / "tests")
    run = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests"]
    done = subprocess.run(
        run,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path / "site")},
        check=False,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
    )
    assert done.returncode == 0, done.stdout
    assert "passed" in done.stdout
    assert "skipped" not in done.stdout or find_spec("nanobot_message") is None


def test_the_cookbook_shows_its_code() -> None:
    page = REPOSITORY / "docs" / "plugins" / "cookbook.md"
    shown = {
        step.path: step.text.partition("\n")[2].strip()
        for step in steps_of(page)
        if isinstance(step, WrittenFile) and step.path.startswith("nanobot_parley/")
    }
    assert set(shown) == {
        f"nanobot_parley/{name}.py" for name in ("channel", "mapping", "platform")
    }
    for path, text in shown.items():
        assert text == (PACKAGE / "src" / path).read_text("utf-8").strip()


def test_it_is_small() -> None:
    files = (PACKAGE / "src").rglob("*.py")
    assert sum(filled_lines(file.read_text("utf-8")) for file in files) < MOST_LINES
