"""``nanobot gateway``, and what other commands do while one runs."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

from nanobot_core.app.client import ControlClient
from nanobot_core.app.lock import is_running
from nanobot_core.cli.service_file import service_file
from nanobot_core.contracts.client import ignore_event
from nanobot_core.events import TurnOutcome
from tests.integration.cli.conftest import CONFIG, CommandLine
from tests.integration.cli.terminal import LIMIT_S

ASK = "\ntools: {approval: [{tool: ping, action: ask}]}\n"
CTRL_C, CTRL_D, ENTER = "\x03", "\x04", "\r"
GATEWAY = "gateway: {port: 0, grace_s: 2}\n"


@contextmanager
def running(
    nanobot: CommandLine, more: str = "", options: Sequence[str] = (), config: str = CONFIG
) -> Iterator[subprocess.Popen[str]]:
    nanobot.configure(config + GATEWAY + more)
    process = subprocess.Popen(
        [*nanobot.command, *options, "gateway"],
        env=nanobot.environ,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    with process.stderr as stderr:
        try:
            seen = ""
            while "gateway ready" not in seen:
                line = stderr.readline()
                assert line, seen
                seen += line
            yield process
        finally:
            process.kill()
            process.wait()


@pytest.mark.parametrize("command", [("status",), ("stop",), ("reload",)], ids=" ".join)
def test_without_a_gateway_the_sentence_says_what_to_do(
    nanobot: CommandLine, command: tuple[str, ...]
) -> None:
    done = nanobot("gateway", *command, code=1)

    assert done.stderr == "Error: no gateway runs here; start one with nanobot gateway\n"
    assert done.stdout == ""


def test_status_and_stop(nanobot: CommandLine) -> None:
    with running(nanobot) as process:
        found = json.loads(nanobot("gateway", "status", "--json").stdout)
        assert (found["pid"], found["ready"]) == (process.pid, True)
        shown = nanobot("gateway", "status").stdout
        assert f"Process  {process.pid}\n" in shown
        assert "State    ready\n" in shown
        assert "0 turns running, 0 ended" in nanobot("status").stdout

        nanobot("gateway", "stop")

        assert process.wait(LIMIT_S) == 0


def test_a_gateway_that_refuses_every_message_is_not_ready(
    nanobot: CommandLine, tmp_path: Path
) -> None:
    plugin = tmp_path / "broken.py"
    plugin.write_text("import no_such_thing\n")
    enabled = CONFIG.replace("[scripted, extras]", f"[scripted, broken], local: [{plugin}]")
    with running(nanobot, config=enabled):
        found = json.loads(nanobot("gateway", "status", "--json").stdout)
        assert (found["ready"], found["refusing"]) == (False, ["broken"])
        reported = "refuses every message, because of broken"
        assert reported in nanobot("gateway", "status").stdout
        assert reported in nanobot("status").stdout

        nanobot("gateway", "restart")


def test_stop_waits_for_the_end_of_the_process(nanobot: CommandLine, tmp_path: Path) -> None:
    """The lock was free before the process had ended, and so was the command."""
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    plugin = tmp_path / "lingering.py"
    plugin.write_text(
        "import atexit, pathlib\n"
        "from nanobot_core import on\n"
        "@on.before_turn\n"
        "def before_turn(event): ...\n"
        "@on.start\n"
        "def start(ctx):\n"
        f"    atexit.register(pathlib.Path({str(gate)!r}).read_text)\n"
    )
    enabled = CONFIG.replace("[scripted, extras]", f"[scripted, lingering], local: [{plugin}]")
    with running(nanobot, config=enabled) as process:
        stopping = subprocess.Popen(
            [*nanobot.command, "gateway", "stop"], env=nanobot.environ, stderr=subprocess.DEVNULL
        )
        try:
            with gate.open("w"):  # opened once the process is about to end
                assert not is_running(nanobot.home / "gateway")
                with pytest.raises(subprocess.TimeoutExpired):
                    stopping.wait(1)
            assert stopping.wait(LIMIT_S) == 0
            assert process.poll() == 0
        finally:
            stopping.kill()
            stopping.wait()


def test_a_gateway_that_hangs_is_told_with_what_to_do(nanobot: CommandLine) -> None:
    commands = (
        ("gateway", "status"),
        ("gateway", "stop"),
        ("channels", "status"),
        ("deadletters", "list"),
        ("sessions", "delete", "cli:a", "--yes"),
    )
    with running(nanobot) as process, ThreadPoolExecutor(len(commands)) as at_once:
        process.send_signal(signal.SIGSTOP)
        told = [
            done.stderr for done in at_once.map(lambda words: nanobot(*words, code=1), commands)
        ]

    for sentence in told:
        assert f"the gateway with process id {process.pid} has not answered within " in sentence
        assert "nanobot gateway logs shows what it did last" in sentence
        assert f"end it with kill -9 {process.pid} and start it again" in sentence


def test_a_message_is_answered_by_the_gateway(nanobot: CommandLine) -> None:
    with running(nanobot):
        done = nanobot("agent", "-m", "say **hello** there")
        called = nanobot("agent", "-m", "call it")
        outcome = json.loads(nanobot("agent", "-m", "call it", "--json", "-s", "cli:j").stdout)
        listed = nanobot("agent", "-m", "/help").stdout
        deadline_s = time.monotonic() + LIMIT_S
        while (status := json.loads(nanobot("gateway", "status", "--json").stdout)["totals"])[
            "turns"
        ] < 3:
            assert time.monotonic() < deadline_s, status

    assert (status["failed_turns"], status["tool_calls"], status["model_calls"]) == (0, 2, 5)
    assert status["usage"]["prompt_tokens"] > 0 < status["turns_s"]
    assert (done.stdout, done.stderr) == ("**hello** there\n", "")
    assert called.stdout == "The tool said: pong once\n"
    assert called.stderr.splitlines() == ["Let me see.", '↳ ping("once")']
    assert (outcome["reply"], outcome["session"]) == ("The tool said: pong once", "cli:j")
    assert outcome["usage"]["total_tokens"] == 10
    # Only a gateway has this command.
    assert "/approve" in listed


def test_a_turn_that_fails_in_the_gateway_fails_the_command(nanobot: CommandLine) -> None:
    with running(nanobot):
        done = nanobot("agent", "-m", "refuse", code=1)
        outcome = json.loads(nanobot("agent", "-m", "refuse", "--json", code=1).stdout)

    assert done.stdout == ""
    assert "Error: provider 'scripted': the key is not accepted" in done.stderr
    assert "the key is not accepted" in outcome["error"]


def test_nobody_at_the_terminal_is_a_no(nanobot: CommandLine) -> None:
    with running(nanobot, ASK):
        assert "not approved" in nanobot("agent", "-m", "call it").stdout


def test_a_chat_through_the_gateway(nanobot: CommandLine) -> None:
    with running(nanobot, ASK), nanobot.on_terminal("agent") as terminal:
        terminal.expect("the running gateway")
        terminal.expect(">")
        terminal.send(f"hang{ENTER}")
        terminal.expect("It begins")
        terminal.send(CTRL_C)
        terminal.expect("stopped; the results so far are kept")
        terminal.expect(">")
        terminal.send(f"call it{ENTER}")
        terminal.expect('"word": "once"')
        terminal.expect("Allow it? [y/N]")
        terminal.send(f"y{ENTER}")
        terminal.expect("The tool said: pong once")
        terminal.expect(">")
        terminal.send(f"/status{ENTER}")
        terminal.expect("Session: cli:direct")
        terminal.expect(">")
        terminal.send(CTRL_D)

        assert terminal.wait() == 0


def test_a_chat_outlives_its_gateway(nanobot: CommandLine) -> None:
    with running(nanobot) as process, nanobot.on_terminal("agent") as terminal:
        terminal.expect(">")
        process.kill()
        process.wait()
        terminal.send(f"say something{ENTER}")
        terminal.expect("no gateway runs here")
        terminal.expect(">")
        terminal.send(CTRL_D)

        assert terminal.wait() == 0


def test_a_session_is_deleted_by_the_gateway_that_has_it_in_memory(nanobot: CommandLine) -> None:
    """The file was gone, and the gateway went on with what it remembered."""
    with running(nanobot):
        nanobot("agent", "-m", "say first")
        nanobot("sessions", "delete", "cli:direct", "--yes")
        assert (
            "unknown session" in nanobot("sessions", "delete", "cli:direct", "--yes", code=1).stderr
        )
        nanobot("agent", "-m", "say second")
        assert "2 messages in context" in nanobot("agent", "-m", "/status").stdout
        records = json.loads(nanobot("sessions", "export", "cli:direct", "--json").stdout)
        assert [record["content"] for record in records] == ["say second", "second"]


def test_ctrl_c_stops_a_turn_whose_session_cannot_be_deleted_before(nanobot: CommandLine) -> None:
    with running(nanobot):
        process = subprocess.Popen(
            [*nanobot.command, "agent", "-m", "hang long"],
            env=nanobot.environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        assert process.stdout is not None
        with process.stdout as stdout:
            assert os.read(stdout.fileno(), 9) == b"It begins"
            told = nanobot("sessions", "delete", "cli:direct", "--yes", code=1).stderr
            assert "a turn is under way; stop it with /stop and try again" in told
            process.send_signal(signal.SIGINT)
            assert process.wait(LIMIT_S) == 130
        assert nanobot("agent", "-m", "say free").stdout == "free\n"
        nanobot("sessions", "delete", "cli:direct", "--yes")


@pytest.mark.parametrize(
    "options", [("--safe",), ("--without", "extras"), ("--profile", "night")], ids=" ".join
)
def test_beside_a_gateway_no_other_process_writes_its_sessions(
    nanobot: CommandLine, options: tuple[str, ...]
) -> None:
    with running(nanobot, "profiles: {night: {}}\n"):
        nanobot("agent", "-m", "say first")
        for command in (("agent", "-m", "say x"), ("sessions", "delete", "cli:direct", "--yes")):
            assert "owns the sessions" in nanobot(*options, *command, code=1).stderr
        assert len(nanobot("sessions", "list").stdout.splitlines()) == 2


def test_a_stale_socket_hides_no_agent(nanobot: CommandLine) -> None:
    with running(nanobot) as process:
        process.kill()
        process.wait()
    assert (nanobot.home / "gateway" / "control.sock").exists()

    assert nanobot("agent", "-m", "say alone").stdout == "alone\n"
    assert "no gateway runs here" in nanobot("gateway", "status", code=1).stderr


def test_channels_and_letters_are_told_with_and_without_a_gateway(nanobot: CommandLine) -> None:
    with running(nanobot):
        assert json.loads(nanobot("channels", "status", "--json").stdout) == []
        assert "No channel is installed" in nanobot("channels", "status").stdout
        assert nanobot("deadletters", "list").stdout == "No dead letters.\n"
    assert nanobot("deadletters", "list").stdout == "No dead letters.\n"


def test_a_gateway_without_channels_says_which_there_are(nanobot: CommandLine) -> None:
    pytest.importorskip("nanobot_webhook")
    with running(nanobot):
        config = CONFIG.replace("[scripted, extras]", "[scripted, webhook]")
        nanobot.configure(f"{config}{GATEWAY}channels: {{webhook: {{}}}}\n")
        told = nanobot("channels", "status").stdout

    assert "enabled after the gateway started: run nanobot gateway reload" in " ".join(told.split())


def test_a_channel_that_needs_no_section_is_enabled(nanobot: CommandLine) -> None:
    pytest.importorskip("nanobot_page")
    config = CONFIG.replace("[scripted, extras]", "[scripted, http, page]")
    for section, state in (
        ("", "enabled; the gateway is not running"),
        ("channels: {web: {enabled: false}}\n", "disabled"),
    ):
        nanobot.configure(f"{config}{GATEWAY}{section}")
        rows = json.loads(nanobot("channels", "status", "--json").stdout)
        assert {row["name"]: row["state"] for row in rows} == {"web": state}


def test_doctor_names_the_channels_of_the_gateway_that_have_failed(nanobot: CommandLine) -> None:
    pytest.importorskip("nanobot_telegram")
    config = CONFIG.replace("[scripted, extras]", "[scripted, telegram]")
    with running(nanobot, "channels: {telegram: {}}\n", config=config) as process:
        assert process.stderr is not None
        while "has failed" not in process.stderr.readline():
            pass
        found = json.loads(nanobot("doctor", "--json", code=1).stdout)
    failed = [each for each in found if each["name"] == "channel telegram"]
    assert [each["status"] for each in failed] == ["error"]
    assert "channels.telegram.token" in failed[0]["message"]


def test_standard_error_that_nobody_reads_holds_nobody_up(nanobot: CommandLine) -> None:
    fcntl = pytest.importorskip("fcntl")
    if not hasattr(fcntl, "F_SETPIPE_SZ"):
        pytest.skip("the size of a pipe cannot be set")
    with running(nanobot) as process:
        assert process.stderr is not None
        size = fcntl.fcntl(process.stderr, fcntl.F_SETPIPE_SZ, 4096)
        for _ in range(size // 40):  # each logs a line of more than 80 bytes
            assert asyncio.run(_turn(nanobot, "refuse")).error
        assert nanobot("agent", "-m", "say more").stdout == "more\n"
        nanobot("gateway", "stop")

        assert process.wait(LIMIT_S) == 0


async def _turn(nanobot: CommandLine, text: str) -> TurnOutcome:
    """Have the gateway answer, without a process for each message."""
    client = ControlClient(nanobot.home / "gateway")
    return await client.turn({"text": text, "session": "cli:direct"}, ignore_event)


def test_a_reload_leaves_the_level_that_the_command_line_asked_for(nanobot: CommandLine) -> None:
    with running(nanobot, options=["--debug"]) as process:
        assert process.stderr is not None
        nanobot("gateway", "reload")
        nanobot("gateway", "stop")

        assert "DEBUG" in process.stderr.read()


def test_a_reload_refuses_a_configuration_that_was_emptied(nanobot: CommandLine) -> None:
    with running(nanobot):
        file = nanobot.home / "config.yaml"
        former = file.read_text()
        for left in ("", "# all gone\n", "{}\n", "---\n", None):
            if left is None:
                file.unlink()
            else:
                file.write_text(left)
            told = nanobot("gateway", "reload", code=1).stderr
            assert f"cannot read configuration '{file}': the file is now empty or missing" in told
        file.write_text(former)
        # The plugins that the file enabled still answer.
        assert nanobot("agent", "-m", "call it").stdout == "The tool said: pong once\n"
        assert "nothing has changed" in nanobot("gateway", "reload").stdout


def test_agents_that_share_a_session_take_turns(nanobot: CommandLine) -> None:
    nanobot.configure(CONFIG)

    def say(_number: int) -> str:
        return nanobot("agent", "-s", "cli:r", "-m", "call it").stderr

    with ThreadPoolExecutor(3) as people:
        told = list(people.map(say, range(3)))

    shown = nanobot("sessions", "show", "cli:r", "--json")
    roles = [message["role"] for message in json.loads(shown.stdout)]
    assert roles == ["user", "assistant", "tool", "assistant"] * 3
    assert "repaired" not in "".join([*told, shown.stderr])


def test_a_reload_names_the_settings_that_it_changed(nanobot: CommandLine) -> None:
    with running(nanobot):
        file = nanobot.home / "config.yaml"
        changed = yaml.safe_load(file.read_text())
        changed["owner"] = ["cli:me"]
        changed.setdefault("tools", {})["approval"] = [{"tool": "*", "action": "deny"}]
        changed.setdefault("gateway", {})["host"] = "127.0.0.2"
        file.write_text(yaml.safe_dump(changed))

        told = nanobot("gateway", "reload").stdout

        assert told == "changed: owner, tools.approval\nrequires a restart: gateway.host\n"
        assert nanobot("gateway", "reload").stdout == "nothing has changed\n"


def test_a_reload_reports_what_config_check_finds(nanobot: CommandLine) -> None:
    with running(nanobot):
        file = nanobot.home / "config.yaml"
        wrong = yaml.safe_load(file.read_text())
        wrong["tols"] = {"timeout_s": 5}
        wrong["agents"]["defaults"]["provider"] = "scriptd"
        file.write_text(yaml.safe_dump(wrong))

        found = nanobot("config", "check", code=1).stderr.splitlines()
        reported = nanobot("gateway", "reload", code=1).stdout

        assert any("tols" in line for line in found)
        assert any("scriptd" in line for line in found)
        messages = [line.partition(": ")[2] for line in found]
        assert [each for each in messages if each not in reported] == []
        assert "changed: agents.defaults.provider" in reported


def test_a_reload_that_fails_leaves_the_log_as_it_was(nanobot: CommandLine) -> None:
    with running(nanobot) as process:
        assert process.stderr is not None
        nanobot.configure(CONFIG.replace("policy: listed", "policy: listed, required: [absent]"))
        assert "absent" in nanobot("gateway", "reload", code=1).stderr
        nanobot.configure(CONFIG + GATEWAY)
        nanobot("agent", "-m", "refuse", code=1)
        nanobot("gateway", "stop")

        assert "session=cli:direct" in process.stderr.read()


def test_the_end_of_the_log_is_shown(nanobot: CommandLine) -> None:
    assert "no log at" in nanobot("gateway", "logs", code=1).stderr
    file = nanobot.home / "logs" / "nanobot.log"
    file.parent.mkdir(exist_ok=True)
    file.write_text("".join(f"line {number}\n" for number in range(100)))

    assert nanobot("gateway", "logs", "-n", "2").stdout == "line 98\nline 99\n"
    assert len(nanobot("gateway", "logs").stdout.splitlines()) == 50


def test_the_log_is_followed_over_its_rotation(nanobot: CommandLine) -> None:
    file = nanobot.home / "logs" / "nanobot.log"
    file.parent.mkdir(exist_ok=True)
    file.write_text("first\n")
    process = subprocess.Popen(
        [*nanobot.command, "gateway", "logs", "-f"],
        env={**nanobot.environ, "PYTHONUNBUFFERED": "1"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    with process.stdout as stdout:
        try:
            assert stdout.readline() == "first\n"
            with file.open("a") as opened:
                opened.write("hal")
                opened.flush()
                time.sleep(0.1)  # whatever it reads now is half a line
                opened.write("ves\n")
            assert stdout.readline() == "halves\n"
            file.rename(file.with_suffix(".1"))
            file.write_text("after a rotation, and longer than all that came before it\n")
            assert stdout.readline().startswith("after a rotation")
            process.send_signal(signal.SIGINT)
            assert process.wait(LIMIT_S) == 0
        finally:
            process.kill()
            process.wait()


def test_the_service_file_is_printed_or_written(nanobot: CommandLine) -> None:
    printed = nanobot("gateway", "install-service", "--print").stdout
    unit = Path(nanobot.environ["HOME"]) / ".config" / "systemd" / "user" / "nanobot.service"
    if sys.platform != "linux":
        return
    assert not unit.exists()
    assert f'Environment="NANOBOT_HOME={nanobot.home}"' in printed
    assert f"EnvironmentFile=-{nanobot.home}/gateway.env\n" in printed
    # A program such as kill is not on each system, and reports no error of the configuration.
    assert '"nanobot_core" "gateway" "reload"\n' in printed

    told = nanobot("gateway", "install-service").stdout
    assert unit.read_text() == printed
    assert f"{nanobot.home}/gateway.env" in told


def test_the_service_file_keeps_the_options_before_the_command(
    nanobot: CommandLine, tmp_path: Path
) -> None:
    file = tmp_path / "other.yaml"
    file.write_text(CONFIG + "profiles: {night: {}}\n")
    file.chmod(0o600)
    options = ("--config", str(file), "--profile", "night", "--without", "extras")
    printed = nanobot(*options, "gateway", "install-service", "--print").stdout

    words = " ".join(f'"{word}"' for word in [*options, "gateway", "run"])
    assert words in printed


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not here")
def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    home = tmp_path / 'a "strange" 100% $HOME\\folder'
    home.mkdir()
    found = service_file(Path(sys.executable), home, ["--profile", "a b$c%d"], 12.5, "linux")
    unit = tmp_path / "nanobot.service"
    unit.write_text(found.content)
    done = subprocess.run(
        ["systemd-analyze", "--user", "verify", str(unit)],
        env={**os.environ, "XDG_RUNTIME_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )

    assert "nanobot.service" not in done.stderr, done.stderr
    assert "TimeoutStopSec=43\n" in found.content
    assert '"a b$$c%%d"' in found.content


def test_the_launch_agent_is_a_property_list(tmp_path: Path) -> None:
    import plistlib

    found = service_file(Path("/py"), tmp_path / "<&>", ["--config", "a&b"], 30, "darwin")
    content = plistlib.loads(found.content.encode())

    assert content["ProgramArguments"][:5] == ["/py", "-m", "nanobot_core", "--config", "a&b"]
    assert content["EnvironmentVariables"] == {"NANOBOT_HOME": str(tmp_path / "<&>")}
    assert content["ExitTimeOut"] == 60


@pytest.mark.promise(20, 35)
def test_plugins_are_shown_and_changed_in_the_running_gateway(nanobot: CommandLine) -> None:
    with running(nanobot):
        nanobot("agent", "-m", "hello")
        before = json.loads(nanobot("plugins", "status", "--json").stdout)
        table = nanobot("plugins", "top").stdout
        costs = json.loads(nanobot("plugins", "top", "--json").stdout)
        in_chat = nanobot("agent", "-m", "/plugins list").stdout
        reloaded = nanobot("plugins", "reload", "scripted").stdout
        disabled = nanobot("plugins", "disable", "scripted").stdout
        after = json.loads(nanobot("plugins", "list", "--json").stdout)["plugins"]

    states = [{each["id"]: each["state"] for each in reports} for reports in (before, after)]
    assert [each["scripted"] for each in states] == ["active", "disabled"]
    assert table.startswith("plugin\tstart ms\t")
    (cost,) = (each for each in costs if each["id"] == "scripted")
    assert cost["start_ms"] > 0
    assert "scripted" in in_chat
    assert ": active" in in_chat
    assert "reloaded: scripted" in reloaded
    assert "gateway: disabled: scripted" in disabled
