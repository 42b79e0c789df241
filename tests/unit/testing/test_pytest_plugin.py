from __future__ import annotations

import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from nanobot_core.testing import FakeClock, FakePluginContext
from tests.distributions import manifest_of, write_plugin
from tests.strangers.faulty import FAULTY, GOOD, HEAD

pytest_plugins = ["pytester"]


def test_loading_the_plugin_imports_nothing_heavy() -> None:
    """pytest loads it in every run of an environment that has nanobot-core."""
    code = (
        "import sys, pytest, nanobot_core.testing.pytest_plugin\n"
        "print(sorted(m for m in sys.modules if m.startswith('nanobot_core.')"
        " or m in ('pydantic', 'loguru', 'jsonschema', 'pluggy._x')))"
    )
    child = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=True
    )

    assert child.stdout.strip() == str(
        ["nanobot_core._version", "nanobot_core.testing", "nanobot_core.testing.pytest_plugin"]
    )


@pytest.mark.anyio
async def test_the_fixtures_belong_together(
    nanobot_clock: FakeClock, nanobot_context: FakePluginContext
) -> None:
    assert nanobot_context.clock is nanobot_clock
    assert nanobot_context.workspace.is_dir()


def test_fixtures_serve_tests_that_are_not_async(nanobot_context: FakePluginContext) -> None:
    assert nanobot_context.id == "example"


@pytest.fixture
def site(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = pytester.mkdir("site")
    monkeypatch.setenv("PYTHONPATH", str(folder), prepend=":")
    return folder


def run(pytester: pytest.Pytester, *arguments: str, limit_s: float = 50) -> pytest.RunResult:
    """Run pytest in an environment where nanobot-core is installed, as its users do."""
    return pytester.runpytest_subprocess("-p", "no:cacheprovider", *arguments, timeout=limit_s)


def test_a_good_plugin_passes_without_a_line_of_its_author(
    pytester: pytest.Pytester, site: Path
) -> None:
    write_plugin(site, "good", code=HEAD + GOOD)

    result = run(pytester, "--nanobot-plugin", "good")

    result.assert_outcomes(passed=6, skipped=1)


@pytest.mark.timeout(450)
def test_faulty_plugins_fail_with_what_is_wrong_and_how_to_fix_it(
    pytester: pytest.Pytester, site: Path
) -> None:
    ids = {name: f"faulty{number}" for number, name in enumerate(FAULTY)}
    for name, plugin_id in ids.items():
        write_plugin(site, plugin_id, code=HEAD + FAULTY[name].code)
    named = [argument for each in ids.values() for argument in ("--nanobot-plugin", each)]

    run(pytester, "--junitxml", "report.xml", "-k", "behaves or entry", *named, limit_s=400)

    said = dict.fromkeys(ids.values(), "")
    for case in ElementTree.parse("report.xml").iter("testcase"):  # noqa: S314 - our own file
        plugin_id = re.split(r"[\[\]-]", case.attrib["name"])[1]
        said[plugin_id] += "".join(f"{each.attrib['message']}\n" for each in case)
    missing = {
        name: said[ids[name]]
        for name, faulty in FAULTY.items()
        if not all(report in said[ids[name]] for report in faulty.reports)
    }
    assert missing == {}


def test_a_manifest_that_is_out_of_date_is_found(pytester: pytest.Pytester, site: Path) -> None:
    write_plugin(site, "stale", code=HEAD + GOOD, manifest=manifest_of("stale"))

    result = run(pytester, "--nanobot-plugin", "stale", "-k", "manifest")

    result.assert_outcomes(failed=1, deselected=5)
    result.stdout.fnmatch_lines(["*the manifest is out of date; run nanobot plugins build stale*"])


def test_a_plugin_that_is_not_installed_is_named(pytester: pytest.Pytester) -> None:
    result = run(pytester, "--nanobot-plugin", "absent")

    assert result.ret != 0
    result.stdout.fnmatch_lines(["*--nanobot-plugin: not installed: absent; installed:*"])


def test_without_the_option_nothing_is_added(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_own():\n    pass\n")

    run(pytester).assert_outcomes(passed=1)
