"""``nanobot onboard --from-nanobot-ai``."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from shutil import copytree

import pytest

from tests.integration.cli.conftest import CommandLine

HOMES = Path(__file__).parents[2] / "original_homes"
LIMIT_S = 20.0


@pytest.fixture
def source(tmp_path: Path) -> Path:
    copytree(HOMES / "0.3.5", tmp_path / "original")
    return tmp_path / "original"


def content(folder: Path) -> dict[str, bytes | str]:
    """Return each file of a folder with what it holds, and each link with where it leads."""
    return {
        str(path.relative_to(folder)): str(path.readlink())
        if path.is_symlink()
        else path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_symlink() or path.is_file()
    }


def move(nanobot: CommandLine, source: Path, *words: str, code: int = 0) -> dict[str, object]:
    done = nanobot("onboard", "--from-nanobot-ai", str(source), "--json", *words, code=code)
    found: dict[str, object] = json.loads(done.stdout)
    return found


def findings(found: dict[str, object]) -> dict[str, str]:
    listed = found["findings"]
    assert isinstance(listed, list)
    return {each["where"]: each["reason"] for each in listed}


def test_everything_is_shown_first_and_nothing_is_written(bare: CommandLine, source: Path) -> None:
    before = content(source)
    shown = bare("onboard", "--from-nanobot-ai", str(source), "--dry-run").stdout

    for part in ("configuration", "conversations", "scheduled jobs", "memory", "skills"):
        assert f"\n{part}\t" in shown
    assert "telegram:42" in shown
    assert not (bare.home / "config.yaml").exists()
    assert content(source) == before


def test_the_original_stays_unchanged(bare: CommandLine, source: Path) -> None:
    before = content(source)
    move(bare, source, "--yes")

    assert content(source) == before
    assert (bare.home / "config.yaml").stat().st_mode & 0o077 == 0
    assert json.loads((bare.home / "gateway" / "owner.json").read_text()) == ["telegram", "42"]


def test_a_second_run_changes_nothing(bare: CommandLine, source: Path) -> None:
    assert move(bare, source, "--yes")["status"] == "moved"
    (bare.home / "workspace" / "new.md").write_text("since then")
    before = content(bare.home)

    assert move(bare, source, "--yes")["status"] == "already moved"
    after = content(bare.home)
    assert {name: after[name] for name in before if "cache" not in name} == {
        name: text for name, text in before.items() if "cache" not in name
    }


def test_without_a_terminal_it_wants_an_answer(bare: CommandLine, source: Path) -> None:
    done = bare("onboard", "--from-nanobot-ai", str(source), code=2)

    assert "--yes" in done.stderr
    assert not (bare.home / "config.yaml").exists()


def test_a_person_is_asked(bare: CommandLine, source: Path) -> None:
    with bare.on_terminal("onboard", "--from-nanobot-ai", str(source)) as terminal:
        terminal.expect("Move in?")
        terminal.send("y\r")
        terminal.expect("copying")  # the bar
        terminal.expect("Moved in.")
        assert terminal.wait() == 0


def test_a_home_in_use_is_replaced_only_if_that_is_wanted(bare: CommandLine, source: Path) -> None:
    bare.configure("owner: [me]\n")
    former = bare.home.with_name("home.replaced-1")
    refused = bare("onboard", "--from-nanobot-ai", str(source), "--yes", code=1)
    assert "--replace" in refused.stderr
    assert (bare.home / "config.yaml").read_text() == "owner: [me]\n"

    found = move(bare, source, "--yes", "--replace")
    assert found["former_home_becomes"] == str(former)
    assert (former / "config.yaml").read_text() == "owner: [me]\n"
    assert "garden-model" in (bare.home / "config.yaml").read_text()


def test_the_original_may_be_where_the_new_home_belongs(bare: CommandLine, source: Path) -> None:
    copytree(source, bare.home, dirs_exist_ok=True)
    before = content(bare.home)
    move(bare, bare.home, "--yes", "--replace")

    kept = content(bare.home.with_name("home.replaced-1"))
    assert {name: kept[name] for name in before} == before
    assert "garden-model" in (bare.home / "config.yaml").read_text()
    assert move(bare, bare.home, "--yes")["status"] == "already moved"


def test_what_cannot_be_moved_is_named_and_what_is_unknown_is_kept(
    bare: CommandLine, source: Path
) -> None:
    workspace = source / "workspace"
    (workspace / "outside").symlink_to("/etc")
    (workspace / "inside").symlink_to("notes.md")
    (workspace / "notes.md").write_text("mine")
    os.mkfifo(workspace / "pipe")
    (workspace / "cron" / "jobs.json").write_text('{"version": 1, "jobs": [')
    (source / "invention").mkdir()
    (source / "invention" / "a.txt").write_text("new")
    (source / "whatsapp-auth").mkdir()
    (source / "whatsapp-auth" / "neonize.db").write_bytes(b"key")
    session = next(source.glob("sessions/*/dG*.jsonl"))
    session.write_bytes(session.read_bytes() + b'{"role": "us')
    found = move(bare, source, "--yes")

    named = findings(found)
    assert "leads out of the folder" in named["workspace/outside"]
    assert "pipe" in named["workspace/pipe"]
    assert "cannot be read" in named["workspace/cron/jobs.json"]
    assert "one line cannot be read" in named[str(session.relative_to(source))]
    assert "sign in again" in named["whatsapp-auth"]
    assert (bare.home / "nanobot-ai" / "invention" / "a.txt").read_text() == "new"
    assert (bare.home / "workspace" / "inside").read_text() == "mine"
    assert not os.path.lexists(bare.home / "workspace" / "outside")
    report = json.loads((bare.home / "moved-in.json").read_text())
    assert report["findings"] == found["findings"]
    assert found["failed"] == []


def test_a_damaged_configuration_is_kept_and_the_rest_moves(
    bare: CommandLine, source: Path
) -> None:
    (source / "config.json").write_text('{"agents": {"defaults"')
    found = move(bare, source, "--yes")

    assert "config.json" in findings(found)
    kept = bare.home / "nanobot-ai" / "config.json"
    assert kept.read_text() == '{"agents": {"defaults"'
    assert "telegram:42" in bare("sessions", "list").stdout


def test_values_without_a_counterpart_are_listed_and_defaults_are_not(
    bare: CommandLine, source: Path
) -> None:
    config = json.loads((source / "config.json").read_text())
    config["agents"]["defaults"]["botName"] = "Robbie"
    config["channels"]["mattermost"]["enabled"] = True
    config["channels"]["mattermost"]["token"] = "made-up"
    (source / "config.json").write_text(json.dumps(config))
    named = findings(move(bare, source, "--yes"))

    assert "no effect" in named["agents.defaults.bot_name"]
    assert "channels.mattermost" in named
    assert not [name for name in named if name.startswith(("transcription", "agents.defaults.d"))]


def test_approved_senders_stay_approved(bare: CommandLine, source: Path) -> None:
    approved = {"approved": {"telegram": ["77"]}, "pending": {}}
    (source / "pairing.json").write_text(json.dumps(approved))
    move(bare, source, "--yes")

    assert "77" in bare("pairing", "list", "--json").stdout


def test_several_people_have_no_owner_until_one_is_named(bare: CommandLine, source: Path) -> None:
    config = json.loads((source / "config.json").read_text())
    config["channels"]["telegram"]["allowFrom"] = ["42", "43"]
    (source / "config.json").write_text(json.dumps(config))
    shown = move(bare, source, "--dry-run")

    assert shown["owner"] == []
    assert "owner" in findings(shown)
    found = move(bare, source, "--yes", "--owner", "telegram:43")
    assert found["owner"] == ["telegram:43"]
    assert "telegram:43" in (bare.home / "config.yaml").read_text()


@pytest.mark.parametrize("kind", ["empty", "ours", "absent"])
def test_a_folder_that_is_no_home_of_nanobot_ai_is_refused(
    bare: CommandLine, tmp_path: Path, kind: str
) -> None:
    folder = tmp_path / "folder"
    if kind != "absent":
        folder.mkdir()
    if kind == "ours":
        (folder / "config.yaml").touch()
    done = bare("onboard", "--from-nanobot-ai", str(folder), "--yes", code=1)

    assert str(folder) in done.stderr
    assert not (bare.home / "config.yaml").exists()


def test_a_workspace_elsewhere_is_copied(bare: CommandLine, source: Path, tmp_path: Path) -> None:
    (source / "workspace").rename(tmp_path / "elsewhere")
    config = json.loads((source / "config.json").read_text())
    config["agents"]["defaults"]["workspace"] = str(tmp_path / "elsewhere")
    (source / "config.json").write_text(json.dumps(config))
    move(bare, source, "--yes")

    assert "Rosinante" in (bare.home / "workspace" / "memory" / "MEMORY.md").read_text()
    assert str(tmp_path / "elsewhere") not in (bare.home / "config.yaml").read_text()


def test_a_kill_leaves_no_home_and_the_next_run_completes(bare: CommandLine, source: Path) -> None:
    for number in range(400):
        (source / "workspace" / f"{number}.bin").write_bytes(bytes(50_000))
    staging = bare.home.with_name(".home.new")
    words = ("onboard", "--from-nanobot-ai", str(source), "--yes")
    process = subprocess.Popen([*bare.command, *words], env=bare.environ, stdout=subprocess.DEVNULL)
    end = time.monotonic() + LIMIT_S
    while not (staging / "workspace" / "1.bin").exists():
        assert process.poll() is None
        assert time.monotonic() < end
    process.send_signal(signal.SIGKILL)
    process.wait()

    assert not (bare.home / "config.yaml").exists()
    move(bare, source, "--yes")
    assert len(list((bare.home / "workspace").glob("*.bin"))) == 400
    assert not staging.exists()


def test_a_disk_without_room_leaves_everything_as_it_was(bare: CommandLine, source: Path) -> None:
    (source / "workspace" / "large.bin").write_bytes(bytes(3_000_000))
    bare("sessions", "list")  # writes the cache, which the limit would stop
    limit = (
        "import resource, runpy, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (2_000_000,) * 2);"
        "runpy.run_module('nanobot_core', run_name='__main__', alter_sys=True)"
    )
    words = ("onboard", "--from-nanobot-ai", str(source), "--yes")
    done = subprocess.run(
        [sys.executable, "-c", limit, *words],
        env=bare.environ,
        capture_output=True,
        text=True,
        timeout=LIMIT_S * 3,
        check=False,
    )

    assert done.returncode == 1
    assert "Moved in" not in done.stdout
    assert not (bare.home / "config.yaml").exists()
    assert not bare.home.with_name(".home.new").exists()
