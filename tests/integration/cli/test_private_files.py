"""What nanobot creates is for its owner alone, from the first moment and under any umask."""

from __future__ import annotations

import json
import shutil
import stat
from dataclasses import replace
from pathlib import Path

from tests.integration.cli.conftest import CONFIG, CommandLine
from tests.integration.cli.test_gateway import running

UMASK = "000"
"""It takes no right away, so that whatever is left to the umask is open to everyone."""


def careless(nanobot: CommandLine) -> CommandLine:
    """Return the command line of someone whose files are open to everyone."""
    shell = ("/bin/sh", "-c", f'umask {UMASK}; exec "$@"', "sh")
    return replace(nanobot, command=(*shell, *nanobot.command))


def loose(home: Path) -> dict[str, str]:
    """Return the modes of what is not for its owner alone, or not for its owner either."""
    found = {}
    for path in (home, *home.rglob("*")):
        mode = stat.S_IMODE(path.lstat().st_mode)
        wanted = 0o700 if path.is_dir() else 0o600
        if mode != wanted:
            found[str(path.relative_to(home))] = oct(mode)
    return found


def test_onboarding_and_a_gateway_leave_nothing_open(nanobot: CommandLine) -> None:
    shutil.rmtree(nanobot.home)

    careless(nanobot)("onboard", "--yes")
    assert loose(nanobot.home) == {}
    with running(careless(nanobot)):
        nanobot("agent", "-m", "call it")
        assert loose(nanobot.home) == {}


def test_a_single_answer_without_onboarding_leaves_nothing_open(nanobot: CommandLine) -> None:
    config = nanobot.home.with_name("config.yaml")
    config.write_text(CONFIG)
    shutil.rmtree(nanobot.home)

    careless(nanobot)("--config", str(config), "agent", "-m", "call it")

    assert (nanobot.home / "cache").is_dir()
    assert loose(nanobot.home) == {}


def test_a_start_closes_a_home_that_others_could_look_into(nanobot: CommandLine) -> None:
    nanobot.home.chmod(0o755)
    assert "other accounts can read" in _finding(nanobot, "home")["message"]
    assert stat.S_IMODE(nanobot.home.stat().st_mode) == 0o755  # looking changes nothing

    done = nanobot("agent", "-m", "hello")

    assert done.stderr == ""
    log = (nanobot.home / "logs" / "nanobot.log").read_text()
    assert "was open to other accounts" in log
    assert stat.S_IMODE(nanobot.home.stat().st_mode) == 0o700


def test_the_doctor_closes_a_loose_home_when_asked_to(nanobot: CommandLine) -> None:
    nanobot.home.chmod(0o775)
    assert _finding(nanobot, "home", "--fix")["status"] == "ok"
    assert stat.S_IMODE(nanobot.home.stat().st_mode) == 0o700


def test_a_whole_home_of_a_person_is_left_as_it_is(nanobot: CommandLine) -> None:
    nanobot.home.chmod(0o755)
    nanobot.changes["HOME"] = str(nanobot.home)
    nanobot("agent", "-m", "hello")
    assert stat.S_IMODE(nanobot.home.stat().st_mode) == 0o755
    assert _finding(nanobot, "home", "--fix")["status"] == "warning"


def test_damaged_files_that_are_kept_are_named_until_they_are_removed(
    nanobot: CommandLine,
) -> None:
    folder, of_plugin = nanobot.home / "gateway", nanobot.home / "plugins" / "cron"
    kept, jobs = folder / "bus.sqlite.corrupt-1", of_plugin / "jobs.json.corrupt-1"
    for file in (kept, folder / "bus.sqlite.corrupt-1-wal", jobs):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()

    found = json.loads(nanobot("doctor", "--json", code=1).stdout)
    reported = [item["message"] for item in found if item["name"] == "damage"]
    assert all(
        f"kept as {each};" in text for each, text in zip((kept, jobs), reported, strict=True)
    )
    shown = json.loads(nanobot("status", "--json").stdout)["trouble"]
    assert shown == [f"a damaged file is kept as {each}" for each in (kept, jobs)]
    with running(nanobot):
        assert str(kept) in nanobot("gateway", "status").stdout


def _finding(nanobot: CommandLine, name: str, *args: str) -> dict[str, str]:
    found = json.loads(nanobot("doctor", "--json", *args, code=1).stdout)
    (item,) = (item for item in found if item["name"] == name)
    return dict(item)
