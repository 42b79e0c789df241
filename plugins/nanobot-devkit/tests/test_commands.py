from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from nanobot_core import PluginNotFound, PluginRejected, __version__
from nanobot_devkit.location import locate_plugin
from nanobot_devkit.scaffold import Kind

Run = Callable[..., subprocess.CompletedProcess[str]]


def test_new_writes_a_package_and_says_what_comes_next(nanobot: Run, tmp_path: Path) -> None:
    done = nanobot("plugins", "new", "weather", "--kind", "tool")

    assert done.returncode == 0, done.stderr
    assert (tmp_path / "nanobot-weather/pyproject.toml").is_file()
    assert "pip install -e nanobot-weather" in done.stdout


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("Weather!", "--kind", "tool"), "cannot be the name"),
        (("weather", "--kind", "tool", "--path", "absent"), "is not a folder"),
        (("taken", "--kind", "tool"), "exists already"),
    ],
)
def test_new_refuses_what_it_cannot_do_as_wrong_use(
    nanobot: Run, tmp_path: Path, words: tuple[str, ...], expected: str
) -> None:
    (tmp_path / "nanobot-taken").mkdir()

    done = nanobot("plugins", "new", *words)

    assert done.returncode == 2
    assert expected in done.stderr


def test_build_updates_the_stale_manifest_that_check_found(
    nanobot: Run, write: Callable[[str, Kind], Path], install: Callable[[Path], Path]
) -> None:
    package = install(write("stale", "tool"))
    tool = package / "tool.py"
    tool.write_text(tool.read_text("utf-8").replace("Report on", "Tell of"), "utf-8")

    before = nanobot("plugins", "build", "stale", "--check")
    check = nanobot("plugins", "check", "stale")
    build = nanobot("plugins", "build", "stale")
    after = nanobot("plugins", "build", "stale", "--check")

    assert (before.returncode, check.returncode) == (1, 1)
    assert "stale" in before.stderr
    assert "run nanobot plugins build stale" in check.stdout
    assert (build.returncode, after.returncode) == (0, 0), build.stderr
    manifest = json.loads((package / "nanobot-plugin.json").read_text("utf-8"))
    assert manifest["declarations"][0]["summary"].startswith("Tell of")


DICE = """\
from nanobot_core import on, tool
@tool
def roll(sides: int = 6) -> int:
    "Roll a die with that many sides."
    return sides
@on.contribute_tools
def contribute_tools(ctx):
    return [roll]
"""


@pytest.mark.parametrize("is_installed", [True, False], ids=["installed", "file"])
def test_a_single_module_passes_and_needs_no_manifest(
    nanobot: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_installed: bool
) -> None:
    (tmp_path / "nanobot_dice.py").write_text(DICE, "utf-8")
    metadata = tmp_path / "nanobot_dice-0.1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: nanobot-dice\nVersion: 0.1.0\n"
        f"Requires-Dist: nanobot-core=={__version__}\n",
        "utf-8",
    )
    (metadata / "entry_points.txt").write_text("[nanobot]\ndice = nanobot_dice\n", "utf-8")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    target = "dice" if is_installed else "nanobot_dice.py"

    check = nanobot("plugins", "check", target)
    build = nanobot("plugins", "build", target, "--check")

    assert (check.returncode, build.returncode) == (0, 0), check.stdout + build.stderr
    assert "no problems found" in check.stdout
    assert "it needs no manifest" in build.stdout


def test_build_writes_nothing_into_an_installed_package(
    nanobot: Run, write: Callable[[str, Kind], Path], install: Callable[[Path], Path]
) -> None:
    package = install(write("wheel", "hook"))
    (package / "nanobot-plugin.json").write_text("{}", "utf-8")
    (package.parents[1] / "pyproject.toml").unlink()

    done = nanobot("plugins", "build", "wheel")

    assert done.returncode == 1
    assert "which is not a working copy; first run: python3 -m pip install -e" in done.stderr
    assert (package / "nanobot-plugin.json").read_text("utf-8") == "{}"


def test_a_folder_that_is_not_installed_must_be_installed_first(
    nanobot: Run, write: Callable[[str, Kind], Path]
) -> None:
    project = write("absent", "tool")

    done = nanobot("plugins", "build", str(project))

    assert done.returncode == 1
    assert f"first run: python3 -m pip install -e {project}" in done.stderr


def test_a_folder_means_the_plugin_that_is_installed_from_it(
    write: Callable[[str, Kind], Path], install: Callable[[Path], Path]
) -> None:
    project = write("local", "tool")
    package = install(project)

    located = locate_plugin(str(project))

    assert (located.id, located.code, located.project) == ("local", package, project)


def test_another_copy_of_an_installed_plugin_is_not_taken_for_it(
    tmp_path: Path, write: Callable[[str, Kind], Path], install: Callable[[Path], Path]
) -> None:
    project = write("twice", "tool")
    install(project)
    (tmp_path / "copy").mkdir()
    (tmp_path / "copy/pyproject.toml").write_text((project / "pyproject.toml").read_text("utf-8"))

    with pytest.raises(PluginNotFound, match="another copy of it is installed"):
        locate_plugin(str(tmp_path / "copy"))


def test_what_is_neither_id_nor_folder_is_not_found() -> None:
    with pytest.raises(PluginNotFound, match="no folder of that name"):
        locate_plugin("nowhere")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[project]\nname = 'x'", "names no plugins"),
        ("not toml", "names no plugins"),
        ('[project.entry-points.nanobot]\na = "x"\nb = "y"', "names 2 plugins"),
    ],
)
def test_a_project_without_exactly_one_plugin_is_refused(
    tmp_path: Path, text: str, expected: str
) -> None:
    (tmp_path / "pyproject.toml").write_text(text, "utf-8")

    with pytest.raises(PluginRejected, match=expected):
        locate_plugin(str(tmp_path))


def test_the_entry_module_loads_neither_typer_nor_packaging() -> None:
    code = (
        "import sys; from nanobot_core import on; import nanobot_devkit.plugin; "
        "print('typer' in sys.modules or 'packaging' in sys.modules)"
    )

    child = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=True
    )

    assert child.stdout.strip() == "False"
