"""The gateway as a process: it starts, ends in time, and leaves nothing undone."""

from __future__ import annotations

import asyncio
import os
import signal
import stat
from pathlib import Path

import pytest

from nanobot_core.app.client import ControlClient
from tests.gateways import GatewayProcess, Platform, running, turn_begun, until, write_config

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_an_idle_gateway_ends_well_on_a_signal(
    tmp_path: Path, number: signal.Signals
) -> None:
    async with Platform() as platform:
        write_config(tmp_path / "home", platform)
        async with GatewayProcess(tmp_path / "home") as gateway:
            await platform.say("say hello")
            await platform.shows("hello")
            gateway.send(number)

            assert await gateway.ended() == 0
    folder = tmp_path / "home" / "gateway"
    assert not (folder / "control.sock").exists()
    assert not (folder / "pid").exists()
    assert "ERROR" not in gateway.errors, gateway.errors


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_turn_that_a_stop_breaks_off_is_answered_once_by_the_next_process(
    tmp_path: Path, number: signal.Signals
) -> None:
    home = tmp_path / "home"
    async with Platform() as platform:
        write_config(home, platform)
        async with GatewayProcess(home) as gateway:
            # Longer than the grace time; reading may be repeated, so the turn goes on later.
            await platform.say('call wait_beside {"seconds": 4}')
            await until(lambda: "wait_beside" in _sessions(home))
            gateway.send(number)

            assert await gateway.ended() == 0
        assert platform.texts() == []
        async with GatewayProcess(home):
            await platform.shows("The tool said: waited 4")
            await platform.say("say after")
            await platform.shows("after")
        assert platform.texts() == ["The tool said: waited 4", "after"]


async def test_a_turn_that_ends_within_the_grace_time_is_answered_before_the_end(
    tmp_path: Path,
) -> None:
    home = tmp_path / "home"
    async with Platform() as platform:
        write_config(home, platform, gateway={"grace_s": 30})
        async with GatewayProcess(home) as gateway:
            await platform.say('call wait_beside {"seconds": 1}')
            await until(lambda: "wait_beside" in _sessions(home))
            gateway.send(signal.SIGTERM)

            assert await gateway.ended() == 0
        assert platform.texts() == ["The tool said: waited 1"]


async def test_a_second_signal_waits_for_no_turn(tmp_path: Path) -> None:
    home = tmp_path / "home"
    async with Platform() as platform:
        write_config(home, platform, gateway={"grace_s": 3600})
        async with GatewayProcess(home) as gateway:
            await platform.say("hang")
            await turn_begun(home)
            gateway.send(signal.SIGINT)
            await _is_ending(home)
            gateway.send(signal.SIGINT)

            assert await gateway.ended() == 0


@pytest.mark.parametrize(
    "channel", [{"hangs_in_stop": True}, {"service": "hang"}], ids=["channel", "service"]
)
async def test_what_hangs_in_its_stop_does_not_hold_up_the_end(
    tmp_path: Path, channel: dict[str, object]
) -> None:
    home = tmp_path / "home"
    async with Platform() as platform:
        write_config(home, platform, chatty=channel)
        async with GatewayProcess(home) as gateway:
            await platform.say("say hello")
            await platform.shows("hello")
            gateway.send(signal.SIGTERM)

            assert await gateway.ended(30) == 0


async def test_a_signal_during_the_start_ends_it(tmp_path: Path) -> None:
    home = tmp_path / "home"
    slow = tmp_path / "slow.py"
    slow.write_text(
        "import asyncio\n"
        "from nanobot_core import on\n"
        "@on.before_turn\n"
        "def before_turn(event): ...\n"
        "@on.start\n"
        "async def start(ctx):\n"
        "    ctx.logger.info('the start waits')\n"
        "    await asyncio.Event().wait()\n"
    )
    write_config(home, plugins=[slow])
    gateway = GatewayProcess(home)
    await gateway.launch()
    await gateway.hear("the start waits")
    gateway.send(signal.SIGTERM)

    assert await gateway.ended() == 0
    assert "gateway ready" not in gateway.errors
    assert not (home / "gateway" / "pid").exists()


async def test_a_hangup_signal_makes_it_read_its_configuration_again(tmp_path: Path) -> None:
    home = tmp_path / "home"
    write_config(home)
    # By default, the signal would end the tests if the gateway did not handle it.
    former = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        async with running(home) as bot:
            write_config(home, owner=["8"])
            os.kill(os.getpid(), signal.SIGHUP)
            await until(lambda: bot.loaded.settings.owner == ["8"])
    finally:
        signal.signal(signal.SIGHUP, former)


async def test_a_second_gateway_is_refused_and_told_of_the_first(tmp_path: Path) -> None:
    home = tmp_path / "home"
    write_config(home)
    async with GatewayProcess(home) as first:
        second = GatewayProcess(home)
        with pytest.raises(AssertionError):
            await second.__aenter__()

        assert f"a gateway with process id {first.pid} already uses" in second.errors
        assert (await ControlClient(home / "gateway").call("status")) is not None


async def test_a_killed_gateway_stands_in_nobodys_way(tmp_path: Path) -> None:
    home = tmp_path / "home"
    async with Platform() as platform:
        write_config(home, platform)
        async with GatewayProcess(home) as first:
            os.kill(first.pid, signal.SIGKILL)
            await first.ended()
        assert (home / "gateway" / "control.sock").exists()
        client = ControlClient(home / "gateway")
        assert (client.is_there, client.pid) == (False, None)
        async with GatewayProcess(home) as second:
            assert client.pid == second.pid
            await platform.say("say alive")
            await platform.shows("alive")


async def test_socket_and_folder_are_for_their_owner_alone(tmp_path: Path) -> None:
    home = tmp_path / "home"
    write_config(home)
    (home / "gateway").mkdir(mode=0o755)
    async with GatewayProcess(home):
        folder = home / "gateway"
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert stat.S_IMODE((folder / "control.sock").stat().st_mode) == 0o600


async def test_a_home_with_a_long_path_has_its_socket_too(tmp_path: Path) -> None:
    home = tmp_path / ("long-" * 20) / ("path-" * 20)
    write_config(home)
    async with GatewayProcess(home) as gateway:
        client = ControlClient(home / "gateway")
        found = await client.call("status")

        assert isinstance(found, dict)
        assert found["pid"] == gateway.pid


async def test_a_folder_that_cannot_be_used_is_told_plainly(tmp_path: Path) -> None:
    home = tmp_path / "home"
    write_config(home)
    (home / "gateway").write_text("a file in the way")
    gateway = GatewayProcess(home)
    with pytest.raises(AssertionError):
        await gateway.__aenter__()

    assert f"Error: the gateway cannot use '{home / 'gateway'}': File exists" in gateway.errors
    assert "Traceback" not in gateway.errors


async def _is_ending(home: Path) -> None:
    """Wait until the gateway says that it takes nothing more in."""
    client = ControlClient(home / "gateway")
    async with asyncio.timeout(10):
        while True:
            found = await client.call("status")
            assert isinstance(found, dict)
            if not found["ready"]:
                return
            await asyncio.sleep(0.02)


def _sessions(home: Path) -> str:
    files = (home / "workspace" / "sessions").rglob("*")
    return "".join(file.read_text() for file in files if file.is_file())
