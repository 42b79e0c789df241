"""``nanobot status`` and ``explain``."""

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
