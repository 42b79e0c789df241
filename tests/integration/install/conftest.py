from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.integration.install.packages import Bench, make_base


@pytest.fixture(scope="session")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("pip", reason="pip is not installed here")
    pytest.importorskip("hatchling", reason="hatchling is not installed here")
    return make_base(tmp_path_factory.mktemp("base") / "site")


@pytest.fixture
def bench(tmp_path: Path, base: Path) -> Bench:
    return Bench.create(tmp_path, base)


@pytest.fixture
def uv_bench(bench: Bench, base: Path) -> Bench:
    """An environment as uv makes it, without pip."""
    if shutil.which("uv") is None:
        pytest.skip("uv is not on PATH")
    # uv sees only what is in the environment's own folder.
    (bench.site / "base.pth").unlink()
    for entry in base.iterdir():
        if entry.suffix == ".dist-info":  # it does not follow links to these
            shutil.copytree(entry, bench.site / entry.name)
        elif not entry.name.startswith("pip"):
            (bench.site / entry.name).symlink_to(entry)
    for info in bench.site.glob("pip-*"):
        shutil.rmtree(info)
    bench.variables["PYTHONDONTWRITEBYTECODE"] = "1"
    (bench.prefix / ".lock").touch()
    config = bench.prefix / "pyvenv.cfg"
    config.write_text(config.read_text() + "uv = 0.9.0\n")
    return bench
