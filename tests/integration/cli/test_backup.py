"""``nanobot backup`` and ``nanobot restore``."""

from __future__ import annotations

import gzip
import io
import json
import os
import signal
import sqlite3
import subprocess
import tarfile
import time
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import pytest

from nanobot_core.moving.place import is_blank
from tests.integration.cli.conftest import CommandLine
from tests.integration.cli.test_moving_in import LIMIT_S, content

KEY = "sk-proj-0123456789abcdefABCDEF"
CONFIG = f"""\
# before that: sk-proj-old3456789abcdefABCDEF
agents: {{defaults: {{model: "gpt-5"}}}}
providers:
  openai:
    api_key: {KEY}  # mine
  other: {{api_key: "${{OTHER_KEY}}"}}
gateway:
  secret: 'hunter2 hunter2'
"""


WRITER = """
import itertools, json, sqlite3, sys
base = sqlite3.connect(sys.argv[1] + "/busy.sqlite")
base.execute("PRAGMA journal_mode=WAL")
base.execute("CREATE TABLE pairs (left, right)")
log = open(sys.argv[1] + "/log.jsonl", "a", buffering=7)
for number in itertools.count():
    with base:
        base.execute("INSERT INTO pairs VALUES (?, ?)", (number, None))
        base.execute("UPDATE pairs SET right = left WHERE left = ?", (number,))
    log.write(json.dumps({"number": number, "text": "x" * 500}) + "\\n")
    if number == 20:
        print("ready", flush=True)
"""


def restored(nanobot: CommandLine, home: Path, *words: str, code: int = 0) -> str:
    nanobot.changes["NANOBOT_HOME"] = str(home)
    try:
        done = nanobot("restore", *words, code=code)
        return done.stderr if code else done.stdout
    finally:
        del nanobot.changes["NANOBOT_HOME"]


@pytest.fixture
def lived(bare: CommandLine) -> CommandLine:
    """A home that was in use."""
    bare.configure(CONFIG)
    files = {
        "workspace/AGENTS.md": "Be kind.\n",
        "workspace/sessions/a.jsonl": '{"role": "user"}\n{"role": "assis',
        "workspace/notes/README.md": "mine",
        "workspace/notes/readme.md": "also mine",
        "plugins/openai/tokens/codex.json": '{"access": "token-of-codex-12345"}',
        "plugins/openai/models.json": "{}",
        "plugins/removed/state.json": '{"token": "token-of-nobody-12345"}',
        "gateway/pairing.json": "{}",
        "gateway/approvals.json": "{}",
        "gateway.env": "OTHER_KEY=token-of-the-service-1\n",
        "logs/nanobot.log": "x",
        "media/1/photo.jpg": "jpg",
    }
    for name, text in files.items():
        path = bare.home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (bare.home / "workspace" / "notes" / "link").symlink_to("../AGENTS.md")
    (bare.home / "workspace" / "run.sh").write_text("#!/bin/sh\n")
    (bare.home / "workspace" / "run.sh").chmod(0o755)
    with sqlite3.connect(bare.home / "gateway" / "bus.sqlite") as bus:
        bus.execute("CREATE TABLE messages (id)")
    return bare


def test_a_backup_holds_everything_but_secrets_and_what_is_made_again(lived: CommandLine) -> None:
    file = lived.home.parent / "home.tar.gz"
    found = json.loads(lived("backup", str(file), "--json").stdout)
    with tarfile.open(file) as tar:
        names = {member.name for member in tar if not member.isdir()}
    plain = gzip.decompress(file.read_bytes())

    assert file.stat().st_mode & 0o777 == 0o600
    assert {
        "config.yaml",
        "workspace/sessions/a.jsonl",
        "workspace/notes/README.md",
        "workspace/notes/readme.md",
        "workspace/notes/link",
        "plugins/openai/models.json",
        "gateway/pairing.json",
        "media/1/photo.jpg",
    } <= names
    left = {"gateway/bus.sqlite", "gateway/approvals.json", "gateway.env", "logs/nanobot.log"}
    left |= {"plugins/openai/tokens/codex.json", "plugins/removed/state.json"}
    assert not left & names
    for secret in (KEY, "sk-proj-old", "hunter2", "token-of-"):
        assert secret.encode() not in plain
    assert set(found["secrets"]) == {
        "providers.openai.api_key",
        "gateway.secret",
        "gateway.env",
        "plugins/openai/tokens/codex.json",
        "plugins/removed/state.json",
    }
    assert found["left_out"] == []


def test_a_restored_home_is_the_same_but_for_what_it_names(lived: CommandLine) -> None:
    file, home = lived.home.parent / "home.tar.gz", lived.home.parent / "other"
    lived("backup", str(file))
    before = content(lived.home)
    said = restored(lived, home, str(file))
    text = (home / "config.yaml").read_text()

    assert "PROVIDERS_OPENAI_API_KEY  (providers.openai.api_key)" in said
    assert "plugins/openai/tokens/codex.json" in said
    assert 'api_key: "${PROVIDERS_OPENAI_API_KEY}"  # mine' in text
    assert '{api_key: "${OTHER_KEY}"}' in text
    after = content(home)
    assert after["workspace/sessions/a.jsonl"] == b'{"role": "user"}\n'
    same = [
        name for name in after if name.startswith(("workspace/notes", "media", "plugins/openai"))
    ]
    assert {name: after[name] for name in same} == {name: before[name] for name in same}
    assert (home / "workspace" / "run.sh").stat().st_mode & 0o777 == 0o700
    assert (home / "workspace" / "notes" / "README.md").stat().st_mode & 0o777 == 0o600


def test_with_the_file_of_secrets_nothing_is_missing(lived: CommandLine) -> None:
    file, apart = lived.home.parent / "home.tar.gz", lived.home.parent / "secrets.tar.gz"
    home = lived.home.parent / "other"
    lived("backup", str(file), "--secrets", str(apart))
    found = json.loads(restored(lived, home, str(file), "--secrets", str(apart), "--json"))

    assert apart.stat().st_mode & 0o777 == 0o600
    assert found["secrets"] == []
    assert (home / "config.yaml").read_text() == (lived.home / "config.yaml").read_text()
    for name in ("gateway.env", "plugins/openai/tokens/codex.json", "plugins/removed/state.json"):
        assert (home / name).read_bytes() == (lived.home / name).read_bytes()


def test_the_secrets_of_another_backup_are_refused(lived: CommandLine) -> None:
    folder = lived.home.parent
    for name in "ab":
        lived("backup", str(folder / name), "--secrets", str(folder / f"{name}-secrets"))
    said = restored(
        lived, folder / "new", str(folder / "a"), "--secrets", str(folder / "b-secrets"), code=1
    )
    swapped = restored(lived, folder / "new", str(folder / "a-secrets"), code=1)

    assert "another backup" in said
    assert "not the backup of a home" in swapped
    assert is_blank(folder / "new")


def test_existing_files_are_kept_unless_replaced(lived: CommandLine) -> None:
    file = lived.home.parent / "home.tar.gz"
    file.write_text("older")
    assert "--replace" in lived("backup", str(file), code=1).stderr
    assert file.read_text() == "older"
    absent = str(lived.home.parent / "absent" / "b.tar.gz")
    assert "does not exist" in lived("backup", absent, code=1).stderr
    assert "is no file" in restored(lived, lived.home.parent / "new", absent, code=1)
    assert "in nanobot's folder" in lived("backup", str(lived.home / "b.tar.gz"), code=1).stderr

    lived("backup", str(file), "--replace")
    assert "--replace" in lived("restore", str(file), code=1).stderr
    lived("restore", str(file), "--replace")
    kept = lived.home.with_name(f"{lived.home.name}.replaced-1")
    assert KEY in (kept / "config.yaml").read_text()
    assert KEY not in (lived.home / "config.yaml").read_text()


def test_a_workspace_elsewhere_is_kept_and_named(lived: CommandLine) -> None:
    folder = lived.home.parent
    (folder / "work").mkdir()
    (folder / "work" / "plan.md").write_text("the plan")
    lived.configure(f"agents: {{defaults: {{workspace: '{folder / 'work'}'}}}}\n")
    lived("backup", str(folder / "b.tar.gz"))
    said = restored(lived, folder / "new", str(folder / "b.tar.gz"))

    assert str(folder / "work") in said
    assert (folder / "new" / "workspace" / "plan.md").read_text() == "the plan"
    assert not (folder / "new" / "workspace" / "notes").exists()


def test_databases_and_logs_are_whole_while_they_are_written(lived: CommandLine) -> None:
    folder = lived.home / "plugins" / "usage"
    folder.mkdir(parents=True, exist_ok=True)
    writer = subprocess.Popen(
        [
            *(lived.command[0], "-c"),
            WRITER,
            str(folder),
        ],
        stdout=subprocess.PIPE,
    )
    try:
        assert writer.stdout is not None
        writer.stdout.readline()
        lived("backup", str(lived.home.parent / "b.tar.gz"))
    finally:
        writer.kill()
        writer.communicate()
    home = lived.home.parent / "new"
    restored(lived, home, str(lived.home.parent / "b.tar.gz"))

    with sqlite3.connect(home / "plugins" / "usage" / "busy.sqlite") as base:
        count, torn = base.execute("SELECT count(*), sum(right IS NULL) FROM pairs").fetchone()
        assert base.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    assert count > 20
    assert torn == 0
    for line in (home / "plugins" / "usage" / "log.jsonl").read_text().splitlines():
        assert len(json.loads(line)["text"]) == 500


def test_a_killed_backup_leaves_no_file_and_the_next_one_sweeps(lived: CommandLine) -> None:
    with (lived.home / "workspace" / "large.bin").open("wb") as large:
        for _ in range(60):
            large.write(os.urandom(1 << 20))
    folder = lived.home.parent / "backups"
    folder.mkdir()
    command = [*lived.command, "backup", str(folder / "b.tar.gz")]
    with subprocess.Popen(command, env={**lived.environ, **lived.changes}) as process:
        deadline = time.monotonic() + LIMIT_S
        while not any(folder.iterdir()) and time.monotonic() < deadline:
            time.sleep(0.001)
        process.send_signal(signal.SIGKILL)
    assert not (folder / "b.tar.gz").exists()
    assert any(folder.iterdir())

    (lived.home / "workspace" / "large.bin").unlink()
    lived("backup", str(folder / "b.tar.gz"))
    assert [path.name for path in folder.iterdir()] == ["b.tar.gz"]


@pytest.mark.parametrize("command", ["backup", "restore"])
def test_a_full_disk_leaves_nothing_half_written(lived: CommandLine, command: str) -> None:
    (lived.home / "workspace" / "large.bin").write_bytes(os.urandom(3_000_000))
    folder, home = lived.home.parent / "backups", lived.home.parent / "new"
    folder.mkdir()
    lived("backup", str(folder / "first.tar.gz"))
    limited = (
        "import resource, runpy; resource.setrlimit(resource.RLIMIT_FSIZE, (2_000_000,) * 2);"
        "runpy.run_module('nanobot_core', run_name='__main__', alter_sys=True)"
    )
    file = folder / ("second.tar.gz" if command == "backup" else "first.tar.gz")
    done = subprocess.run(
        [lived.command[0], "-c", limited, command, str(file)],
        env={**lived.environ, **({"NANOBOT_HOME": str(home)} if command == "restore" else {})},
        capture_output=True,
        text=True,
        timeout=LIMIT_S * 3,
        check=False,
    )

    assert done.returncode == 1
    assert "File too large" in done.stderr
    assert [path.name for path in folder.iterdir()] == ["first.tar.gz"]
    assert is_blank(home)
    assert not list(home.parent.glob(".new*"))


def test_a_backup_that_was_cut_short_or_changed_is_refused(lived: CommandLine) -> None:
    file, home = lived.home.parent / "b.tar.gz", lived.home.parent / "new"
    lived("backup", str(file))
    data = file.read_bytes()
    for changed in (
        b"",
        b"no archive at all",
        data[: len(data) // 2],
        data[:-8],
        data[:200] + bytes([data[200] ^ 1]) + data[201:],
    ):
        file.write_bytes(changed)
        assert "is no usable backup" in restored(lived, home, str(file), code=1)
    assert is_blank(home)
    assert not list(home.parent.glob(".new*"))


def _file(name: str, data: bytes = b"x") -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name)
    info.size = len(data)
    return info, data


def _special(name: str, kind: bytes, target: str = "") -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info, b""


Members = list[tuple[tarfile.TarInfo, bytes]]


@pytest.mark.parametrize(
    ("members", "reason"),
    [
        ([_file("../out")], "no path in a home"),
        ([_file("/tmp/out")], "no path in a home"),
        ([_file("a/../../out")], "no path in a home"),
        ([_file("a//b")], "no path in a home"),
        ([_file("a\nb")], "no path in a home"),
        ([_special("a", tarfile.SYMTYPE, "/etc")], "leads out"),
        ([_special("a/b", tarfile.SYMTYPE, "../../etc")], "leads out"),
        ([_special("a", tarfile.SYMTYPE, "b/../..")], "leads out"),
        ([_special("a", tarfile.LNKTYPE, "/etc/passwd")], "no file, folder or link"),
        ([_special("a", tarfile.CHRTYPE)], "no file, folder or link"),
        ([_special("a", tarfile.FIFOTYPE)], "no file, folder or link"),
        ([_file("a"), _file("a")], "in it twice"),
        ([_file("a"), _file("a/b")], "in the way"),
        ([_special("a", tarfile.SYMTYPE, "b"), _file("a/b")], "in the way"),
    ],
)
def test_a_hostile_archive_writes_nothing(
    lived: CommandLine, members: Members, reason: str
) -> None:
    def listed(manifest: dict[str, object]) -> dict[str, object]:
        each = {
            info.name: f"link:{info.linkname}" if info.issym() else sha256(data).hexdigest()
            for info, data in members
        }
        return manifest | {"members": each}

    file, home = lived.home.parent / "b.tar.gz", lived.home.parent / "new"
    _forge(lived, file, members, listed)

    assert reason in restored(lived, home, str(file), code=1)
    assert is_blank(home)
    assert not list(home.parent.glob(".new*"))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda manifest: manifest | {"members": {"other": "folder"}}, "not what was written"),
        (lambda manifest: manifest | {"format": 2, "version": "9.0"}, "nanobot 9.0"),
        (lambda manifest: {"format": 1}, "list of members is unusable"),
        (lambda manifest: [], "list of members is unusable"),
    ],
)
def test_an_archive_must_be_what_its_manifest_says(
    lived: CommandLine, change: Callable[[dict[str, object]], object], reason: str
) -> None:
    file, home = lived.home.parent / "b.tar.gz", lived.home.parent / "new"
    _forge(lived, file, [_file("a")], change)

    assert reason in restored(lived, home, str(file), code=1)
    assert is_blank(home)


def test_a_long_name_that_fills_the_memory_is_refused(lived: CommandLine) -> None:
    file = lived.home.parent / "b.tar.gz"
    header = tarfile.TarInfo("././@LongLink")
    header.type, header.size = tarfile.GNUTYPE_LONGNAME, 1 << 33
    with gzip.open(file, "wb") as archive:
        archive.write(header.tobuf(tarfile.GNU_FORMAT))
        archive.write(bytes(1 << 20))

    assert "longer than" in restored(lived, lived.home.parent / "new", str(file), code=1)


def _forge(
    nanobot: CommandLine,
    file: Path,
    members: Members,
    change: Callable[[dict[str, object]], object],
) -> None:
    """Write an archive with these members, and a manifest made of that of a real backup."""
    nanobot("backup", str(file))
    with tarfile.open(file) as tar:
        manifest = json.load(tar.extractfile("nanobot-backup.json"))  # type: ignore[arg-type]
    with tarfile.open(file, "w:gz") as tar:
        for info, data in members:
            tar.addfile(info, io.BytesIO(data))
        text = json.dumps(change(manifest)).encode()
        info = tarfile.TarInfo("nanobot-backup.json")
        info.size = len(text)
        tar.addfile(info, io.BytesIO(text))
