"""``nanobot agent -m``."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
from contextlib import nullcontext

import pytest

from tests.integration.cli.conftest import CommandLine
from tests.integration.cli.terminal import LIMIT_S
from tests.integration.cli.test_gateway import running

ASK = "\ntools: {approval: [{tool: ping, action: ask}]}\n"


def test_the_answer_alone_stands_on_stdout(nanobot: CommandLine) -> None:
    done = nanobot("agent", "-m", "say **hello** there")

    assert done.stdout == "**hello** there\n"
    assert done.stderr == ""


def test_words_beside_a_tool_call_go_to_stderr(nanobot: CommandLine) -> None:
    done = nanobot("agent", "-m", "call it")

    assert done.stdout == "The tool said: pong once\n"
    assert done.stderr.splitlines() == ["Let me see.", '↳ ping("once")']


def test_piped_text_is_the_message(nanobot: CommandLine) -> None:
    assert nanobot("agent", stdin="say yes").stdout == "yes\n"


def test_piped_text_comes_after_the_message(nanobot: CommandLine) -> None:
    assert nanobot("agent", "-m", "say what follows:", stdin="this\n").stdout == (
        "what follows:\n\nthis\n"
    )


def test_input_that_is_not_utf8_is_repaired_and_reported(nanobot: CommandLine) -> None:
    done = subprocess.run(
        [*nanobot.command, "agent", "-m", "say it:"],
        env=nanobot.environ,
        input=b"caf\xe9\r\nau lait\n",
        capture_output=True,
        timeout=LIMIT_S,
        check=True,
    )

    assert done.stdout.decode() == "it:\n\ncaf\ufffd\nau lait\n"
    assert b"Warning: standard input is not UTF-8" in done.stderr


def test_large_input_is_reported_before_it_is_sent(nanobot: CommandLine) -> None:
    done = nanobot("agent", "-m", "refuse", stdin="x" * 1_200_000, code=1)

    assert done.stderr.startswith("Warning: all 1.2 MB of standard input are sent to the model\n")


def test_input_that_is_too_large_is_refused(nanobot: CommandLine) -> None:
    done = nanobot("agent", "-m", "say it", stdin="x" * 16_000_001, code=2)

    assert "standard input has more than 16 MB" in done.stderr
    assert "save it as a file in the workspace" in done.stderr


@pytest.mark.parametrize("in_gateway", [False, True], ids=["alone", "through a gateway"])
def test_a_reader_that_stops_early_is_not_an_error(nanobot: CommandLine, in_gateway: bool) -> None:
    """As in ``nanobot agent -m … | head -3``; the gateway was blamed once."""
    reading, writing = os.pipe()
    os.close(reading)
    with running(nanobot) if in_gateway else nullcontext():
        done = subprocess.run(
            [*nanobot.command, "agent", "-m", "call it"],
            env=nanobot.environ,
            stdin=subprocess.DEVNULL,
            stdout=writing,
            stderr=subprocess.PIPE,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
    os.close(writing)

    assert done.returncode == 0
    assert done.stderr.splitlines() == ["Let me see.", '↳ ping("once")']


def test_a_misspelt_command_is_not_sent_to_the_model(nanobot: CommandLine) -> None:
    assert nanobot("agent", "-m", "/hlep").stdout == (
        "Unknown command /hlep. Did you mean /help? /help lists all commands.\n"
    )


@pytest.mark.parametrize("text", ["/tmp/help say yes", "/weather say yes"])
def test_other_text_that_begins_with_a_slash_is_sent_to_the_model(
    nanobot: CommandLine, text: str
) -> None:
    assert nanobot("agent", "-m", text).stdout == "yes\n"


def test_an_empty_message_is_wrong_use(nanobot: CommandLine) -> None:
    assert "the message is empty" in nanobot("agent", stdin=" \n", code=2).stderr


def test_a_failed_turn_is_told_on_stderr_and_by_the_exit_code(nanobot: CommandLine) -> None:
    done = nanobot("agent", "-m", "refuse", code=1)

    assert done.stdout == ""
    assert "Error: provider 'scripted': the key is not accepted" in done.stderr


def test_json_has_reply_usage_and_tools(nanobot: CommandLine) -> None:
    outcome = json.loads(nanobot("agent", "-m", "call it", "--json", "-s", "cli:j").stdout)

    assert outcome["reply"] == "The tool said: pong once"
    assert outcome["tools_used"] == ["ping"]
    assert outcome["usage"]["total_tokens"] == 10
    assert (outcome["stop_reason"], outcome["session"]) == ("completed", "cli:j")
    assert (outcome["model"], outcome["iterations"], outcome["error"]) == ("scripted-1", 2, None)


def test_json_of_a_failed_turn_has_the_error(nanobot: CommandLine) -> None:
    outcome = json.loads(nanobot("agent", "-m", "refuse", "--json", code=1).stdout)

    assert outcome["reply"] is None
    assert "the key is not accepted" in outcome["error"]


def test_a_question_without_anyone_to_ask_is_a_no(nanobot: CommandLine) -> None:
    nanobot.configure((nanobot.home / "config.yaml").read_text() + ASK)

    assert "not approved" in nanobot("agent", "-m", "call it").stdout


def test_a_long_answer_is_written_while_it_grows(nanobot: CommandLine) -> None:
    """The provider never ends this answer, so what is read was written on the way."""
    process = subprocess.Popen(
        [*nanobot.command, "agent", "-m", "hang long"],
        env=nanobot.environ,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert process.stdout is not None
    with process.stdout as stdout:
        try:
            ready, _, _ = select.select([stdout], [], [], LIMIT_S)
            assert ready
            assert os.read(stdout.fileno(), 9) == b"It begins"
            process.send_signal(signal.SIGINT)
            assert process.wait(LIMIT_S) == 130
        finally:
            process.kill()
            process.wait()
