"""What is known of models: shipped, reported by the service, found by dated names."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from nanobot_core import ModelInfo, ProviderSpec
from nanobot_core.app.model_table import ModelTable, credible_models

SPEC = ProviderSpec(name="acme", factory="a:b", models="acme_models:models.json")
SHIPPED = [
    {"name": "acme-1", "window_tokens": 1_000, "input_usd": 1, "output_usd": 2, "cached_usd": 0.5},
    {"name": "acme-1-mini", "window_tokens": "many", "abilities": ["tools", "flying"]},
    {"window_tokens": 5},
    "acme-0",
]


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModelTable:
    package = tmp_path / "site" / "acme_models"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise RuntimeError('imported')")
    (package / "models.json").write_text(json.dumps({"acme": SHIPPED, "other": []}))
    monkeypatch.setattr(sys, "path", [str(tmp_path / "site"), *sys.path])
    return ModelTable(tmp_path / "models")


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("acme-1", "acme-1"),
        ("acme-1-2026-03-01", "acme-1"),
        ("acme-1-mini-20260301", "acme-1-mini"),
        ("acme-1-latest", "acme-1"),
        ("acme-1:free", "acme-1"),
        ("acme-1-nano", None),
        ("acme-1.5", None),
        ("acme-1-5", None),
        ("acme", None),
    ],
)
def test_a_dated_name_is_the_model_and_another_variant_is_not(
    table: ModelTable, name: str, found: str | None
) -> None:
    info = table.find(SPEC, name)
    assert (info.name if info else None) == found


def test_facts_of_a_wrong_type_are_left_out(table: ModelTable) -> None:
    assert table.models(SPEC)["acme-1-mini"] == ModelInfo(
        name="acme-1-mini", abilities=frozenset({"tools"})
    )


def test_what_the_service_reports_overrides_what_ships(table: ModelTable) -> None:
    reported = [
        ModelInfo(name="acme-1-2026-03-01", window_tokens=900, input_usd=3, output_usd=4),
        ModelInfo(name="house"),
    ]
    table.store(SPEC, reported)

    assert list(table.models(SPEC)) == ["acme-1-2026-03-01", "house"]
    assert table.find(SPEC, "acme-1-2026-03-01") == reported[0]
    assert table.find(SPEC, "acme-1") is not None


@pytest.mark.parametrize("content", ["{", "[]", '{"name": "x"}', "[" * 100_000, "[1, null]"])
def test_a_damaged_file_of_a_service_counts_as_none(
    table: ModelTable, tmp_path: Path, content: str
) -> None:
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "acme.json").write_text(content)

    assert "acme-1" in table.models(SPEC)


@pytest.mark.parametrize("kind", ["pipe", "folder", "device", "huge"])
def test_what_is_no_file_of_a_service_counts_as_none(
    table: ModelTable, tmp_path: Path, kind: str
) -> None:
    (tmp_path / "models").mkdir()
    place = tmp_path / "models" / "acme.json"
    if kind == "pipe":
        os.mkfifo(place)
    elif kind == "folder":
        place.mkdir()
    elif kind == "device":
        place.symlink_to("/dev/zero")
    else:
        with place.open("wb") as file:
            file.truncate(1 << 40)

    assert "acme-1" in table.models(SPEC)


@pytest.mark.parametrize(
    "name", ["", "x" * 301, "red\x1b[31m", "two\nlines", "\ud800", "a\u202eb", "tab\t"]
)
def test_a_listed_name_that_cannot_be_shown_is_left_out(name: str) -> None:
    assert credible_models([ModelInfo(name=name), ModelInfo(name="x")]) == (ModelInfo(name="x"),)


def test_figures_that_no_service_can_mean_are_left_out(table: ModelTable) -> None:
    wild = ModelInfo(
        name="wild", window_tokens=10**400, max_answer_tokens=-1, input_usd=1e300, output_usd=-1
    )
    small = ModelInfo(name="small", window_tokens=2)
    found = credible_models([wild, small, *(ModelInfo(name=f"m{i}") for i in range(20_000))])

    assert found[:2] == (ModelInfo(name="wild"), ModelInfo(name="small"))
    assert len(found) == 10_000
    table.store(SPEC, found)
    assert len(table.models(SPEC)) == 10_000
