"""``nanobot onboard``."""

from __future__ import annotations

import json
import stat
from dataclasses import replace

import pytest

from tests.integration.cli.conftest import CommandLine

TEMPLATES = {"AGENTS.md", "SOUL.md", "TOOLS.md", "USER.md"}


@pytest.fixture
def fresh(nanobot: CommandLine) -> CommandLine:
    (nanobot.home / "config.yaml").unlink()
    return nanobot


def test_flags_make_a_configuration_that_answers(fresh: CommandLine) -> None:
    fresh("onboard", "--yes", "--provider", "scripted", "--model", "m-1", "--api-key", "abcd1234")
    file = fresh.home / "config.yaml"

    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert "enabled:" in file.read_text()
    assert fresh("agent", "-m", "say hello").stdout == "hello\n"
    workspace = fresh.home / "workspace"
    found = {str(path.relative_to(workspace)) for path in workspace.rglob("*.md")}
    assert found - {"memory/MEMORY.md"} == TEMPLATES  # nanobot-memory brings its own


def test_nothing_that_exists_is_overwritten(fresh: CommandLine) -> None:
    fresh("onboard", "--yes", "--provider", "scripted", "--model", "m-1", "--api-key", "abcd1234")
    file = fresh.home / "config.yaml"
    file.write_text(file.read_text() + "# mine\n")
    (fresh.home / "workspace" / "USER.md").write_text("mine")
    (fresh.home / "workspace" / "SOUL.md").unlink()
    shown = fresh("onboard", "--yes").stdout

    assert (fresh.home / "workspace" / "USER.md").read_text() == "mine"
    assert "New files      SOUL.md\n" in shown
    assert "# mine" in file.read_text()
    assert "m-1" in file.read_text()


def test_a_terminal_is_asked_and_the_key_is_not_shown(fresh: CommandLine) -> None:
    with fresh.on_terminal("onboard") as terminal:
        terminal.expect("Provider")
        terminal.send("scripted\r")
        terminal.expect("Model, as the service calls it")
        terminal.send("m-1\r")
        # The blank comes from the reader of the key, once it has switched the echo off.
        terminal.expect("SCRIPTED_API_KEY yourself): ")
        terminal.send("abcd1234\r")

        assert terminal.wait() == 0
        assert "abcd1234" not in terminal.shown()
    assert "abcd1234" in (fresh.home / "config.yaml").read_text()


def test_a_file_that_is_named_is_made(fresh: CommandLine) -> None:
    file = fresh.home / "other" / "mine.json"
    fresh("--config", str(file), "onboard", "--yes", "--provider", "scripted", "--model", "m-1")

    assert json.loads(file.read_text())["agents"]["defaults"]["model"] == "m-1"


def test_an_unknown_provider_is_wrong_use(fresh: CommandLine) -> None:
    done = fresh("onboard", "--yes", "--provider", "scriptde", code=2)

    assert "choose 'scripted'" in done.stderr
    assert not (fresh.home / "config.yaml").exists()


def test_a_key_needs_its_provider(fresh: CommandLine) -> None:
    assert "--provider" in fresh("onboard", "--yes", "--api-key", "abcd1234", code=2).stderr


def test_a_provider_without_an_address_needs_one(fresh: CommandLine) -> None:
    pytest.importorskip("nanobot_openai")

    done = fresh("onboard", "--yes", "--provider", "custom", "--model", "m", code=2)
    assert "needs its address; add --api-base URL" in done.stderr
    fresh("onboard", "--yes", "--provider", "custom", "--model", "m", "--api-base", "http://a/v1")
    assert "api_base: http://a/v1" in (fresh.home / "config.yaml").read_text()


def test_an_agent_brings_the_templates_that_are_missing(fresh: CommandLine) -> None:
    fresh("onboard", "--yes", "--provider", "scripted", "--model", "m-1", "--api-key", "abcd1234")
    (fresh.home / "workspace" / "SOUL.md").unlink()
    fresh("agent", "-m", "say hello")

    assert (fresh.home / "workspace" / "SOUL.md").exists()


def test_an_unknown_user_in_a_path_is_part_of_the_name(fresh: CommandLine) -> None:
    inside = replace(fresh, folder=fresh.home)
    inside("--config", "~nobody-here.yaml", "onboard", "--yes")

    assert (fresh.home / "~nobody-here.yaml").exists()
