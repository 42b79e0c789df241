from __future__ import annotations

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
