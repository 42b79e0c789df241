"""A change that fails or is killed at any step leaves everything as it was."""

from __future__ import annotations

import signal
import subprocess
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.integration.install.packages import LIMIT_S, TOOL, Bench, Package

_STOPPING = """\
import os, sys
from nanobot_core.cli.progress import Bar
step = Bar.step
def stop(self, name):
    step(self, name)
    if name == {at!r}:
        {action}
Bar.step = stop
sys.argv[1:] = {arguments!r}
from nanobot_core.cli import main
main()
"""
_HALF_INSTALLED = """\
import os, shutil, sys
from pathlib import Path
from nanobot_core.install.installer import Pip
install = Pip.install
def stop(self, pins, named):
    install(self, pins, named)
    site = Path({site!r})
    (site / "nanobot_acme-1.0.dist-info" / "RECORD").unlink()
    shutil.move(site / "nanobot_acme", site / "~anobot_acme")
    os.kill(os.getpid(), 9)
Pip.install = stop
sys.argv[1:] = {arguments!r}
from nanobot_core.cli import main
main()
"""
STEPS = [
    pytest.param("installing", marks=pytest.mark.long),
    pytest.param("examining", marks=pytest.mark.long),
    "starting",
]
KILL = "os.kill(os.getpid(), 9)"
NO_SPACE = "raise OSError(28, 'No space left on device', 'a file')"

# Each test runs several installers.
pytestmark = pytest.mark.timeout(240)


def stopped(bench: Bench, at: str, action: str, arguments: Sequence[str], code: int) -> str:
    """Run a command that does `action` when it begins a step; return what it reports."""
    program = _STOPPING.format(at=at, action=action, arguments=list(arguments))
    return bench.run("-c", program, code=code).stderr


@pytest.fixture
def acme(bench: Bench) -> str:
    """A plugin with a dependency, a program and a configuration that names others."""
    bench.config.write_text("# mine\nplugins:\n  enabled: [other]  # kept\n")
    bench.offer(Package(name="acme-library", code="", requires=()))
    bench.offer(Package(name="nanobot-acme", requires=("acme-library",)))
    return "nanobot-acme"


@pytest.mark.parametrize("at", STEPS)
def test_a_failure_at_each_step_is_undone(bench: Bench, acme: str, at: str) -> None:
    before = bench.digests()

    error = stopped(bench, at, NO_SPACE, ["plugins", "add", acme, "--yes"], 1)

    assert "cannot write a file: No space left on device" in error
    assert bench.digests() == before
    assert not (bench.home / "installing").exists()


@pytest.mark.parametrize("at", STEPS)
def test_a_kill_at_each_step_is_reported_and_undone_by_the_next_change(
    bench: Bench, acme: str, at: str
) -> None:
    before = bench.digests()

    stopped(bench, at, KILL, ["plugins", "add", acme, "--yes"], -signal.SIGKILL)
    listed = bench.nanobot("plugins", "list")
    repaired = bench.nanobot("plugins", "remove", "absent", "--yes", code=1)

    assert "interrupted: install acme-library==1.0, nanobot-acme==1.0" in listed.stderr
    assert "undone first" in repaired.stderr
    assert "plugin 'absent': it is not installed" in repaired.stderr
    assert bench.digests() == before
    assert "interrupted" not in bench.nanobot("plugins", "list").stderr


def test_a_half_finished_installation_is_undone(bench: Bench, acme: str) -> None:
    before = bench.digests()
    arguments = ["plugins", "add", acme, "--yes"]
    program = _HALF_INSTALLED.format(site=str(bench.site), arguments=arguments)

    bench.run("-c", program, code=-signal.SIGKILL)
    bench.nanobot("plugins", "remove", "absent", "--yes", code=1)

    assert bench.digests() == before


@pytest.mark.long
def test_after_an_interruption_the_same_command_works(bench: Bench, acme: str) -> None:
    arguments = ["plugins", "add", acme, "--yes"]
    stopped(bench, "starting", KILL, arguments, -signal.SIGKILL)

    bench.nanobot(*arguments)

    assert "acme\tenabled" in bench.nanobot("plugins", "list").stdout


@pytest.mark.parametrize("action", [pytest.param(NO_SPACE, marks=pytest.mark.long), KILL])
def test_an_upgrade_that_fails_restores_the_exact_files(
    bench: Bench, acme: str, action: str
) -> None:
    bench.nanobot("plugins", "add", acme, "--yes")
    (bench.site / "nanobot_acme" / "__pycache__").mkdir()
    compiled = bench.site / "nanobot_acme" / "__pycache__" / "plugin.cpython-311.pyc"
    compiled.write_bytes(b"as it was")
    bench.offer(
        Package(name="nanobot-acme", version="2.0", files={"nanobot_acme/more/data.txt": "new"})
    )
    before = bench.digests()

    code = 1 if action == NO_SPACE else -signal.SIGKILL
    stopped(bench, "starting", action, ["plugins", "upgrade", "acme", "--yes"], code)
    if action == KILL:
        assert bench.digests() != before
        bench.nanobot("plugins", "remove", "absent", "--yes", code=1)

    assert bench.digests() == before


@pytest.mark.long
def test_a_removal_that_is_killed_is_undone(bench: Bench, acme: str) -> None:
    bench.nanobot("plugins", "add", acme, "--yes")
    before = bench.digests()
    program = (
        "import os, sys; from nanobot_core.install import removal;"
        "removal.forget = lambda *_: os.kill(os.getpid(), 9);"
        "sys.argv[1:] = ['plugins', 'remove', 'acme', '--yes', '--with-dependencies'];"
        "from nanobot_core.cli import main; main()"
    )

    bench.run("-c", program, code=-signal.SIGKILL)
    assert not (bench.site / "nanobot_acme").exists()
    bench.nanobot("plugins", "remove", "absent", "--yes", code=1)

    assert bench.digests() == before


@pytest.mark.long
def test_ctrl_c_is_undone(bench: Bench, acme: str) -> None:
    before = bench.digests()

    stopped(bench, "examining", "raise KeyboardInterrupt", ["plugins", "add", acme, "--yes"], 130)

    assert bench.digests() == before


@pytest.mark.long
def test_a_second_command_waits_for_no_one_and_says_so(bench: Bench, tmp_path: Path) -> None:
    wheel = bench.offer(Package(name="nanobot-acme", code=TOOL.format(name="ask_acme")))
    ready = tmp_path / "ready"
    wait = f"open({str(ready)!r}, 'w').close(); sys.stdin.read()"
    arguments = ["plugins", "add", str(wheel), "--yes"]
    program = _STOPPING.format(at="installing", action=wait, arguments=arguments)
    first = subprocess.Popen(
        [str(bench.python), "-P", "-c", program],
        env=bench.variables,
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    begun = threading.Event()
    for _ in range(LIMIT_S * 100):
        if ready.exists() or begun.wait(0.01):
            break

    second = bench.nanobot(*arguments, code=1)
    listed = bench.nanobot("plugins", "list")
    first.communicate(timeout=LIMIT_S)

    assert "another command is changing this environment" in second.stderr
    assert "interrupted" not in listed.stderr
    assert first.returncode == 0
