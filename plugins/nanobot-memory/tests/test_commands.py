from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from nanobot_core.testing import FakePluginContext
from nanobot_memory.check import check_memory
from nanobot_memory.commands import app
from nanobot_memory.files import Memories
from nanobot_memory.history import NewEntry
from nanobot_memory.versions import keep_edits

GUEST = "sender/telegram:42"


@pytest.fixture
def context(tmp_path: Path) -> FakePluginContext:
    context = FakePluginContext(tmp_path)
    memories = Memories(context)
    memories.files().append([NewEntry(content="- The dentist is on 4 May.")])
    memories.files().write("USER.md", "- Name: Anna\n")
    memories.files(GUEST).append([NewEntry(content="- A guest plays chess.")])
    return context


def run(context: FakePluginContext, *words: str, code: int = 0) -> Result:
    # The host hands commands a function that opens the plugin's context.
    result = CliRunner().invoke(app, words, obj=lambda: context)
    assert result.exit_code == code, result.output
    return result


def test_show_prints_the_files(context: FakePluginContext) -> None:
    assert "--- USER.md\n- Name: Anna\n" in run(context, "show").stdout
    assert json.loads(run(context, "show", "--json").stdout)["USER.md"] == "- Name: Anna\n"
    assert set(json.loads(run(context, "show", "--json", "--scope", GUEST).stdout)) == {"MEMORY.md"}


def test_a_link_in_place_of_a_file_is_named_and_not_followed(
    context: FakePluginContext, tmp_path: Path
) -> None:
    secret = tmp_path / "secret"
    secret.write_text("4711")
    (context.workspace / "memory" / "MEMORY.md").symlink_to(secret)
    shown = run(context, "show", code=1)
    assert "MEMORY.md" in shown.output
    assert "4711" not in shown.output


@pytest.mark.parametrize(
    ("words", "sent"), [(("dream",), "/dream"), (("dream", "--retry"), "/dream retry")]
)
def test_dream_is_the_slash_command(words: tuple[str, ...], sent: str) -> None:
    class Terminal:
        def slash(self, text: str) -> str:
            return f"answered {text}"

    assert CliRunner().invoke(app, words, obj=Terminal()).stdout == f"answered {sent}\n"


def test_search_finds_in_the_named_memory_only(context: FakePluginContext) -> None:
    (found,) = json.loads(run(context, "search", "dentist", "--json").stdout)

    assert (found["id"], found["place"]) == ("history:1", "history")
    assert json.loads(run(context, "search", "chess", "--json").stdout) == []
    assert "A guest plays chess" in run(context, "search", "chess", "--scope", GUEST).stdout


def test_an_unknown_memory_is_named_with_those_that_exist(context: FakePluginContext) -> None:
    assert GUEST in run(context, "show", "--scope", "sender/x:1", code=2).stderr


def test_what_is_remembered_can_be_forgotten(context: FakePluginContext) -> None:
    name = run(context, "remember", "The garage code is 4711.").stdout.split()[-1]
    assert "4711" in run(context, "show").stdout
    assert "4711" in run(context, "search", "garage").stdout

    assert "memory/.git" in run(context, "forget", name).stdout
    assert "4711" not in run(context, "show").stdout
    assert run(context, "search", "garage").stdout == ""
    assert "nothing was removed" in run(context, "forget", name, code=1).stderr


def test_a_forgotten_entry_leaves_a_hint_where_its_messages_are(
    context: FakePluginContext,
) -> None:
    assert "nanobot sessions delete" in run(context, "forget", "history:1").stdout
    assert run(context, "search", "dentist").stdout == ""


@pytest.mark.parametrize("text", ["", "x" * 3_000])
def test_a_note_that_is_empty_or_too_long_is_refused(context: FakePluginContext, text: str) -> None:
    assert "1 to 2,000 characters" in run(context, "remember", text, code=2).stderr


def test_the_log_names_commands_of_the_terminal(context: FakePluginContext) -> None:
    keep_edits(Memories(context).files(), context.clock.now())
    shown = run(context, "log").stdout

    assert "`nanobot memory log ID` shows a change, `nanobot memory restore ID` reverts it" in shown


@pytest.mark.parametrize(
    ("added", "said"), [(0, "1 history entry waits"), (1, "2 history entries wait")]
)
async def test_the_check_counts_what_waits(
    context: FakePluginContext, added: int, said: str
) -> None:
    Memories(context).files().append([NewEntry(content="- more")] * added)

    assert said in (await check_memory(context)).message
