"""``nanobot sessions``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.integration.cli.conftest import CommandLine
from tests.integration.cli.packages import packages_for


def test_sessions_are_listed_for_people_and_programs(nanobot: CommandLine) -> None:
    nanobot("agent", "-m", "say a", "-s", "cli:one")
    lines = nanobot("sessions", "list").stdout.splitlines()
    (found,) = json.loads(nanobot("sessions", "list", "--json").stdout)

    assert lines[0] == "session\tupdated\tbytes"
    assert lines[1].startswith("cli:one\t")
    assert found["key"] == "cli:one"
    assert found["bytes"] > 0


def test_a_session_shows_what_was_said_and_where_results_came_from(nanobot: CommandLine) -> None:
    nanobot("agent", "-m", "call it")
    shown = nanobot("sessions", "show", "cli:direct").stdout

    assert "↳ ping {'word': 'once'}" in shown
    assert "ping from scripted@1.0" in shown
    assert "pong once" in shown


@pytest.mark.promise(28)
def test_a_session_shows_which_plugins_changed_an_answer_and_what_it_had_read(
    nanobot: CommandLine, tmp_path: Path
) -> None:
    code = """
from nanobot_core import ContextBlock
@on.gather_context
def hours(event): return [ContextBlock(name="Hours", text="9 to 17")]
@on.finalize_content
def sign(event): return event.content + " -- alpha"
"""
    packages = packages_for(nanobot, tmp_path / "packages")
    packages.add("alpha", code)
    nanobot = packages.nanobot
    nanobot("plugins", "enable", "alpha")
    nanobot("agent", "-m", "say hello")

    shown = nanobot("sessions", "show", "cli:direct").stdout

    assert "hello -- alpha\n(changed by alpha@1.2)\n(after reading alpha/Hours)" in shown


def test_the_newest_messages_alone_are_shown_when_asked_for(nanobot: CommandLine) -> None:
    nanobot("agent", "-m", "say first")
    nanobot("agent", "-m", "say second")
    (last,) = json.loads(nanobot("sessions", "show", "cli:direct", "--last=1", "--json").stdout)

    assert (last["role"], last["content"]) == ("assistant", "second")


def test_a_session_is_exported_to_a_file(nanobot: CommandLine) -> None:
    nanobot("agent", "-m", "say a")
    file = nanobot.home / "out.md"
    nanobot("sessions", "export", "cli:direct", "-o", str(file))
    records = json.loads(nanobot("sessions", "export", "cli:direct", "--json").stdout)

    assert file.read_text().startswith("# cli:direct\n\n## user")
    assert [record["content"] for record in records] == ["say a", "a"]


def test_an_export_that_cannot_be_written_is_told(nanobot: CommandLine) -> None:
    nanobot("agent", "-m", "say a")
    done = nanobot("sessions", "export", "cli:direct", "-o", str(nanobot.home), code=1)

    assert "cannot write" in done.stderr


def test_a_search_finds_words_in_any_case_and_else_fails(nanobot: CommandLine) -> None:
    nanobot("agent", "-m", "say Straße", "-s", "cli:a")
    found = json.loads(nanobot("sessions", "search", "strasse", "--json").stdout)

    assert {item["session"] for item in found} == {"cli:a"}
    assert "Straße" in nanobot("sessions", "search", "STRASSE").stdout
    assert nanobot("sessions", "search", "absent", code=1).stdout == ""


def test_a_session_is_deleted_after_a_yes(nanobot: CommandLine) -> None:
    nanobot("agent", "-m", "say a")
    with nanobot.on_terminal("sessions", "delete", "cli:direct") as terminal:
        terminal.expect("Delete session 'cli:direct' permanently? [y/N]")
        terminal.send("y\r")

        assert terminal.wait() == 0
    done = nanobot("sessions", "show", "cli:direct", code=1)
    assert "unknown session 'cli:direct'" in done.stderr


def test_a_session_is_not_deleted_where_nobody_can_be_asked(nanobot: CommandLine) -> None:
    nanobot("agent", "-m", "say a")
    nanobot("sessions", "delete", "cli:direct", code=2)
    nanobot("sessions", "delete", "cli:direct", "--yes")
    nanobot("sessions", "delete", "cli:direct", "--yes", code=1)
