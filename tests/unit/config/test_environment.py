"""Where the home and the file are, and that the process environment is read late."""

from __future__ import annotations

from pathlib import Path

import pytest

from nanobot_core.config.environment import environment, resolve_config_path, resolve_home


def test_the_home_is_named_or_the_users() -> None:
    assert resolve_home({"NANOBOT_HOME": "/data"}) == Path("/data")
    assert resolve_home({}) == Path.home() / ".nanobot"


def test_the_file_is_the_option_then_the_variable_then_the_first_in_the_home(
    tmp_path: Path,
) -> None:
    environ = {"NANOBOT_CONFIG": "/env.yaml"}
    assert resolve_config_path(Path("/o.yaml"), environ, tmp_path) == Path("/o.yaml")
    assert resolve_config_path(None, environ, tmp_path) == Path("/env.yaml")
    assert resolve_config_path(None, {}, tmp_path) == tmp_path / "config.yaml"
    for name in ("config.json", "config.yml", "config.yaml"):
        (tmp_path / name).touch()
        assert resolve_config_path(None, {}, tmp_path) == tmp_path / name


def test_only_variables_that_are_set_are_given(monkeypatch: pytest.MonkeyPatch) -> None:
    assert environment(["A", "B"], {"A": "1", "C": "2"}) == {"A": "1"}
    monkeypatch.setenv("NANOBOT_TEST_ONLY", "x")
    assert environment(["NANOBOT_TEST_ONLY"]) == {"NANOBOT_TEST_ONLY": "x"}
