"""Permissions and owners of files in Landlock: changed in the workspace, and nowhere else."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from nanobot_shell.landlock import Landlock
from nanobot_shell.launcher import MACHINES
from nanobot_shell.view import RECORDS, View

if TYPE_CHECKING:
    from conftest import Require

SYSTEM_PYTHON = Path("/usr/bin/python3")
needs_python = pytest.mark.skipif(not SYSTEM_PYTHON.exists(), reason="no python3 in /usr/bin")
CALLS = """
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
N, outside, here = MACHINE, b'OUTSIDE', -100
def tried(name, *arguments):
    if name in N:
        done = libc.syscall(*[ctypes.c_long(a) if isinstance(a, int) else a
                              for a in (N[name], *arguments)])
        print(name, done, ctypes.get_errno() if done else 0)
held, folder = os.open(outside, os.O_PATH), os.open(os.path.dirname(outside), os.O_PATH)
base = os.path.basename(outside)
os.symlink(outside, 'work/link')
for path in (outside, b'work/link', b'work/../../' + base, b'/proc/self/fd/%d' % held,
             b'/proc/self/root' + outside, b'/proc/thread-self/fd/%d' % held):
    tried('chmod', path, 0o644)
    tried('fchmodat', here, path, 0o644)
    tried('fchmodat2', here, path, 0o644, 0)
    tried('chown', path, os.getuid(), os.getgid())
    tried('fchownat', here, path, os.getuid(), os.getgid(), 0)
tried('fchmodat', folder, base, 0o644)
tried('fchmodat2', folder, base, 0o644, 0x100)
tried('fchmodat2', held, b'', 0o644, 0x1000)
tried('fchmodat2', here, b'work', 0o777, 0x800)
tried('fchmod', held, 0o644)
tried('fchmod', 0, 0o666)
tried('fchown', held, os.getuid(), os.getgid())
tried('lchown', outside, os.getuid(), os.getgid())
tried('chmod', 1, 0o644)
tried('fchmodat', here, 1, 0o644)
for path in (outside, b'work'):
    tried('setxattr', path, b'system.posix_acl_access', b'', 0, 0)
    tried('removexattr', path, b'system.posix_acl_access')
"""
RACE = """
import os, threading
outside = 'OUTSIDE'
os.makedirs('work/d')
open('work/d/key', 'w').close()
os.symlink(os.path.dirname(outside), 'work/l')
ended = threading.Event()
def swap():
    while not ended.is_set():
        os.rename('work/d', 'work/x'); os.rename('work/l', 'work/d')
        os.rename('work/d', 'work/l'); os.rename('work/x', 'work/d')
swapping = threading.Thread(target=swap)
swapping.start()
done = refused = 0
for _ in range(1500):
    try:
        os.chmod('work/d/key', 0o644); done += 1
    except OSError:
        refused += 1
ended.set()
swapping.join()
print(done > 0, refused > 0)
"""

MANY = """
import os, threading
def change(number):
    path = f'work/f{number}'
    for mode in (0o600, 0o755):
        os.chmod(path, mode)
for number in range(1000):
    open(f'work/f{number}', 'w').close()
threads = [threading.Thread(target=change, args=(number,)) for number in range(1000)]
for each in threads:
    each.start()
for each in threads:
    each.join()
print(sum(os.stat(f'work/f{number}').st_mode & 0o777 == 0o755 for number in range(1000)))
"""
KILLED = """
import os, signal
open('work/f', 'w').close()
for _ in range(100):
    read, write = os.pipe()
    child = os.fork()
    if not child:
        os.write(write, b'x')
        while True:
            os.chmod('work/f', 0o644)
    os.read(read, 1)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    os.close(read), os.close(write)
os.chmod('work/f', 0o600)
print(oct(os.stat('work/f').st_mode & 0o777))
"""


@pytest.fixture
def place(tmp_path: Path, require: Require) -> Path:
    """Make a workspace, and beside it a private file `key`."""
    require("landlock")
    (tmp_path / "workspace" / "work").mkdir(parents=True)
    for name in ("memory", "sessions", ".nanobot", ".git/hooks"):
        (tmp_path / "workspace" / name).mkdir(parents=True)
    (tmp_path / "workspace" / ".git" / "config").touch(0o600)
    (tmp_path / "key").write_text("secret")
    (tmp_path / "key").chmod(0o600)
    return tmp_path.resolve()


@pytest.mark.parametrize(
    "command",
    [
        "chmod 755 work/run",
        'chmod 755 "$PWD/work/run"',
        "ln -s run work/link; chmod 755 work/link",
        "cd work; chmod -R a+x .; chmod 755 run",
        "(sleep 0.1; chmod 755 work/run) & wait",
        "install -m 755 work/run work/new; mv work/new work/run",
        "cp -a work/run work/new; chmod 755 work/new; cp -a work/new work/run",
        "chmod 755 work/run; tar cf work/a.tar work/run; rm work/run; tar xpf work/a.tar",
        "chown $(id -u):$(id -g) work/run && chmod 755 work/run",
        "PYTHON 'os.fchmod(os.open(\"work/run\", 0), 0o755)'",
        'PYTHON \'os.chmod("run", 0o755, dir_fd=os.open("work", 0))\'',
        "PYTHON 'os.chmod(\"work/run\", 0o755, follow_symlinks=False)'",
        'PYTHON \'os.chmod("/proc/self/fd/%d" % os.open("work/run", 0), 0o755)\'',
    ],
)
def test_permissions_change_in_the_workspace(place: Path, command: str) -> None:
    if "PYTHON" in command and not SYSTEM_PYTHON.exists():
        pytest.skip("no python3 in /usr/bin")
    file = place / "workspace" / "work" / "run"
    file.write_text("#!/bin/sh\n")
    file.chmod(0o644)

    done = run(place, command.replace("PYTHON '", f"{SYSTEM_PYTHON} -c 'import os;"))

    assert (done.returncode, done.stderr) == (0, "")
    assert stat.S_IMODE(file.stat().st_mode) == 0o755


@needs_python
def test_virtual_environment_can_be_made(place: Path) -> None:
    done = run(place, f"{SYSTEM_PYTHON} -m venv --without-pip work/v && work/v/bin/python -c 1")

    assert (done.returncode, done.stderr) == (0, "")


@needs_python
def test_no_call_changes_a_file_outside(place: Path) -> None:
    before = (place / "key").stat()
    machine = MACHINES[os.uname().machine]

    shown = script(place, CALLS.replace("MACHINE", repr(machine)))

    assert len(shown.splitlines()) > 20
    assert [line for line in shown.splitlines() if line.split()[1] == "0"] == []
    after = (place / "key").stat()
    assert (after.st_mode, after.st_ctime_ns) == (before.st_mode, before.st_ctime_ns)


@needs_python
def test_path_that_changes_during_the_call_leads_nowhere_else(place: Path) -> None:
    shown = script(place, RACE)

    assert shown == "True True\n"
    assert stat.S_IMODE((place / "key").stat().st_mode) == 0o600


@pytest.mark.parametrize(
    "command",
    [
        "chmod 755 memory",
        "chmod 755 work/../memory",
        "chmod 755 sessions",
        "chmod 755 .nanobot",
        "chmod 755 .git/hooks .git/config",
        "chmod -R a+w .git",
        "ln -s ../.git work/git; chmod 755 work/git/hooks",
        "cd memory; chmod 755 .",
        "chmod 755 /proc/self/cwd/memory",
        "exec 5<memory; chmod 755 /proc/self/fd/5",
        "mv memory work/memory; chmod 755 work/memory",
        "mv .git work/git; chmod 755 work/git/hooks",
        "ln .git/config work/config; chmod 644 work/config",
        "chmod 777 .",
        "chmod 666 /dev/null",
        "ln ../key work/key; chmod 644 work/key",
        "chmod 4755 work/run",
        "chmod 2755 work/run",
    ],
)
def test_what_is_not_for_commands_keeps_its_permissions(place: Path, command: str) -> None:
    (place / "workspace" / "work" / "run").write_text("")
    seen = [*(place / "workspace").rglob("*"), place / "workspace", place / "key"]
    before = [path.stat().st_mode for path in seen]

    done = run(place, command)

    assert done.returncode == 1
    assert [path.stat().st_mode for path in seen] == before


@needs_python
def test_many_calls_at_once_are_answered(place: Path) -> None:
    shown = script(place, MANY)

    assert shown == "1000\n"


@needs_python
def test_calls_of_processes_that_are_killed_harm_no_other(place: Path) -> None:
    shown = script(place, KILLED)

    assert shown == "0o600\n"


@pytest.mark.parametrize(
    ("command", "code"),
    [
        ("exit 7", 7),
        ("kill -TERM $$", -signal.SIGTERM),
        ("kill -KILL 0", -signal.SIGKILL),
        ("ulimit -c 0; kill -SEGV $$", -signal.SIGSEGV),
        ("trap 'exit 3' TERM; kill 0; sleep 5", 3),
    ],
)
def test_command_ends_as_without_a_supervisor(place: Path, command: str, code: int) -> None:
    assert run(place, command).returncode == code


def test_supervisor_ends_with_the_command_and_holds_no_pipe(place: Path) -> None:
    done = run(place, "echo $PPID; sleep 60 >/dev/null 2>&1 & exit 0")

    supervisor = Path("/proc") / done.stdout.strip()
    assert done.returncode == 0
    assert not supervisor.exists()


@needs_python
def test_without_a_listener_nothing_is_opened_to_others(place: Path) -> None:
    """The supervisor of an outer sandbox has the one listener that a process may have."""
    (place / "workspace" / "work" / "run").write_text("")
    view = make_view(place, Path(sys.base_prefix), Path(sys.prefix), Path(__file__).parents[3])
    inner = "chmod 700 work/run && echo private; chmod 755 work/run; chown $(id -u) work/run"
    code = (
        "import sys; sys.path[:0] = PATH\n"
        "from nanobot_shell.landlock import launch\n"
        f"argv = ['/bin/sh', '-c', {inner!r}]\n"
        f"argv = launch(argv, families=[], read=['/'], write=[{str(place)!r}])\n"
        "import subprocess; subprocess.run(argv, check=False)\n"
    ).replace("PATH", repr(sys.path))

    done = run(place, [sys.executable, "-c", code], view)

    assert done.stdout == "private\n"
    assert done.stderr.count("Operation not permitted") == 2
    assert stat.S_IMODE((place / "workspace/work/run").stat().st_mode) == 0o700


def script(place: Path, code: str) -> str:
    """Run a program in the workspace and return what it prints."""
    text = code.replace("OUTSIDE", str(place / "key"))
    (place / "workspace" / "work" / "script.py").write_text(text)
    done = run(place, f"{SYSTEM_PYTHON} work/script.py")
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def make_view(place: Path, *readable: Path) -> View:
    workspace = place / "workspace"
    return View(place / "home", workspace=workspace, records=RECORDS, readable=readable)


def run(
    place: Path, command: str | list[str], view: View | None = None
) -> subprocess.CompletedProcess[str]:
    argv = ["/bin/bash", "-c", command] if isinstance(command, str) else command
    return subprocess.run(
        Landlock().wrap(argv, view or make_view(place), place / "workspace"),
        cwd=place / "workspace",
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        start_new_session=True,
    )
