"""A root that is read-only, as in a container: only nanobot's home can be written.

The tests use a mount namespace, which the system must allow.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from tests.integration.install.packages import LIMIT_S, TOOL, Bench, Package, make_base

pytestmark = pytest.mark.timeout(240)

UNSHARE = ("unshare", "--mount", *(() if os.geteuid() == 0 else ("--user", "--map-root-user")))
# Mounts everything read-only that a process could write to, except the first argument.
SEAL = """\
set -e
mount --make-rprivate /
mount --bind "$1" "$1"
for folder in / /tmp /var/tmp /usr/tmp /dev/shm; do
    if mountpoint -q "$folder"; then mount -o remount,bind,ro "$folder"; fi
done
shift
exec "$@"
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    """An environment with a plugin."""
    for name in ("pip", "hatchling", "nanobot_offline"):
        pytest.importorskip(name, reason=f"{name} is not installed here")
    folder = tmp_path_factory.mktemp("image")
    bench = Bench.create(folder, make_base(folder / "site", "nanobot-offline"))
    bench.offer(Package(name="nanobot-acme"))
    bench.nanobot("plugins", "add", "nanobot-acme", "--yes")
    return bench


@pytest.fixture
def image(installed: Bench, tmp_path: Path) -> Bench:
    """The environment as a container sees it, with a home of its own."""
    if not shutil.which("unshare") or not shutil.which("mountpoint"):
        pytest.skip("unshare and mountpoint are not installed here")
    home = tmp_path / "home"
    shutil.copytree(installed.home, home)
    bench = replace(
        installed, home=home, variables={**installed.variables, "NANOBOT_HOME": str(home)}
    )
    if sealed(bench, "true").returncode != 0:
        pytest.skip("this system does not allow a mount namespace")
    assert sealed(bench, "touch", str(bench.prefix / "file")).returncode != 0
    return bench


def sealed(bench: Bench, *command: str) -> subprocess.CompletedProcess[str]:
    """Run a command that can write only to nanobot's home."""
    return subprocess.run(
        [*UNSHARE, "sh", "-c", SEAL, "sh", str(bench.home), *command],
        env=bench.variables,
        cwd="/",
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )


def nanobot(bench: Bench, *arguments: str, code: int = 0) -> str:
    """Run a command of nanobot in the image; return what it prints."""
    done = sealed(bench, str(bench.python), "-P", "-m", "nanobot_core", *arguments)
    assert done.returncode == code, (done.stdout, done.stderr)
    return done.stdout + done.stderr


@pytest.mark.promise(18)
def test_in_an_image_each_refusal_has_the_command_that_does_the_same(image: Bench) -> None:
    pip = f"add to its Dockerfile: RUN {image.python} -m pip"

    add = nanobot(image, "plugins", "add", "nanobot-other", "--yes", code=1)
    remove = nanobot(image, "plugins", "remove", "acme", "--yes", code=1)
    upgrade = nanobot(image, "plugins", "upgrade", "acme", "--yes", code=1)
    nanobot(image, "config", "set", "plugins.install", '["nanobot-acme>=1", "nanobot-other>=2"]')
    sync = nanobot(image, "plugins", "sync", "--yes", code=1)

    assert f"{pip} install nanobot-other" in add
    assert f"{pip} uninstall --yes nanobot-acme" in remove
    assert f"{pip} install --upgrade nanobot-acme" in upgrade
    assert f"{pip} install 'nanobot-other>=2'" in sync


def test_in_an_image_that_is_complete_there_is_nothing_to_synchronise(image: Bench) -> None:
    nanobot(image, "plugins", "lock")

    assert "nothing to install" in nanobot(image, "plugins", "sync")
    assert "nothing to install" in nanobot(image, "plugins", "sync", "--locked")


def test_in_an_image_a_turn_runs_and_a_single_file_is_a_plugin(image: Bench) -> None:
    file = image.home / "dice.py"
    file.write_text(TOOL.format(name="ask_dice"))

    nanobot(image, "plugins", "add", str(file), "--yes")
    said = nanobot(image, "agent", "-m", 'ask_acme {"city": "Bonn"} and ask_dice {"city": "Oslo"}')
    nanobot(image, "plugins", "remove", "dice", "--yes")

    assert "Bonn" in said
    assert "Oslo" in said
    assert not list((image.home / "cache" / "tmp").iterdir())
