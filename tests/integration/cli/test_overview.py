"""``nanobot status``, ``doctor`` and ``explain``."""

from __future__ import annotations

import json

import pytest

from tests.integration.cli.conftest import CONFIG, CommandLine


def test_the_status_names_model_provider_and_plugins(nanobot: CommandLine) -> None:
    shown = nanobot("status").stdout
    facts = json.loads(nanobot("status", "--json").stdout)

    assert "Model          scripted-1" in shown
    assert facts["provider"] == "scripted"
    assert facts["plugins"]["found"] == 2
    assert facts["configuration"] == str(nanobot.home / "config.yaml")


def test_the_status_without_a_configuration_says_what_to_do(nanobot: CommandLine) -> None:
    (nanobot.home / "config.yaml").unlink()

    assert "run nanobot onboard" in nanobot("status").stdout


def test_the_status_tells_of_plugins_that_are_not_there(nanobot: CommandLine) -> None:
    nanobot.configure(CONFIG.replace("extras]", "extras, absent]"))

    assert "pip install nanobot-absent" in nanobot("status").stdout


def _findings(nanobot: CommandLine, *args: str, code: int = 0) -> dict[str, dict[str, str]]:
    found = json.loads(nanobot("doctor", "--json", *args, code=code).stdout)
    return {item["name"]: item for item in found}


def test_the_doctor_bounds_contains_and_reports_the_checks_of_plugins(nanobot: CommandLine) -> None:
    found = _findings(nanobot, code=1)

    assert found["patience"]["message"] == "the check did not end within 2 seconds"
    assert found["nerves"]["message"] == "the check failed with RuntimeError: no nerves left"
    assert (found["health"]["status"], found["health"]["source"]) == ("ok", "scripted")
    assert found["model"]["message"] == "scripted-1 by scripted"


def test_the_doctor_mends_a_configuration_that_others_can_read(bare: CommandLine) -> None:
    file = bare.configure("plugins: {policy: listed}\nproviders: {x: {api_key: abcd1234}}\n")
    file.chmod(0o644)

    assert f"chmod 600 {file}" in _findings(bare, code=1)["secrets"]["remedy"]
    assert _findings(bare, "--fix", code=1)["secrets"]["status"] == "ok"
    assert file.stat().st_mode & 0o777 == 0o600


def test_the_doctor_lists_every_problem_of_a_configuration(bare: CommandLine) -> None:
    bare.configure("agents: {defaults: {max_tokens: no, temperature: hot}}")
    found = json.loads(bare("doctor", "--json", code=1).stdout)

    assert [item["status"] for item in found] == ["error", "error"]


def test_the_doctor_shows_remedies_to_people(nanobot: CommandLine) -> None:
    (nanobot.home / "config.yaml").unlink()
    shown = nanobot("doctor", code=1).stdout

    assert "warning configuration: there is no file" in shown
    assert "→ run nanobot onboard" in shown


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (("tool", "ping"), "scripted@1.0: enabled"),
        (("command", "/help"), "nanobot-core"),
        (("setting", "agents.defaults.model"), "config.yaml:1"),
        (("setting", "agents.defaults.max_tokens"), "not set"),
        (("hook", "before_turn"), "The user's message is stored"),
    ],
)
def test_explanations_name_the_source(
    nanobot: CommandLine, args: tuple[str, ...], expected: str
) -> None:
    assert expected in nanobot("explain", *args).stdout


def test_an_explanation_shows_no_secret(nanobot: CommandLine) -> None:
    shown = nanobot("explain", "setting", "providers.scripted.api_key").stdout

    assert "key-of-the-test-7" not in shown
    assert "config.yaml:2" in shown


@pytest.mark.parametrize(
    ("args", "hint"),
    [
        (("tool", "pnig"), "did you mean 'ping'"),
        (("hook", "befor_turn"), "did you mean 'before_turn'"),
        (("command", "hepl"), "did you mean 'help'"),
    ],
)
def test_a_near_miss_is_named(nanobot: CommandLine, args: tuple[str, ...], hint: str) -> None:
    assert hint in nanobot("explain", *args, code=1).stderr
