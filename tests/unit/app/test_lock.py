"""One gateway for a data folder."""

from __future__ import annotations

import asyncio
import os
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from nanobot_core.app import lock as lock_module
from nanobot_core.app.lock import (
    GatewayLockError,
    gateway_lock,
    is_running,
    running_pid,
)

pytestmark = pytest.mark.anyio
HOLD = """
import sys
from pathlib import Path
from nanobot_core.app.lock import gateway_lock
with gateway_lock(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lock_module, "PROBE_GRACE_S", 0.2)


def test_another_process_is_named_and_its_death_frees_the_folder(tmp_path: Path) -> None:
    folder = tmp_path / "gateway"
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        assert running_pid(folder) == process.pid
        with (
            pytest.raises(GatewayLockError, match=f"with process id {process.pid} already uses"),
            gateway_lock(folder),
        ):
            pass
        process.kill()
        process.wait()
    assert (folder / "pid").exists()
    assert (is_running(folder), running_pid(folder)) == (False, None)

    with gateway_lock(folder):
        pass


async def test_the_lock_is_released_by_another_thread_than_took_it(tmp_path: Path) -> None:
    lock = gateway_lock(tmp_path / "g")
    thread = threading.Thread(target=lock.__enter__)
    thread.start()
    thread.join()
    assert running_pid(tmp_path / "g") == os.getpid()

    await asyncio.to_thread(lock.__exit__, None, None, None)

    assert not is_running(tmp_path / "g")


def test_a_look_whether_one_runs_does_not_hold_up_a_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lock_module, "PROBE_GRACE_S", 5.0)
    folder = tmp_path / "gateway"
    with gateway_lock(folder):
        pass
    done = threading.Event()

    def look() -> None:
        while not done.is_set():
            is_running(folder)

    thread = threading.Thread(target=look)
    thread.start()
    try:
        for _ in range(20):
            with gateway_lock(folder):
                pass
    finally:
        done.set()
        thread.join()


def test_nobody_else_can_look_into_the_folder(tmp_path: Path) -> None:
    (tmp_path / "gateway").mkdir(mode=0o755)
    with gateway_lock(tmp_path / "gateway"):
        assert stat.S_IMODE((tmp_path / "gateway").stat().st_mode) == 0o700
        assert stat.S_IMODE((tmp_path / "gateway" / "lock").stat().st_mode) == 0o600


def test_a_damaged_file_costs_only_the_number(tmp_path: Path) -> None:
    with gateway_lock(tmp_path):
        (tmp_path / "pid").write_text('["x"]')

        assert is_running(tmp_path)
        assert running_pid(tmp_path) is None
        with (
            pytest.raises(GatewayLockError, match="that has just been started"),
            gateway_lock(tmp_path),
        ):
            pass


def test_a_folder_that_does_not_exist_has_no_gateway(tmp_path: Path) -> None:
    assert not is_running(tmp_path / "nowhere")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(os.geteuid() == 0, reason="the superuser may write everywhere")
def test_a_home_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    try:
        with (
            pytest.raises(GatewayLockError, match="Permission denied; let its account write"),
            gateway_lock(tmp_path / "gateway"),
        ):
            pass
    finally:
        tmp_path.chmod(0o700)


def test_a_file_in_the_way_is_told(tmp_path: Path) -> None:
    (tmp_path / "gateway").write_text("")

    with (
        pytest.raises(GatewayLockError, match="File exists"),
        gateway_lock(tmp_path / "gateway"),
    ):
        pass
