from __future__ import annotations

import json
import shlex
import subprocess
import sys
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import get_args

import pytest
import yaml

from nanobot_core import PluginLoadFailed
from nanobot_devkit import scaffold
from nanobot_devkit.findings import check_plugin
from nanobot_devkit.location import locate_plugin
from nanobot_devkit.naming import PluginNames
from nanobot_devkit.release import compatible_range
from nanobot_devkit.scaffold import Kind, render_files, write_package

LIMIT_S = 50.0
ALL_LIMIT_S = 240.0
KINDS: tuple[Kind, ...] = get_args(Kind)
NEEDED: dict[Kind, tuple[str, ...]] = {
    "channel": ("httpx", "markdown_it"),
    "provider": ("httpx",),
    "search": ("httpx", "nanobot_web"),
    "skill": ("nanobot_skills",),
}
BEHAVIOUR: dict[Kind, str] = {
    "tool": "tools",
    "channel": "channels",
    "memory": "memory",
    "hook": "hooks",
    "service": "services",
    "search": "hooks",
    "skill": "hooks",
    "job": "hooks",
}
"""What of a package `pytest --nanobot-plugin` tests besides the description."""


@pytest.fixture(scope="module")
def types_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where mypy keeps what it knows of the libraries."""
    return tmp_path_factory.mktemp("types")


@pytest.mark.promise(31)
@pytest.mark.timeout(2 * ALL_LIMIT_S)
@pytest.mark.parametrize(
    "among",
    [
        pytest.param(("tool", "channel"), id="some"),
        pytest.param(tuple(KINDS), id="all", marks=pytest.mark.long),
    ],
)
def test_new_packages_pass_their_own_tests_and_keep_their_contracts(
    write: Callable[[str, Kind], Path], install: Callable[[Path], Path], among: Sequence[Kind]
) -> None:
    kinds = [kind for kind in among if all(map(find_spec, NEEDED.get(kind, ())))]
    projects = {f"sample-{kind}": write(f"sample-{kind}", kind) for kind in kinds}
    for project in projects.values():
        install(project)

    # One process for all: starting pytest takes longer than the tests of a package. The findings
    # are those of the description, which need not be tested twice.
    folder = projects["sample-tool"].parent
    config = projects["sample-tool"] / "pyproject.toml"
    words = [
        *("-rA", "-p", "no:cacheprovider", "-c", str(config), f"--rootdir={folder}"),
        *(str(project) for project in projects.values()),
        *(f"--nanobot-plugin={plugin_id}" for plugin_id in projects),
        *("-k", "not description"),
    ]
    child = subprocess.run(
        [sys.executable, "-m", "pytest", *words],
        capture_output=True,
        text=True,
        timeout=ALL_LIMIT_S,
        check=False,
        cwd=folder,
    )

    assert child.returncode == 0, child.stdout + child.stderr
    assert "skipped" not in child.stdout.splitlines()[-1]
    passed = [line for line in child.stdout.splitlines() if line.startswith("PASSED ")]
    contracts = {line[line.index("[") :] for line in passed if "::test_plugin[" in line}
    assert contracts == {f"[sample-{k}-{BEHAVIOUR[k]}]" for k in kinds if k in BEHAVIOUR}
    for plugin_id in projects:
        assert any(f" nanobot-{plugin_id}/tests/" in line for line in passed), passed
        assert check_plugin(locate_plugin(plugin_id)) == [], plugin_id


@pytest.mark.long
@pytest.mark.timeout(ALL_LIMIT_S)
def test_the_steps_of_the_workflow_pass(
    write: Callable[[str, Kind], Path], install: Callable[[Path], Path]
) -> None:
    project = write("stepped", "tool")
    install(project)
    workflow = yaml.safe_load((project / ".github/workflows/test.yml").read_text("utf-8"))
    steps = [step["run"] for step in workflow["jobs"]["test"]["steps"] if "run" in step]
    here = [step for step in steps if step.startswith(("nanobot ", "python -m pytest"))]

    for step in here:
        command = shlex.split(step.replace("nanobot ", "python -m nanobot_core ", 1))
        check(project, *command[2:])

    assert len(here) == 4
    report = json.loads((project / "conformance/stepped.json").read_text("utf-8"))
    assert report["result"] == "passed"


def test_only_the_job_that_publishes_may_identify_itself_to_the_index(
    write: Callable[[str, Kind], Path],
) -> None:
    workflows = write("stepped", "tool") / ".github/workflows"
    publish = yaml.safe_load((workflows / "publish.yml").read_text("utf-8"))

    assert publish["permissions"] == {"contents": "read"}
    assert publish["jobs"]["publish"]["permissions"] == {"id-token": "write"}
    assert publish["jobs"]["publish"]["needs"] == "build"
    assert "run" not in str(publish["jobs"]["publish"]["steps"])


@pytest.mark.parametrize("plugin_id", ["air", "weather-map"])
@pytest.mark.parametrize("words", [("check",), ("format", "--check")], ids=" ".join)
def test_a_new_package_is_clean_for_ruff(
    plugin_id: str, words: tuple[str, ...], tmp_path: Path
) -> None:
    pytest.importorskip("ruff")
    for kind in KINDS:
        write_code(PluginNames(f"{plugin_id}-{kind}"), kind, tmp_path / kind)

    check(tmp_path, "ruff", *words, "--no-cache")


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
def test_a_new_package_is_clean_for_mypy(kind: Kind, tmp_path: Path, types_cache: Path) -> None:
    pytest.importorskip("mypy")
    for needed in NEEDED.get(kind, ()):
        pytest.importorskip(needed)
    write_code(PluginNames(f"sample-{kind}"), kind, tmp_path)

    check(tmp_path, "mypy", "--cache-dir", str(types_cache))


def write_code(names: PluginNames, kind: Kind, folder: Path) -> None:
    """Write all of a package but its manifest, which takes a process of its own to derive."""
    for path, text in render_files(names, kind):
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, "utf-8")


def check(folder: Path, *words: str) -> None:
    child = subprocess.run(
        [sys.executable, "-m", *words],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
        cwd=folder,
    )
    assert child.returncode == 0, child.stdout + child.stderr


def test_a_new_package_is_complete_and_names_itself(write: Callable[[str, Kind], Path]) -> None:
    project = write("air-quality", "tool")

    found = {path.relative_to(project).as_posix() for path in project.rglob("*") if path.is_file()}
    assert found == {
        ".github/workflows/publish.yml",
        ".github/workflows/test.yml",
        ".gitignore",
        "CHANGELOG.md",
        "LICENSE",
        "README.md",
        "pyproject.toml",
        "src/nanobot_air_quality/__init__.py",
        "src/nanobot_air_quality/nanobot-plugin.json",
        "src/nanobot_air_quality/plugin.py",
        "src/nanobot_air_quality/py.typed",
        "src/nanobot_air_quality/settings.py",
        "src/nanobot_air_quality/tool.py",
        "tests/conftest.py",
        "tests/test_tool.py",
    }
    manifest = json.loads((project / "src/nanobot_air_quality/nanobot-plugin.json").read_text())
    assert manifest["id"] == "air-quality"
    assert "$" not in (project / "README.md").read_text("utf-8")


@pytest.mark.parametrize(
    ("version", "expected"),
    [("0.1.0", ">=0.1,<0.2"), ("0.9.3.dev1", ">=0.9,<0.10"), ("2.3.1", ">=2,<3")],
)
def test_the_range_of_the_core_ends_before_the_next_breaking_release(
    version: str, expected: str
) -> None:
    assert compatible_range(version) == expected


def test_a_folder_that_is_there_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "nanobot-weather").mkdir()

    with pytest.raises(FileExistsError):
        write_package(PluginNames("weather"), "tool", tmp_path)

    assert list((tmp_path / "nanobot-weather").iterdir()) == []


def test_nothing_is_left_behind_when_the_code_cannot_be_examined(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scaffold, "_DERIVE", "import sys; sys.exit('cannot examine')")

    with pytest.raises(PluginLoadFailed, match="cannot examine"):
        write_package(PluginNames("weather"), "tool", tmp_path)

    assert list(tmp_path.iterdir()) == []
