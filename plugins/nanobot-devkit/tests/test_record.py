"""`plugins record` writes the hook calls of real runs."""

from __future__ import annotations

import json
import os
import resource
import signal
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from nanobot_core import ContentReady, HookCalled, JsonObject, TurnInfo, on
from nanobot_core.testing import FakePluginContext, Replayer, read_recording
from nanobot_devkit.recorder import Recorder

Run = Callable[..., subprocess.CompletedProcess[str]]
LIMIT_S = 50.0
KEY = "qx7-Zk93hhTw-2b"
KILLED = """
import asyncio, os, signal, sys
from pathlib import Path
from nanobot_core import Nanobot
from nanobot_devkit.recorder import Recorder

async def main():
    async with Nanobot.from_config(home=Path(sys.argv[1])) as bot:
        await bot.plugins.register(Recorder(Path(sys.argv[2])), "recorder")
        await bot.run('list_dir {"path": "."}')
        await bot.run("hello")
        async with asyncio.timeout(30):  # calls are recorded later than they are made
            while '"hook": "finalize_content"' not in Path(sys.argv[2]).read_text():
                await asyncio.sleep(0.01)
        os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main())
"""
TURN = TurnInfo(
    id="t1", session_key="cli:direct", channel="cli", chat_id="direct", sender_id="me", source="cli"
)


def content(number: int, text: str) -> HookCalled:
    event = ContentReady(turn=TURN, content=text)
    return HookCalled(number=number, hook="finalize_content", revision=1, event=event, answer=text)


def configure(home: Path, **settings: object) -> None:
    home.mkdir(mode=0o700, exist_ok=True)
    file = home / "config.json"
    file.write_text(json.dumps(settings), "utf-8")
    file.chmod(0o600)


@pytest.mark.promise(43)
@pytest.mark.anyio
async def test_a_run_is_recorded_without_secrets_and_replayed(
    nanobot: Run, tmp_path: Path, nanobot_replay: Replayer
) -> None:
    pytest.importorskip("nanobot_offline")
    pytest.importorskip("nanobot_files")
    configure(tmp_path / "home", providers={"custom": {"api_key": KEY, "api_base": "http://x/v1"}})
    arguments: JsonObject = {
        "path": KEY,
        "api_key": "unknown-to-the-configuration",
        "headers": {"Authorization": "Bearer abcdef123456"},
    }
    said = f"list_dir {json.dumps(arguments)} and Authorization: Bearer abcdef123456"

    child = nanobot("plugins", "record", "calls.jsonl", "--", "nanobot", "agent", "-m", said)

    assert child.returncode == 0, child.stderr
    assert "recorded to calls.jsonl" in child.stderr
    file = tmp_path / "calls.jsonl"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    text = file.read_text("utf-8")
    assert KEY not in text
    assert "abcdef123456" not in text
    found = read_recording(file)
    hooks = [call.hook for call in found.calls]
    assert found.problems == ()
    for hook in ("before_turn", "rewrite_tools", "wrap_model_call", "finalize_content"):
        assert hook in hooks
    calls = [call.event for call in found.calls if call.hook == "before_execute_tools"]
    assert "unknown-to-the-configuration" not in json.dumps(calls)

    replay = await nanobot_replay(file, Unchanging())

    assert (replay.problems, replay.differences) == ((), ())
    assert len(replay.calls) == hooks.count("finalize_content") > 0


class Unchanging:
    @on.finalize_content
    def finalize_content(self, event: ContentReady) -> str | None:
        return None


@pytest.mark.promise(43)
def test_a_gateway_is_recorded(nanobot: Run, tmp_path: Path) -> None:
    pytest.importorskip("nanobot_offline")
    home = tmp_path / "home"
    configure(home)
    file = tmp_path / "calls.jsonl"
    command = [sys.executable, "-m", "nanobot_core", "plugins", "record", str(file)]
    with subprocess.Popen([*command, "--", "gateway"], stdout=subprocess.DEVNULL) as gateway:
        try:
            tries = (nanobot("gateway", "status").returncode for _ in range(60))
            assert any(code == 0 for code in tries), "the gateway does not start"
            child = nanobot("agent", "-m", "hello")
        finally:
            gateway.send_signal(signal.SIGTERM)
            gateway.wait(LIMIT_S)

    assert child.returncode == 0, child.stderr
    assert "after_turn" in [call.hook for call in read_recording(file).calls]


@pytest.mark.promise(43)
def test_what_a_killed_program_recorded_is_read(tmp_path: Path) -> None:
    pytest.importorskip("nanobot_offline")
    file = tmp_path / "calls.jsonl"
    command = [sys.executable, "-c", KILLED, str(tmp_path / "home"), str(file)]

    child = subprocess.run(command, timeout=LIMIT_S, check=False, capture_output=True)

    assert child.returncode == -signal.SIGKILL, child.stderr
    found = read_recording(file)
    assert "finalize_content" in [call.hook for call in found.calls]
    assert all("incomplete" in problem for problem in found.problems)


def test_an_existing_file_is_not_overwritten(nanobot: Run, tmp_path: Path) -> None:
    (tmp_path / "calls.jsonl").write_text("mine", "utf-8")

    child = nanobot("plugins", "record", "calls.jsonl", "--", "agent", "-m", "hello")

    assert child.returncode == 1
    assert "exists already" in child.stderr
    assert (tmp_path / "calls.jsonl").read_text("utf-8") == "mine"


def test_the_exit_code_is_that_of_the_command(nanobot: Run) -> None:
    child = nanobot("plugins", "record", "calls.jsonl", "--", "agent", "--no-such-option")

    assert child.returncode == 2
    assert "nothing was recorded" in child.stderr


def test_a_recording_ends_at_its_limit(tmp_path: Path) -> None:
    file = tmp_path / "calls.jsonl"
    context = FakePluginContext(tmp_path)
    recorder = Recorder(file, limit_bytes=5_000)
    recorder.start(context)

    for number in range(1, 100):
        recorder.after_hook(content(number, "x" * 100))
    recorder.stop(context, "shutdown")

    found = read_recording(file)
    assert len(found.calls) > 1
    assert "limit of 5000 bytes" in found.problems[0]
    assert file.stat().st_size < 5_200


@contextmanager
def smallest_files(limit_bytes: int) -> Iterator[None]:
    """Let writing fail behind a size, as on a full disk."""
    former = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit_bytes, former[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, former)


@pytest.mark.promise(43)
def test_a_full_disk_ends_the_recording_after_a_whole_line(tmp_path: Path) -> None:
    file = tmp_path / "calls.jsonl"
    context = FakePluginContext(tmp_path)
    recorder = Recorder(file)

    with smallest_files(4_000):
        recorder.start(context)
        for number in range(1, 100):
            recorder.after_hook(content(number, "x" * 100))
    recorder.after_hook(content(100, "the disk has space again"))
    recorder.stop(context, "shutdown")

    found = read_recording(file)
    assert len(found.calls) > 1
    assert found.problems == ()
    assert file.read_bytes().endswith(b"\n")


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    file = tmp_path / "calls.jsonl"
    file.symlink_to(tmp_path / "elsewhere")
    recorder = Recorder(file)

    recorder.start(context := FakePluginContext(tmp_path))
    recorder.after_hook(content(1, "x"))
    recorder.stop(context, "shutdown")

    assert not os.path.lexists(tmp_path / "elsewhere")
