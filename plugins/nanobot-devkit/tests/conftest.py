"""A plugin as `new` writes it, in an environment that this test made."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from shutil import copytree

import pytest

from nanobot_devkit.naming import PluginNames
from nanobot_devkit.scaffold import Kind, write_package

LIMIT_S = 50.0


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Makes a written package importable as ``pip install -e`` does: metadata and a path.

    Children see it through PYTHONPATH. ``install(project, requires)`` returns the package.
    """
    paths: list[str] = []

    def install(project: Path, requires: str = "nanobot-core<2") -> Path:
        id_ = project.name.removeprefix("nanobot-")
        package = project.name.replace("-", "_")
        module = next(
            line.partition('"')[2].rstrip('"\n')
            for line in (project / "pyproject.toml").read_text("utf-8").splitlines()
            if line.startswith(f'{id_} = "{package}.plugin')
        )
        site = tmp_path / f"site-{id_}"
        metadata = site / f"{package}-0.1.0.dist-info"
        metadata.mkdir(parents=True, exist_ok=True)
        (metadata / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {project.name}\nVersion: 0.1.0\n"
            f"Requires-Dist: {requires}\n\n# no README\n",
            "utf-8",
        )
        (metadata / "entry_points.txt").write_text(
            f"[nanobot]\n{id_} = {module}\n[nanobot.manifest]\n{id_} = {package}\n",
            "utf-8",
        )
        for path in (str(site), str(project / "src")):
            paths.append(path)
            monkeypatch.syspath_prepend(path)
        # The first entry, where Python puts the current folder, does not count as installed.
        monkeypatch.syspath_prepend(str(tmp_path / "current"))
        monkeypatch.setenv("PYTHONPATH", ":".join(paths))
        return project / "src" / package

    return install


@pytest.fixture(scope="session")
def written(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, Kind], Path]:
    """Writes a package that tests copy, once: its manifest takes two processes to derive."""
    folder = tmp_path_factory.mktemp("written")

    @cache
    def written(plugin_id: str, kind: Kind) -> Path:
        return write_package(PluginNames(plugin_id), kind, folder)

    return written


@pytest.fixture
def write(tmp_path: Path, written: Callable[[str, Kind], Path]) -> Callable[[str, Kind], Path]:
    """Writes a package: ``write("weather", "tool")`` returns its folder."""

    def write(plugin_id: str, kind: Kind) -> Path:
        package = written(plugin_id, kind)
        return copytree(package, tmp_path / package.name)

    return write


@pytest.fixture
def nanobot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs the command line: ``nanobot("plugins", "check", "weather")``."""
    monkeypatch.setenv("NANOBOT_HOME", str(tmp_path / "home"))
    # The devkit itself may be importable only because of how these tests were started.
    program = (
        "import sys; sys.argv[0] = 'nanobot'; from nanobot_core.cli import main; sys.exit(main())"
    )

    def nanobot(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-c", program, *words],
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
            cwd=tmp_path,
        )

    return nanobot
