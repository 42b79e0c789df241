"""What commands reach in each sandbox: the workspace, and nothing of the host or of the agent."""

from __future__ import annotations

import ctypes
import os
import resource
import shutil
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from nanobot_core import JsonObject, PathGuard, ToolFailed
from nanobot_core.testing import FakePluginContext, call_in, output_text
from nanobot_shell import launcher
from nanobot_shell.exec_tool import ExecTool
from nanobot_shell.landlock import Landlock
from nanobot_shell.launcher import MAX_ABI, Plan, landlock_abi
from nanobot_shell.settings import SandboxName
from nanobot_shell.view import CONVERSATIONS, RECORDS, View

if TYPE_CHECKING:
    from conftest import MakeContext, Require

pytestmark = pytest.mark.anyio
CANARY = "canary-4e1c"
PYTHON = shutil.which("python3", path="/usr/bin:/bin")
needs_python = pytest.mark.skipif(PYTHON is None, reason="the system has no python3 in /usr/bin")


@pytest.fixture
def tools(tmp_path: Path) -> Path:
    """Make a folder that the owner shows to commands, with nanobot's own folder in it."""
    home = tmp_path / "tools" / "share" / "nanobot"
    (home / "gateway").mkdir(parents=True)
    (home / "owner.json").write_text(CANARY)
    (home / "gateway" / "pairing.json").write_text(CANARY)
    (tmp_path / "tools" / "key").write_text(CANARY)
    (tmp_path / "tools" / "share" / "useful").write_text("useful")
    return tmp_path / "tools"


@pytest.fixture(params=["bwrap", "landlock"])
async def walled(
    request: pytest.FixtureRequest, make_context: MakeContext, require: Require, tools: Path
) -> FakePluginContext:
    """Give a context in which protected files lie where commands may look."""
    require(request.param)
    context = make_context(sandbox=request.param, path_append=str(tools))
    (context.workspace / "a" / "b").mkdir(parents=True)
    (context.workspace / "a" / "b" / "key").write_text(CANARY)
    (context.workspace / "a" / "b" / "note").write_text("note")
    protect(context, tools / "share" / "nanobot", tools / "key", context.workspace / "a/b/key")
    return context


@pytest.mark.parametrize(
    "command",
    [
        "cat @/share/nanobot/owner.json",
        "cat @/share/nanobot/gateway/*",
        "cat @/key",
        "cp -r @ work/copy; cat work/copy/key work/copy/share/nanobot/owner.json",
        "ln @/key work/key; cat work/key",
        "ln -s @/key work/key; cat work/key",
        "cat /proc/self/root@/key",
        "cat a/b/key",
        "mv a/b/key work/key; cat work/key",
        "mv a/b work/b; cat work/b/key",
        "mv a work/a; cat work/a/b/key",
        "umount @/key a/b/key; cat @/key a/b/key",
    ],
)
async def test_protected_paths_are_hidden_wherever_they_are(
    walled: FakePluginContext, tools: Path, command: str
) -> None:
    (walled.workspace / "work").mkdir()
    async with walled:
        shown = await run(walled, command.replace("@", str(tools)))
        again = await run(walled, "cat work/b/key work/a/b/key a/b/key")

    assert CANARY not in shown + again
    assert (tools / "key").read_text() == CANARY
    assert (walled.workspace / "a" / "b" / "key").read_text() == CANARY


async def test_neighbours_of_protected_paths_stay_readable(
    walled: FakePluginContext, tools: Path
) -> None:
    async with walled:
        shown = await run(walled, f"cat {tools}/share/useful a/b/note")

    assert "usefulnote" in shown


@pytest.mark.parametrize(
    "path",
    [
        "/etc/shadow",
        "@/outside/secret",
        "@/home/.ssh/id_rsa",
        "@/data/config.yaml",
        "../outside/secret",
        "//@/outside/secret",
        "/proc/self/root@/outside/secret",
        "/proc/@PID/root@/outside/secret",
        "/proc/@PID/cwd/../outside/secret",
        "/proc/@PID/environ",
        "/proc/1/environ",
        "/proc/@PID/maps",
        "/dev/tty",
        "/dev/mem",
        "/dev/pts/0",
    ],
)
async def test_files_of_the_host_cannot_be_read(
    confined: FakePluginContext, tmp_path: Path, path: str
) -> None:
    for name in ("outside/secret", "home/.ssh/id_rsa", "data/config.yaml"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(CANARY)
    # In a script, so that the guard's own rules do not stop it first.
    script = confined.workspace / "work" / "look.sh"
    with other_process(tmp_path / "home") as other:
        text = path.replace("@PID", str(other.pid)).replace("@", str(tmp_path))
        script.write_text(f"timeout 5 cat {text}; echo end")

        shown = await run(confined, "sh work/look.sh")

    assert "end" in shown
    assert CANARY not in shown


@pytest.mark.parametrize(
    "command",
    [
        "echo x > @/outside/secret",
        "echo x > @/outside/new",
        "truncate -s 0 @/outside/secret",
        "rm -f @/outside/secret",
        "mv @/outside/secret work/",
        "ln @/outside/secret work/secret && echo x > work/secret",
        "ln -s @/outside work/out; echo x > work/out/secret; touch work/out/new",
        "mkdir @/outside/folder",
        "ln -s /etc/passwd @/outside/link",
        "mount --bind work @/outside",
        "unshare -Urm mount --bind work @/outside",
    ],
)
async def test_files_of_the_host_cannot_be_changed(
    confined: FakePluginContext, tmp_path: Path, command: str
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_text(CANARY)

    await run(confined, command.replace("@", str(tmp_path)))

    assert [path.name for path in outside.iterdir()] == ["secret"]
    assert (outside / "secret").read_text() == CANARY


ATTACKS_ON_RECORDS = (
    "rm -r @",
    "mv @ work/gone",
    "mv @ gone; mkdir @",
    "mv @ gone; ln -s ../outside @",
    "rmdir @; ln -s /etc @",
    "ln -sfn /etc @",
    "touch @/new",
    "mkdir @/new",
    "ln -s /etc @/new",
    "echo x > @/kept",
    "echo x >> @/kept",
    "rm -f @/kept",
    "mv work @/new",
    "mv work/file @/new; cp work/file @/new",
    "ln work/file @/new",
    "mkfifo @/new",
    "mv @/kept work/",
    "ln @/kept work/kept; echo x > work/kept",
)


@pytest.mark.parametrize("existing", [True, False])
async def test_records_of_the_agent_are_neither_changed_nor_replaced(
    confined: FakePluginContext, existing: bool
) -> None:
    workspace = confined.workspace
    (workspace / "work" / "file").write_text("mine")
    for name in RECORDS if existing else ():
        (workspace / name).mkdir()
        (workspace / name / "kept").write_text(name)
    script = workspace / "work" / "attack.sh"
    # In a script, so that the guard's own rules do not stop it first.
    script.write_text("\n".join(each.replace("@", "$1") for each in ATTACKS_ON_RECORDS))

    for name in RECORDS:
        shown = await run(confined, f"sh work/attack.sh {name}; cat {name}/kept")
        assert (name in shown.splitlines()) is (existing and name not in CONVERSATIONS)

    for name in RECORDS:
        folder = workspace / name
        assert stat.S_ISDIR(folder.lstat().st_mode)
        kept = ["kept"] if existing else []
        assert [path.name for path in folder.iterdir()] == kept
        assert all((folder / each).read_text() == name for each in kept)


async def test_commands_list_the_workspace_and_read_no_conversation(
    confined: FakePluginContext,
) -> None:
    results = confined.workspace / ".nanobot" / "tool-results" / "telegram_1"
    results.mkdir(parents=True)
    (confined.workspace / "sessions").mkdir()
    for file in (results / "1.txt", confined.workspace / "sessions" / "telegram_1.jsonl"):
        file.write_text(CANARY)
    (confined.workspace / "notes.txt").write_text("seen")

    shown = await run(
        confined, "ls; cat notes.txt; cat sessions/* .nanobot/*/*/*; grep -r canary ."
    )

    assert "notes.txt" in shown
    assert "seen" in shown
    assert CANARY not in shown


@pytest.mark.parametrize("name", [*RECORDS, ".git"])
async def test_a_link_in_the_place_of_a_record_lets_nothing_run(
    confined: FakePluginContext, tmp_path: Path, name: str
) -> None:
    (confined.workspace / name).symlink_to(tmp_path)

    with pytest.raises(ToolFailed, match=f"'{name}' in the workspace must be a folder"):
        await run(confined, "ls")

    assert sorted(path.name for path in tmp_path.iterdir()) == ["data", "workspace"]


ATTACKS_ON_GIT = (
    "git init .",
    "mkdir .git",
    "ln -s work .git",
    "echo 'gitdir: work' > .git",
    "mkdir -p .git/hooks; echo evil > .git/hooks/post-commit",
    "echo evil >> .git/config; rm -f .git/config; ln -sf ../work .git/config",
    "rm -rf .git/hooks; mv .git/hooks .git/x; ln -s ../work .git/hooks",
    "mv .git work/git; mkdir .git; cp -r work/git/* .git; echo evil > .git/config",
    "echo ../work > .git/commondir",
    "ln -s /dev/null .git/commondir",
    "mkdir .git/commondir",
)


@pytest.mark.skipif(shutil.which("git") is None, reason="there is no git")
@pytest.mark.parametrize("existing", [True, False])
async def test_git_takes_no_command_from_what_a_command_wrote(
    confined: FakePluginContext, existing: bool
) -> None:
    git = confined.workspace / ".git"
    if existing:
        make_repository(confined.workspace)
        before = (git / "config").read_text()
        hooks = sorted(path.name for path in (git / "hooks").iterdir())
    script = confined.workspace / "work" / "attack.sh"
    script.write_text("\n".join(ATTACKS_ON_GIT))

    await run(confined, "sh work/attack.sh")
    await run(confined, "true")

    assert not git.exists() or not git.is_symlink()
    assert not os.path.lexists(git / "commondir") or (git / "commondir").is_dir()
    if existing:
        assert (git / "config").read_text() == before
        assert sorted(path.name for path in (git / "hooks").iterdir()) == hooks
    else:
        assert not git.exists() or list(git.iterdir()) == []


@pytest.mark.skipif(shutil.which("git") is None, reason="there is no git")
async def test_a_repository_of_the_owners_takes_commits(
    make_context: MakeContext, require: Require
) -> None:
    require("bwrap")
    async with make_context(sandbox="bwrap") as context:
        make_repository(context.workspace)
        (context.workspace / "file").write_text("x")
        identity = "-c user.name=a -c user.email=a@example.com"

        shown = await run(context, f"git add file && git {identity} commit -qm x && git log")

    assert "Author: a" in shown


@needs_python
@pytest.mark.parametrize("kind", ["path", "abstract", "datagram"])
async def test_unix_sockets_of_the_host_are_out_of_reach(
    confined: FakePluginContext, tmp_path: Path, kind: str
) -> None:
    if kind == "abstract" and landlock_abi() < MAX_ABI:
        pytest.skip("this kernel has no scopes of Landlock, Linux 6.12")
    address = str(tmp_path / "s") if kind != "abstract" else f"\0{tmp_path.name}-s"
    sort = socket.SOCK_DGRAM if kind == "datagram" else socket.SOCK_STREAM
    connect = (
        "import socket\n"
        "pair = socket.socketpair(type=socket.SOCK_SEQPACKET)\n"
        f"kind = socket.SocketKind({int(sort)})\n"
        "for make in (lambda: socket.socket(socket.AF_UNIX, kind),\n"
        "             lambda: socket.socketpair(type=kind)[0]):\n"
        "    try:\n"
        f"        make().connect({address!r}); print('reached')\n"
        "    except OSError as error:\n"
        "        print('refused', error)\n"
    )
    (confined.workspace / "work" / "connect.py").write_text(connect)
    with closing(socket.socket(socket.AF_UNIX, sort)) as server:
        server.bind(address)
        if sort == socket.SOCK_STREAM:
            server.listen()

        shown = await run(confined, f"{PYTHON} work/connect.py")

    assert shown.count("refused") == 2
    assert "reached" not in shown


@needs_python
@pytest.mark.parametrize("mode", ["bwrap", "landlock"])
@pytest.mark.parametrize("has_network", [True, False])
async def test_network_is_shared_or_cut_as_the_owner_decides(
    make_context: MakeContext, require: Require, mode: SandboxName, has_network: bool
) -> None:
    require(mode)
    code = (
        "import socket, sys\n"
        "for family, kind in ((2, 1), (2, 2), (10, 1), (40, 1), (17, 3)):\n"
        "    try:\n"
        "        made = socket.socket(family, kind)\n"
        "        made.connect(('127.0.0.1', int(sys.argv[1])))\n"
        "        made.send(b'x')\n"
        "        print('reached', family, kind)\n"
        "    except OSError as error:\n"
        "        print('refused', family, kind, error)\n"
    )
    with listening() as port:
        async with make_context(sandbox=mode, sandbox_network=has_network) as context:
            (context.workspace / "connect.py").write_text(code)
            shown = await run(context, f"{PYTHON} connect.py {port}")

    assert ("reached 2 1" in shown) is has_network
    assert "reached 40" not in shown
    assert "reached 17" not in shown
    if not has_network and mode == "landlock":
        assert "reached" not in shown


@needs_python
async def test_system_calls_that_lead_round_the_wall_are_closed(
    confined: FakePluginContext,
) -> None:
    if landlock_abi() < MAX_ABI:
        pytest.skip("this kernel has no scopes of Landlock, Linux 6.12")
    code = (
        "import ctypes, os, signal\n"
        "libc = ctypes.CDLL(None, use_errno=True)\n"
        "def tried(name, *arguments):\n"
        "    result = libc.syscall(*arguments)\n"
        "    print(name, 'open' if result >= 0 else 'closed')\n"
        f"numbers = {SYSTEM_CALLS[os.uname().machine]!r}\n"
        f"for name, arguments in numbers.items(): tried(name, *arguments)\n"
        f"try: os.kill({os.getpid()}, 0); print('kill open')\n"
        "except OSError: print('kill closed')\n"
    )
    (confined.workspace / "work" / "calls.py").write_text(code)

    shown = await run(confined, f"{PYTHON} work/calls.py; grep -E 'CapEff|NoNew' /proc/self/status")

    lines = shown.splitlines()
    names = (*SYSTEM_CALLS[os.uname().machine], "kill")
    assert [line for line in lines if "open" in line] == []
    assert [f"{name} closed" for name in names if f"{name} closed" not in lines] == []
    assert "CapEff:\t0000000000000000" in lines
    assert "NoNewPrivs:\t1" in lines


SYSTEM_CALLS: dict[str, dict[str, Sequence[int]]] = {
    "x86_64": {
        "keyctl": (250, 0, -4, 0),
        "io_uring": (425, 1, 0),
        "ptrace": (101, 16, os.getpid(), 0, 0),
        "x32": ((1 << 30) + 39,),
        "init_module": (175, 0, 0, 0),
        "process_vm_readv": (310, os.getpid(), 0, 1, 0, 1, 0),
    },
    "aarch64": {
        "keyctl": (219, 0, -4, 0),
        "io_uring": (425, 1, 0),
        "ptrace": (117, 16, os.getpid(), 0, 0),
        "init_module": (105, 0, 0, 0),
    },
}


async def test_link_in_place_of_a_guests_folder_lets_nothing_run(
    confined: FakePluginContext, tmp_path: Path
) -> None:
    """Otherwise the sandbox would open what the link names."""
    outside, own = tmp_path / "outside", confined.workspace / "guests" / "g"
    own.mkdir(parents=True)
    outside.mkdir()
    (outside / "key").write_text(CANARY)
    call = call_in(own, PathGuard(own))
    own.rename(own.with_name("aside"))
    own.symlink_to(outside)

    with pytest.raises(ToolFailed, match="is a link now"):
        await ExecTool(confined).execute(call, {"command": "cat key"})


@needs_python
async def test_limits_of_other_processes_cannot_be_changed(confined: FakePluginContext) -> None:
    """With a limit of processor time, a command could end nanobot."""
    with other_process(confined.workspace) as other:
        before = resource.prlimit(other.pid, resource.RLIMIT_NOFILE)
        code = f"import resource as r; r.prlimit({other.pid}, r.RLIMIT_NOFILE, (9, 9))"

        shown = await run(confined, f"{PYTHON} -c '{code}'; ulimit -n 77; ulimit -n")

        assert resource.prlimit(other.pid, resource.RLIMIT_NOFILE) == before
    assert shown.startswith("77\n")


@needs_python
async def test_shared_memory_of_the_host_is_out_of_reach(confined: FakePluginContext) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.shmat.restype = ctypes.c_void_p
    segment = libc.shmget(0, 4096, 0o600)
    try:
        memory = libc.shmat(segment, None, 0)
        ctypes.memmove(memory, CANARY.encode(), len(CANARY))
        libc.shmdt(ctypes.c_void_p(memory))
        (confined.workspace / "work" / "attach.py").write_text(
            "import ctypes; libc = ctypes.CDLL(None); libc.shmat.restype = ctypes.c_void_p\n"
            f"at = libc.shmat({segment}, None, 0)\n"
            f"print(at == 2**64 - 1 and 'closed', ctypes.string_at(at) if at < 2**63 else '')"
        )

        shown = await run(confined, f"{PYTHON} work/attach.py")
    finally:
        libc.shmctl(segment, 0, None)
    assert shown == "closed \n\nExit code: 0"


async def test_commands_inherit_no_files_and_no_terminal(confined: FakePluginContext) -> None:
    read, write = os.pipe()
    try:
        os.set_inheritable(write, True)
        shown = await run(confined, "ls /proc/self/fd; tty; exec 3</dev/tty && echo opened")

    finally:
        os.close(read)
        os.close(write)
    assert shown.split()[:4] == ["0", "1", "2", "3"]
    assert shown.split()[4] == "not"
    assert "opened" not in shown


async def test_temporary_files_are_private_and_gone_afterwards(
    confined: FakePluginContext,
) -> None:
    shown = await run(confined, 'd="${TMPDIR:-/tmp}"; cd; echo x > y; echo x > "$d/y"; ls "$d"')
    again = await run(confined, 'ls -A ~ "${TMPDIR:-/tmp}"')

    assert "y" in shown.split()
    assert "y" not in again.split()
    left = [path for path in confined.data_dir.rglob("*") if path.name == "y"]
    assert left == []


@pytest.mark.parametrize("abi", [1, 2, 3, 5, 6])
def test_older_landlock_confines_as_well(tmp_path: Path, require: Require, abi: int) -> None:
    require("landlock")
    outside, workspace = tmp_path / "outside", tmp_path / "workspace"
    outside.write_text(CANARY)
    (workspace / "sub").mkdir(parents=True)
    (workspace / "sessions").mkdir()
    (workspace / "sessions" / "kept").write_text(CANARY)
    view = View(tmp_path / "home", workspace=workspace.resolve(), records=RECORDS)
    code = (
        "import os\n"
        f"for path in ({str(outside)!r}, 'sessions/kept'):\n"
        "    for attempt in (lambda: os.truncate(path, 0),\n"
        "                    lambda: os.open(path, os.O_RDONLY | os.O_TRUNC),\n"
        "                    lambda: os.open(path, os.O_WRONLY),\n"
        "                    lambda: os.remove(path),\n"
        "                    lambda: os.link(path, 'sub/x')):\n"
        "        try: attempt(); print('done')\n"
        "        except OSError: pass\n"
        "open('sub/made', 'w').write('x'); os.truncate('sub/made', 0) if 2 < ABI else None\n"
        "os.rename('sub/made', 'work/made') if 1 < ABI else None\n"
    ).replace("ABI", str(abi))
    argv = [PYTHON or "/usr/bin/python3", "-c", code]

    done = subprocess.run(
        Landlock(abi=abi).wrap(argv, view, workspace),
        cwd=workspace,
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
    )

    assert (done.stdout, done.stderr) == ("", "")
    assert outside.read_text() == CANARY
    assert (workspace / "sessions" / "kept").read_text() == CANARY


@pytest.mark.parametrize(
    ("change", "reason"), [({"parent": 1}, ""), ({"abi": 0}, "no Landlock"), ({"abi": 1}, None)]
)
def test_launcher_starts_nothing_that_it_cannot_confine(
    require: Require, change: dict[str, int], reason: str | None
) -> None:
    require("landlock")
    numbers = {"parent": os.getpid(), "abi": MAX_ABI, **change}
    plan = Plan(is_strict=True, families=[], read=["/"], write=[], devices=[], listed=[], **numbers)
    command = [
        sys.executable,
        "-I",
        "-S",
        launcher.__file__,
        *plan.encode(),
        "/bin/echo",
        "started",
    ]

    done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)

    assert done.returncode == (0 if reason is None else 126)
    assert done.stdout == ("started\n" if reason is None else "")
    assert (reason or "") in done.stderr


def test_launcher_loads_nothing_that_takes_long() -> None:
    code = (
        "import sys; before = set(sys.modules); text = open(sys.argv[1]).read();"
        "exec(compile(text, 'launcher', 'exec'), {'__name__': 'launcher'});"
        "print(*set(sys.modules) - before)"
    )
    command = [sys.executable, "-I", "-S", "-c", code, launcher.__file__]

    done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)

    heavy = {"collections", "enum", "json", "nanobot_core", "nanobot_shell", "re", "typing"}
    assert set(done.stdout.split()) & heavy == set()


def make_repository(folder: Path) -> None:
    subprocess.run(["git", "init", "-q", str(folder)], check=True, timeout=20)


def protect(context: FakePluginContext, *paths: Path) -> None:
    """Make `paths` protected in `context`, as a host would."""
    kind = type("ProtectedContext", (FakePluginContext,), {"protected_paths": paths})
    context.__class__ = kind


@contextmanager
def other_process(folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "60"], env={"SECRET": CANARY}, cwd=folder) as process:
        try:
            yield process
        finally:
            process.kill()


@contextmanager
def listening() -> Iterator[int]:
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        yield server.getsockname()[1]


async def run(context: FakePluginContext, command: str) -> str:
    arguments: JsonObject = {"command": command, "timeout": 20}
    call = call_in(context.workspace, context.files)
    return output_text(await ExecTool(context).execute(call, arguments))
