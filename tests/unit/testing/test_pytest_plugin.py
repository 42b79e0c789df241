from __future__ import annotations

import json
import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from nanobot_core import __version__
from nanobot_core.testing import FakeClock, FakePluginContext
from tests.distributions import manifest_of, write_plugin
from tests.strangers.faulty import FAULTY, GOOD, HEAD

_GROUPS = 3
_SELECTED = f"not description or faulty{list(FAULTY).index('an entry module that loads a library')}"
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

    light = ("_version", "lazy", "testing", "testing.pytest_plugin")
    assert child.stdout.strip() == str([f"nanobot_core.{name}" for name in light])


@pytest.mark.promise(32)
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


@pytest.mark.promise(33)
def test_a_good_plugin_passes_without_a_line_of_its_author(
    pytester: pytest.Pytester, site: Path
) -> None:
    write_plugin(site, "good", code=HEAD + GOOD)

    result = run(pytester, "--nanobot-plugin", "good")

    result.assert_outcomes(passed=3)


@pytest.mark.promise(33)
def test_the_results_are_written_as_files_for_programs(
    pytester: pytest.Pytester, site: Path
) -> None:
    write_plugin(site, "good", code=HEAD + GOOD)
    write_plugin(site, "poor", code="import anyio\n" + HEAD)

    names = ("--nanobot-plugin", "good", "--nanobot-plugin", "poor")
    run(pytester, *names, "--nanobot-report", "out/results").assert_outcomes(passed=3, failed=1)

    folder = pytester.path / "out/results"
    good, poor = (json.loads((folder / f"{name}.json").read_text()) for name in ("good", "poor"))
    assert good["result"] == "passed"
    assert (good["distribution"], good["version"], good["core"]) == (
        "acme-good",
        "1.0",
        __version__,
    )
    assert good["kinds"].keys() > {"description", "tools"}
    assert poor["result"] == poor["kinds"]["description"]["result"] == "failed"
    assert "loads anyio" in poor["kinds"]["description"]["findings"][0]
    badges = [json.loads((folder / f"{name}.badge.json").read_text()) for name in ("good", "poor")]
    assert [badge["message"] for badge in badges] == ["conforms", "does not conform"]


def test_a_report_without_a_plugin_is_refused(pytester: pytest.Pytester) -> None:
    result = run(pytester, "--nanobot-report", "out")

    result.stderr.fnmatch_lines(["*--nanobot-report needs --nanobot-plugin NAME*"])


@pytest.mark.promise(33, 34)
@pytest.mark.timeout(450)
@pytest.mark.parametrize("every", [4, pytest.param(1, marks=pytest.mark.long)])
def test_faulty_plugins_fail_with_what_is_wrong_and_how_to_fix_it(
    tmp_path: Path, site: Path, every: int
) -> None:
    chosen = dict(list(FAULTY.items())[::every])
    ids = {name: f"faulty{number}" for number, name in enumerate(FAULTY) if name in chosen}
    for name, plugin_id in ids.items():
        write_plugin(site, plugin_id, code=HEAD + FAULTY[name].code)

    # Most of them wait, so that they are tested side by side.
    groups = [list(ids.values())[first::_GROUPS] for first in range(_GROUPS)]
    with ThreadPoolExecutor(_GROUPS) as pool:
        reports = list(pool.map(partial(messages_of, tmp_path), groups))

    said = {plugin: messages for report in reports for plugin, messages in report.items()}
    missing = {
        name: said[ids[name]]
        for name, faulty in chosen.items()
        if not all(report in said[ids[name]] for report in faulty.reports)
    }
    assert missing == {}


def messages_of(folder: Path, plugins: list[str]) -> dict[str, str]:
    """Return the messages of failed tests by plugin."""
    named = [argument for each in plugins for argument in ("--nanobot-plugin", each)]
    report = folder / f"{plugins[0]}.xml"
    words = ("--junitxml", str(report), "-k", _SELECTED, *named)
    subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *words],
        cwd=folder,
        stdout=subprocess.DEVNULL,
        timeout=400,
        check=False,
    )
    said = dict.fromkeys(plugins, "")
    for case in ElementTree.parse(report).iter("testcase"):  # noqa: S314 - our own file
        plugin_id = re.split(r"[\[\]-]", case.attrib["name"])[1]
        said[plugin_id] += "".join(f"{each.attrib['message']}\n" for each in case)
    return said


def test_a_manifest_that_is_out_of_date_is_found(pytester: pytest.Pytester, site: Path) -> None:
    write_plugin(site, "stale", code=HEAD + GOOD, manifest=manifest_of("stale"))

    result = run(pytester, "--nanobot-plugin", "stale", "-k", "description")

    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*nanobot-plugin.json is out of date; run nanobot plugins build*"])


def test_a_file_that_is_not_installed_is_tested_by_its_path(pytester: pytest.Pytester) -> None:
    pytester.path.joinpath("good.py").write_text(HEAD + GOOD, "utf-8")

    result = run(pytester, "--nanobot-plugin", "good.py", "-k", "description or tools")

    result.assert_outcomes(passed=2, deselected=1)


def test_a_plugin_that_is_not_installed_is_named(pytester: pytest.Pytester) -> None:
    result = run(pytester, "--nanobot-plugin", "absent")

    assert result.ret != 0
    result.stderr.fnmatch_lines(["*--nanobot-plugin absent: it is not installed; installed:*"])


def test_without_the_option_nothing_is_added(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_own():\n    pass\n")

    run(pytester).assert_outcomes(passed=1)
