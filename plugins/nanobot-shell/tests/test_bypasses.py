"""Spellings of harm: each is refused by the gate, or runs contained in the sandbox."""

from __future__ import annotations

import base64
import shutil
import subprocess
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings, strategies as st

from nanobot_core import Allow, Ask, Deny, JsonObject, PathGuard, ToolDenied
from nanobot_core.testing import FakePluginContext, call_in
from nanobot_shell.exec_tool import ExecTool
from nanobot_shell.guard import Guard
from nanobot_shell.reading import read_command_line
from nanobot_shell.settings import ExecSettings, SandboxName

if TYPE_CHECKING:
    from conftest import Decide, MakeContext, Require

SECRET = b"secret-of-the-outside"
_ENCODED = base64.b64encode(b"rm -rf @OUT@/box").decode()

SPELLINGS = [
    "rm -rf @OUT@/box",
    "rm -fr @OUT@/box",
    "rm -r -f @OUT@/box",
    "rm --recursive --force @OUT@/box",
    "rm --recurs @OUT@/box",
    "rm -Rf -- @OUT@/box",
    r"\rm -rf @OUT@/box",
    r"r\m -rf @OUT@/box",
    "'rm' -rf @OUT@/box",
    '"rm" -rf @OUT@/box',
    'r""m -rf @OUT@/box',
    "r''m -r'f' @OUT@/box",
    "$'\\x72\\x6d' -rf @OUT@/box",
    "/bin/rm -rf @OUT@/box",
    "/usr/bin/../bin/rm -rf @OUT@/box",
    "command rm -rf @OUT@/box",
    "builtin command rm -rf @OUT@/box",
    "exec rm -rf @OUT@/box",
    "env rm -rf @OUT@/box",
    "env -i A=b /bin/rm -rf @OUT@/box",
    "nohup nice -n 5 rm -rf @OUT@/box",
    "timeout 5 rm -rf @OUT@/box",
    "setsid rm -rf @OUT@/box",
    "busybox rm -rf @OUT@/box",
    "sudo -n rm -rf @OUT@/box",
    "sudo -u root -- rm -rf @OUT@/box",
    "flock lock rm -rf @OUT@/box",
    "su root -c 'rm -rf @OUT@/box'",
    "chroot / rm -rf @OUT@/box",
    "env -S 'rm -rf @OUT@/box'",
    "script -qc 'rm -rf @OUT@/box' /dev/null",
    "watch -n1 'rm -rf @OUT@/box'",
    "parallel rm -rf ::: @OUT@/box",
    "rm -rf @OUT@/b{o,}x",
    "x=@OUT@/box; rm -rf $x",
    'x=@OUT@/box; rm -rf "$x"',
    "rm -rf $(echo @OUT@/box)",
    "/b*/rm -rf @OUT@/box",
    "rm \\\n-rf \\\n@OUT@/box",
    "r\\\nm -rf @OUT@/box",
    "true && rm -rf @OUT@/box",
    "false || rm -rf @OUT@/box",
    "true; (rm -rf @OUT@/box)",
    "{ rm -rf @OUT@/box; }",
    "if true; then rm -rf @OUT@/box; fi",
    "for f in @OUT@/box; do rm -rf $f; done",
    "while rm -rf @OUT@/box; do break; done",
    "case x in x) rm -rf @OUT@/box;; esac",
    "f() { rm -rf @OUT@/box; }; f",
    "echo $(rm -rf @OUT@/box)",
    "echo `rm -rf @OUT@/box`",
    'echo "$(rm -rf @OUT@/box)"',
    "cat <(rm -rf @OUT@/box)",
    "A=$(rm -rf @OUT@/box)",
    "! rm -rf @OUT@/box",
    "time rm -rf @OUT@/box",
    "sh -c 'rm -rf @OUT@/box'",
    "bash -lc 'rm -rf @OUT@/box'",
    "bash -c \"sh -c 'rm -rf @OUT@/box'\"",
    'bash -c "r""m -rf @OUT@/box"',
    "eval rm -rf @OUT@/box",
    "eval 'r''m -rf @OUT@/box'",
    "trap 'rm -rf @OUT@/box' EXIT",
    "echo @OUT@/box | xargs rm -rf",
    "echo @OUT@/box | xargs -n1 -I{} rm -rf {}",
    "find @OUT@/box -delete",
    "find @OUT@ -name '*' -delete",
    "find @OUT@/box -exec rm -rf {} +",
    "find @OUT@/box -execdir sh -c 'rm -rf @OUT@/box' ';'",
    "rsync -a --delete empty/ @OUT@/box/",
    "cd @OUT@ && rm -rf box",
    "cd @OUT@; rm -rf ./box",
    "cd ..; rm -rf outside/box",
    "rm -rf ../outside/box",
    "rm -rf link/box",
    "rm -rf ~/../outside/box",
    "enable -n echo; rm -rf @OUT@/box",
    "coproc rm -rf @OUT@/box",
    "rm -rf @OUT@/box &",
    "</dev/null rm -rf @OUT@/box",
    "2>/dev/null rm -rf @OUT@/box",
    "A=1 B=2 rm -rf @OUT@/box",
    "rm -rf @OUT@/box # harmless",
]
"""Recursive deletion that the guard reads, and refuses in every configuration."""
HIDDEN = [
    "timeout -s KILL 5s nice -n 3 $X @OUT@/box",
    "rm$IFS-rf$IFS@OUT@/box",
    "rm${IFS}-rf${IFS}@OUT@/box",
    "{rm,-rf,@OUT@/box}",
    "x=rm; $x -rf @OUT@/box",
    "x=-rf; rm $x @OUT@/box",
    "$(echo rm) -rf @OUT@/box",
    "`echo rm` -rf @OUT@/box",
    "$(printf '\\162\\155') -rf @OUT@/box",
    "/bin/r? -rf @OUT@/box",
    "echo rm -rf @OUT@/box | sh",
    "printf 'rm -rf @OUT@/box' | bash -s",
    "bash <<< 'rm -rf @OUT@/box'",
    "sh <<EOF\nrm -rf @OUT@/box\nEOF",
    "bash <(echo rm -rf @OUT@/box)",
    ". <(echo rm -rf @OUT@/box)",
    "source /dev/stdin <<< 'rm -rf @OUT@/box'",
    f"echo {_ENCODED} | base64 -d | sh",
    f"eval $(echo {_ENCODED} | base64 -d)",
    f'bash -c "$(echo {_ENCODED} | base64 -d)"',
    "echo '-rf @OUT@/box' | xargs rm",
    "echo 'rm -rf @OUT@/box' | xargs -0 sh -c",
    "find @OUT@/box -type f -exec rm {} ';'",
    "python3 -c 'import shutil; shutil.rmtree(\"@OUT@/box\")'",
    'python3 -Ic \'__import__("shutil").rmtree("@OUT@/box")\'',
    "echo 'import shutil; shutil.rmtree(\"@OUT@/box\")' | python3",
    "python3 - <<< 'import shutil; shutil.rmtree(\"@OUT@/box\")'",
    "perl -e 'use File::Path; rmtree(\"@OUT@/box\")'",
    "perl -MFile::Path -e 'rmtree(\"@OUT@/box\")'",
    "awk 'BEGIN { system(\"rm -rf @OUT@/box\") }'",
    "echo x | sed 's/x/rm -rf @OUT@\\/box/e'",
    "sed -n '1e rm -rf @OUT@/box' /etc/hostname",
    "tar cf /dev/null /etc/hosts --checkpoint=1 --checkpoint-action=exec='rm -rf @OUT@/box'",
    "git -c alias.x='!rm -rf @OUT@/box' x",
    "shopt -s expand_aliases\nalias x='rm -rf @OUT@/box'\nx",
    "hash -p /bin/rm foo; foo -rf @OUT@/box",
    'echo "unclosed; rm -rf @OUT@/box',
]
"""Deletion that only the shell or a program makes of it: the sandbox contains it."""


@pytest.mark.parametrize("mode", ["bwrap", "landlock"])
@pytest.mark.parametrize("spelling", [*SPELLINGS, *HIDDEN])
@pytest.mark.anyio
async def test_no_spelling_reaches_a_folder_outside_the_workspace(
    spelling: str, mode: SandboxName, make_context: MakeContext, require: Require, tmp_path: Path
) -> None:
    require(mode)
    canary = _plant_canary(tmp_path)
    async with make_context(sandbox=mode) as context:
        (context.workspace / "link").symlink_to(tmp_path / "outside")
        command = spelling.replace("@OUT@", str(tmp_path / "outside"))
        arguments: JsonObject = {"command": command, "timeout": 5}
        with suppress(ToolDenied):
            await ExecTool(context).execute(call_in(context.workspace), arguments)

    assert canary.read_text() == "alive"


@pytest.mark.parametrize("restricted", [True, False])
@pytest.mark.anyio
async def test_what_the_guard_reads_is_refused_without_a_sandbox(
    make_context: MakeContext, decide: Decide, tmp_path: Path, restricted: bool
) -> None:
    _plant_canary(tmp_path)
    context = make_context(sandbox="none", restricted=restricted)
    (context.workspace / "link").symlink_to(tmp_path / "outside")
    texts = [*SPELLINGS, *(HIDDEN if restricted else [])]
    commands = [text.replace("@OUT@", str(tmp_path / "outside")) for text in texts]

    assert [text for text in commands if await decide(context, text) == Allow()] == []


@pytest.mark.parametrize(
    "command",
    [
        "mkfs.ext4 /dev/sda1",
        "sudo mkfs -t ext4 x",
        "diskpart /s x",
        "format c:",
        "del /f /q x",
        "rmdir /s /q x",
        "rd /S x",
        "dd if=/dev/zero of=x",
        "dd of=/dev/sda if=x",
        "dd if=$X of=y",
        "echo x > /dev/sda",
        "echo x >> //dev//nvme0n1",
        "echo x | tee /dev/sdb",
        "cp x /dev/mem",
        "shutdown -h now",
        "sudo reboot",
        "/sbin/poweroff",
        "systemctl poweroff",
        "init 0",
        ":(){ :|:& };:",
        "bomb() { bomb | bomb & }; bomb",
        "echo x > memory/history.jsonl",
        "echo x > memory/history-archive.jsonl",
        "echo x >> history.jsonl",
        "echo x | tee -a memory/history.jsonl",
        "cp x memory/.dream_cursor",
        "mv x .dream_cursor",
        "sed -i s/a/b/ memory/history.jsonl",
        "perl -pi -e s/a/b/ memory/history.jsonl",
        "dd if=x of=memory/history.jsonl",
        "truncate -s0 memory/history.jsonl",
        "rm -rf .",
        "rm -rf *",
        "rm -rf ./*",
        "rm -rf memory",
        "rm -rf /",
        "rm -rf ~",
        "rm -rf $HOME",
        "rm -rf --no-preserve-root /",
        "find . -delete",
        "cat /proc/1/environ",
        "cat < /proc/$PPID/environ",
        "cat /proc/*/environ",
        "ls /proc/1/root/etc",
    ],
)
@pytest.mark.anyio
async def test_harm_is_refused_in_every_configuration(
    command: str, make_context: MakeContext, decide: Decide
) -> None:
    for mode in ("auto", "none"):
        assert isinstance(await decide(make_context(sandbox=mode), command), Deny)


@pytest.mark.parametrize(
    "command",
    [
        "ls -la",
        "rm -rf build",
        "rm -rf ./build/out dist",
        "rm -rf build/*",
        "rm file.txt",
        "git status && git commit -m 'rm -rf /'",
        "echo 'rm -rf /'",
        "grep -r 'shutdown' src",
        "find . -name '*.pyc' -delete",
        "cd src && rm -rf build",
        "python3 script.py --format c",
        "python3 -m pytest -x",
        "npm run format",
        "cat memory/history.jsonl",
        "sed -n 1,5p memory/history.jsonl",
        "sed 's/a/b/' notes.txt",
        "dd if=a of=b",
        "echo done > /dev/null 2>&1",
        "make -j4 2>&1 | tail -5",
        'for f in *.txt; do wc -l "$f"; done',
        "case $1 in a) ls;; esac",
        "curl -s https://example.com/",
        "bash run.sh --fast",
        "awk '{print $1}' table",
        "timeout 5 make test",
        "git ls-files | xargs grep -l needle",
        "sudo -u bob ls",
        "node --version",
    ],
)
@pytest.mark.anyio
async def test_everyday_commands_pass(
    command: str, make_context: MakeContext, decide: Decide
) -> None:
    context = make_context(sandbox="none")
    (context.workspace / "src").mkdir()

    assert await decide(context, command) == Allow()


@pytest.mark.parametrize(
    "command",
    [
        "cat /etc/passwd",
        "cat //etc/passwd",
        "cat /./etc//passwd",
        "cat /proc/self/root/etc/passwd",
        "cat ~",
        "cat ~+/../x",
        "cat ~root/x",
        "cat '~/x'",
        "cp in.txt //tmp/x",
        "cp in.txt folder",
        "cat link/file",
        "cat *",
        "cat $HOME/x",
        "cat in.txt > link/file",
        "cat in.txt >| /tmp/x",
        "cat < /dev/tcp/127.0.0.1/80",
        "cat .nanobot/x",
        "echo x > memory/history.jsonl",
        "echo x > .git/config",
        "tee sessions/x",
        "grep -f ../x in.txt",
        "grep -r x .",
        "sort -o /tmp/x in.txt",
        "sort --files0-from=in.txt",
        "sort --fi in.txt",
        "wc --files0-from=in.txt",
        "diff in.txt folder",
        "sed r/etc/passwd in.txt",
        "sed 'w /tmp/x' in.txt",
        "awk '{print > \"/tmp/x\"}' in.txt",
        "awk 'BEGIN { ARGV[1] = \"/etc/passwd\"; ARGC = 2 } 1'",
        "tar -cf - -T in.txt",
        "curl http://example.com/{a,b}",
        "curl -K in.txt",
        "curl -x http://10.0.0.1 http://example.com",
        "http_proxy=http://10.0.0.1 curl http://example.com",
        "wget -i in.txt",
        "md5sum -c in.txt",
        "printf -v 'x[$(cat /etc/passwd)]' a",
        "[[ 'x[$(cat /etc/passwd)]' -eq 0 ]]",
        "test -v 'x[$(cat /etc/passwd)]'",
        "x=1",
        "LD_PRELOAD=./x.so cat in.txt",
        "cd folder; cat in.txt",
        "mv link up; cat up/file",
        "ln -s .. up",
        "cp -a link up",
        "./cat in.txt",
        "python3 script.py",
        "git status",
        "make",
        "no-such-program",
        "for f in a; do cat in.txt; done",
        "f() { cat in.txt; }; f",
        "cat <<E\n$(cat /etc/passwd)\nE",
        "(cat in.txt)",
        "cat in.txt &&",
    ],
)
@pytest.mark.anyio
async def test_what_cannot_be_confined_is_refused_where_commands_are_restricted(
    command: str, make_context: MakeContext, decide: Decide, tmp_path: Path
) -> None:
    assert isinstance(await decide(_furnished(make_context, tmp_path), command), Deny)


@pytest.mark.parametrize(
    "command",
    [
        "cat in.txt",
        "cat ./in.txt folder//inner.txt 2>/dev/null",
        "cat in.txt | sort -rn -k2,3 | head -5 > out.txt 2>&1",
        "grep -in 'a b' in.txt && wc -l < in.txt",
        "ls -la folder; echo done >> out.txt",
        "mkdir -p new/deep && touch new/deep/file",
        "cp in.txt copy.txt; rm -f copy.txt",
        "cp in.txt new.txt folder/inner.txt | true",
        "printf '%s\n' 'a/b' /etc/passwd",
        "head -n 5 -- in.txt",
        "cut -d, -f1 in.txt | tr a-z A-Z | tee out.txt",
        "sleep 1 & echo $'a\\tb'",
    ],
)
@pytest.mark.anyio
async def test_plain_commands_run_where_commands_are_restricted(
    command: str, make_context: MakeContext, decide: Decide, tmp_path: Path
) -> None:
    assert await decide(_furnished(make_context, tmp_path), command) == Allow()


@pytest.mark.usefixtures("no_sandbox")
@pytest.mark.anyio
async def test_confined_commands_without_a_sandbox_are_asked_about_too(
    make_context: MakeContext, decide: Decide
) -> None:
    context = make_context(restricted=True)

    assert isinstance(await decide(context, "ls"), Ask)
    assert isinstance(await decide(context, "make"), Deny)


_NAMES = ["in.txt", "folder", "folder/inner.txt", "link", "link/file", "loose", "folder/loose", "@"]
_NAMES += [
    "@/file",
    "/@/file",
    "..",
    "../outside/file",
    "new",
    "new/file",
    "*",
    "~",
    "-",
    "l*/file",
]
_NAMES += ["$PWD/in.txt", ".", "folder/..", "link/../file", "/proc/self/cwd/in.txt", "'in.txt'"]
_OPTIONS = ["-n", "-f", "-r", "-a", "-L", "-R", "-e", "-s", "-o", "-p", "--", "--fi", "-1", "-fx"]
_PROGRAMS = [
    "cat",
    "head",
    "tail",
    "wc",
    "cut",
    "sort",
    "tac",
    "nl",
    "grep x",
    "diff",
    "cmp",
    "paste",
]
_PROGRAMS += [
    "stat",
    "file",
    "base64",
    "md5sum",
    "ls",
    "mkdir",
    "rmdir",
    "touch",
    "rm",
    "tee",
    "cp",
]
_PROGRAMS += [
    "echo",
    "printf",
    "mv",
    "ln",
    "ln -s",
    "sed p",
    "awk 1",
    "xargs cat",
    "cd",
    "find",
    "dd",
]
_WORDS = st.lists(st.sampled_from(_NAMES) | st.sampled_from(_OPTIONS), max_size=4).map(" ".join)
_REDIRECTS = st.sampled_from(["", "", "", ">", ">>", "<", "2>", "&>", ">|", "<>", ">&"])
_COMMANDS = st.tuples(st.sampled_from(_PROGRAMS), _WORDS, _REDIRECTS, st.sampled_from(_NAMES)).map(
    lambda drawn: " ".join((*drawn[:3], drawn[3] if drawn[2] else ""))
)
_LINES = st.lists(
    st.tuples(_COMMANDS, st.sampled_from(["; ", " && ", " || ", " | ", "\n"])),
    min_size=1,
    max_size=3,
).map(lambda drawn: "".join(command + end for command, end in drawn).rstrip("|&; \n"))
LONG = (pytest.mark.long, pytest.mark.timeout(900))
PROPERTY = settings(max_examples=60, deadline=None)


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
@pytest.mark.parametrize("rounds", [1, pytest.param(20, marks=LONG)])
def test_what_is_taken_for_confined_touches_nothing_outside(tmp_path: Path, rounds: int) -> None:
    """Runs what passes, in a folder that the test throws away."""
    counts = [0, 0]

    @settings(PROPERTY, max_examples=60 * rounds)
    @given(st.lists(_LINES, min_size=20, max_size=20))
    def check(texts: list[str]) -> None:
        with TemporaryDirectory(dir=tmp_path) as name:
            root = Path(name).resolve()
            workspace = _furnish(root)
            guard = Guard(ExecSettings(), PathGuard(workspace), must_confine=True)
            for text in texts:
                line = text.replace("@", str(root / "outside"))
                counts[0] += 1
                if guard.refusal(read_command_line(line), workspace):
                    continue
                counts[1] += 1
                done = subprocess.run(
                    ["bash", "--norc", "-c", line],
                    cwd=workspace,
                    stdin=subprocess.DEVNULL,
                    capture_output=True,
                    timeout=20,
                    check=False,
                    env={"PATH": "/usr/bin:/bin", "HOME": str(root / "outside")},
                )
                assert SECRET not in done.stdout + done.stderr, line
                assert _contents(root / "outside") == {"file": SECRET, "inner": b"link"}, line

    check()
    assert counts[1] > counts[0] / 50


def _furnished(make_context: MakeContext, tmp_path: Path) -> FakePluginContext:
    context = make_context(restricted=True, sandbox="none")
    _furnish(tmp_path)
    return context


def _furnish(root: Path) -> Path:
    """Make a workspace with links that lead out of it, and what lies there."""
    workspace = root / "workspace"
    (workspace / "folder").mkdir(parents=True)
    (root / "outside").mkdir()
    (root / "outside" / "file").write_bytes(SECRET)
    (root / "outside" / "inner").write_bytes(b"link")
    (workspace / "in.txt").write_text("a b\nx\n")
    (workspace / "folder" / "inner.txt").write_text("x\n")
    (workspace / "folder" / "in.txt").symlink_to("../../outside/file")
    (workspace / "folder" / "loose").symlink_to("../../outside/new")
    (workspace / "link").symlink_to("../outside")
    (workspace / "loose").symlink_to(root / "outside" / "new")
    return workspace


def _contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def _plant_canary(tmp_path: Path) -> Path:
    canary = tmp_path / "outside" / "box" / "canary"
    canary.parent.mkdir(parents=True)
    canary.write_text("alive")
    return canary
