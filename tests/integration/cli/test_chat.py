"""``nanobot agent`` on a terminal."""

from __future__ import annotations

import stat

from tests.distributions import manifest_of, write_plugin
from tests.integration.cli.conftest import CONFIG, CommandLine

ASK = "\ntools: {approval: [{tool: ping, action: ask}]}\n"
CTRL_C, CTRL_D, ALT_ENTER, ENTER, TAB = "\x03", "\x04", "\x1b\r", "\r", "\t"
BLOCKS = """\
import threading
from loguru import logger
from nanobot_core import on

told = threading.Event()
logger.add(lambda message: told.set() if "blocks the event loop" in message else None)


@on.finalize_content
async def finalize_content(event):
    told.wait(30)
"""


def test_a_chat_answers_until_ctrl_d(nanobot: CommandLine) -> None:
    with nanobot.on_terminal("agent") as terminal:
        terminal.expect("scripted-1 by scripted")
        terminal.expect(">")
        terminal.send(f"say **first** answer{ENTER}")
        terminal.expect("thinking …")
        terminal.expect("first answer")
        terminal.expect(">")
        terminal.send(f"say second{ENTER}")
        terminal.expect("second\r\n")
        terminal.expect(">")
        terminal.send(CTRL_D)

        assert terminal.wait() == 0


def test_exit_ends_a_chat(nanobot: CommandLine) -> None:
    with nanobot.on_terminal("agent") as terminal:
        terminal.expect(">")
        terminal.send(f"exit{ENTER}")

        assert terminal.wait() == 0


def test_ctrl_c_stops_the_turn_and_not_the_program(nanobot: CommandLine) -> None:
    with nanobot.on_terminal("agent") as terminal:
        terminal.expect(">")
        terminal.send(f"hang{ENTER}")
        terminal.expect("It begins")
        terminal.send(CTRL_C)
        terminal.expect("stopped; the results so far are kept")
        terminal.expect(">")
        terminal.send(f"say alive{ENTER}")
        terminal.expect("alive\r\n")


def test_a_line_goes_on_after_a_backslash_and_after_alt_enter(nanobot: CommandLine) -> None:
    with nanobot.on_terminal("agent", "--no-markdown") as terminal:
        terminal.expect(">")
        terminal.send(f"say one\\{ENTER}two{ALT_ENTER}three{ENTER}")
        terminal.expect("one\r\ntwo\r\nthree")
        terminal.expect(">")


def test_slash_commands_are_listed_while_typing_and_completed(nanobot: CommandLine) -> None:
    with nanobot.on_terminal("agent") as terminal:
        terminal.expect(">")
        terminal.send("/stat")
        terminal.expect("show the model, the session and problems")
        terminal.send(f"{TAB}{ENTER}")
        terminal.expect("Session: ")


def test_a_yes_lets_a_tool_run(nanobot: CommandLine) -> None:
    nanobot.configure((nanobot.home / "config.yaml").read_text() + ASK)
    with nanobot.on_terminal("agent") as terminal:
        terminal.expect(">")
        terminal.send(f"call it{ENTER}")
        terminal.expect('"word": "once"')
        terminal.expect("Allow it? [y/N]")
        terminal.send(f"y{ENTER}")
        terminal.expect("The tool said: pong once")


def test_ctrl_c_at_a_question_is_a_no(nanobot: CommandLine) -> None:
    nanobot.configure((nanobot.home / "config.yaml").read_text() + ASK)
    with nanobot.on_terminal("agent", "-m", "call it") as terminal:
        terminal.expect("Allow it? [y/N]")
        terminal.send(CTRL_C)
        terminal.expect("not approved")

        assert terminal.wait() == 0


def test_the_history_is_for_its_owner_alone(nanobot: CommandLine) -> None:
    with nanobot.on_terminal("agent") as terminal:
        terminal.expect(">")
        terminal.send(f"say remembered{ENTER}")
        terminal.expect("remembered\r\n")

    history = nanobot.home / "history"
    assert "+say remembered" in history.read_text()
    assert stat.S_IMODE(history.stat().st_mode) == 0o600


def test_control_characters_of_a_model_do_not_reach_the_terminal(nanobot: CommandLine) -> None:
    with nanobot.on_terminal("agent", "-m", "say a\x1b]0;title\x07b", "--no-markdown") as terminal:
        terminal.expect("a]0;titleb")


def test_a_plugin_that_blocks_the_loop_is_named(nanobot: CommandLine) -> None:
    manifest = manifest_of("slow", hooks={"finalize_content": 1})
    write_plugin(nanobot.own_site(), "slow", code=BLOCKS, manifest=manifest)
    nanobot.configure(CONFIG.replace("extras", "slow"))
    with nanobot.on_terminal("agent") as terminal:
        terminal.expect(">")
        terminal.send(f"say something{ENTER}")
        terminal.expect("plugin 'slow': it blocks the event loop")
        terminal.expect(">")
        terminal.send(CTRL_D)

        assert terminal.wait() == 0


def test_a_plugin_that_did_not_start_is_named_at_the_prompt(nanobot: CommandLine) -> None:
    manifest = manifest_of("broken", hooks={"finalize_content": 1})
    write_plugin(nanobot.own_site(), "broken", code="import absent_module\n", manifest=manifest)
    nanobot.configure(CONFIG.replace("extras", "broken"))
    with nanobot.on_terminal("agent") as terminal:
        terminal.expect("plugin 'broken' is ")
        terminal.expect("nanobot plugins why broken says what to do")
        terminal.expect(">")


def test_code_has_no_black_background(nanobot: CommandLine) -> None:
    with nanobot.on_terminal("agent", "-m", "say use `ls` there") as terminal:
        terminal.expect("use ls there")

        assert "\x1b[1;36;40m" not in terminal.shown(raw=True)
        assert "\x1b[36mls" in terminal.shown(raw=True)
