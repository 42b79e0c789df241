"""What holds for every command."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from nanobot_core import __version__
from tests.integration.cli.conftest import CommandLine

HEAVY = {
    "httpx", "litellm", "mcp", "pydantic", "pydantic_settings", "rich", "scripted_plugin",
    "telegram", "tiktoken", "loguru", "prompt_toolkit",
}  # fmt: skip
SHOW_MODULES = """
import atexit, json, sys
def show():
    print("modules", json.dumps(sorted(sys.modules)), file=sys.stderr)
atexit.register(show)
sys.argv = ["nanobot", *sys.argv[1:]]
from nanobot_core.cli import main
main()
"""


def _modules(nanobot: CommandLine, *args: str) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-c", SHOW_MODULES, *args],
        env={**nanobot.environ, **nanobot.changes},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )
    return {name.split(".")[0] for name in json.loads(done.stderr.partition("modules ")[2])}


def test_the_version_needs_nothing_but_the_version(bare: CommandLine) -> None:
    assert bare("--version").stdout == f"nanobot {__version__}\n"
    loaded = _modules(bare, "--version")

    assert not loaded & {*HEAVY, "typer", "asyncio", "dataclasses"}


def test_the_version_is_told_beside_other_options_too(bare: CommandLine) -> None:
    assert bare("--safe", "--version").stdout == f"nanobot {__version__}\n"


@pytest.mark.promise(1)
def test_help_imports_no_plugin_and_no_heavy_library(nanobot: CommandLine) -> None:
    nanobot("--help")  # writes the index
    assert not _modules(nanobot, "--help") & HEAVY


@pytest.mark.promise(1)
def test_completion_imports_no_plugin(nanobot: CommandLine) -> None:
    nanobot.changes.update(
        {"_NANOBOT_COMPLETE": "complete_bash", "COMP_WORDS": "nanobot ex", "COMP_CWORD": "1"}
    )
    done = nanobot()

    assert done.stdout.split() == ["explain", "extras"]
    # typer itself reads options with pydantic, and completes with rich where they are installed
    assert not _modules(nanobot) & (HEAVY - {"pydantic", "rich"})


def test_completion_below_a_plugins_group_imports_no_plugin(nanobot: CommandLine) -> None:
    nanobot.changes.update(
        {"_NANOBOT_COMPLETE": "complete_bash", "COMP_WORDS": "nanobot extras w", "COMP_CWORD": "2"}
    )

    assert "scripted_plugin" not in _modules(nanobot)


def test_help_lists_the_groups_of_plugins_broken_ones_too(nanobot: CommandLine) -> None:
    listed = nanobot("--help").stdout

    assert re.search(r"^  extras +Works\.$", listed, re.MULTILINE)
    assert re.search(r"^  ruin +Is broken\.$", listed, re.MULTILINE)


def test_help_survives_a_configuration_that_is_wrong(nanobot: CommandLine) -> None:
    nanobot.configure("plugins: {policy: [")

    assert "extras" in nanobot("--help").stdout


def test_a_core_command_keeps_its_name(nanobot: CommandLine) -> None:
    assert "Wants a core name" not in nanobot("--help").stdout
    assert "--message" in nanobot("agent", "--help").stdout


def test_a_plugins_command_gets_the_plugins_context(nanobot: CommandLine) -> None:
    assert nanobot("extras", "where").stdout == "extras\n"


def test_a_broken_command_of_a_plugin_is_one_sentence(nanobot: CommandLine) -> None:
    done = nanobot("ruin", code=1)

    assert done.stdout == ""
    assert done.stderr == (
        "Error: plugin 'extras': module 'scripted_plugin.absent' does not exist; "
        "reinstall it or fix its entry point\n"
    )


def test_debug_adds_the_traceback(nanobot: CommandLine) -> None:
    assert "Traceback" in nanobot("--debug", "ruin", code=1).stderr


@pytest.mark.parametrize("option", ["--without=extras", "--safe"])
def test_a_command_of_a_plugin_that_is_left_out_says_so(nanobot: CommandLine, option: str) -> None:
    done = nanobot(option, "extras", "where", code=1)

    assert f"left out by {option.partition('=')[0]}" in done.stderr


def test_a_near_miss_is_wrong_use_and_names_the_command(nanobot: CommandLine) -> None:
    done = nanobot("extra", code=2)

    assert "no such command 'extra', did you mean 'extras'?" in done.stderr


def test_all_problems_of_a_configuration_are_told_at_once(nanobot: CommandLine) -> None:
    nanobot.configure("agents: {defaults: {max_tokens: no, temperature: hot}}")
    done = nanobot("config", "show", code=1)

    assert "the configuration has 2 problems" in done.stderr
    assert "agents.defaults.temperature" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_configuration_that_is_named_must_exist(nanobot: CommandLine) -> None:
    assert "absent.yaml" in nanobot("--config", "absent.yaml", "config", "show", code=1).stderr


def test_no_color_is_obeyed(nanobot: CommandLine) -> None:
    nanobot.changes["NO_COLOR"] = "1"
    with nanobot.on_terminal("doctor") as terminal:
        terminal.wait()

        assert "\x1b[3" not in terminal.shown(raw=True)


def test_nothing_is_imported_from_the_current_directory(bare: CommandLine, tmp_path: Path) -> None:
    (tmp_path / "typer.py").write_text("raise SystemExit('imported')")

    assert "Usage" in replace(bare, folder=tmp_path)("--help").stdout


def test_the_current_directory_counts_where_the_path_names_it(
    bare: CommandLine, tmp_path: Path
) -> None:
    (tmp_path / "typer.py").write_text("raise SystemExit('imported')")
    bare.changes["PYTHONPATH"] = os.pathsep.join([str(tmp_path), bare.environ["PYTHONPATH"]])
    here = replace(bare, folder=tmp_path)

    assert here("--help", code=1).stderr == "imported\n"
    bare.changes["PYTHONSAFEPATH"] = "1"
    assert here("--help", code=1).stderr == "imported\n"
