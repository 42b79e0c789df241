"""`plugins bisect` with plugins that leave a trace when they start."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from nanobot_devkit.bisection import BisectImpossible, Candidates, Step, Trial, find_cause, narrowed
from nanobot_devkit.culprit import Names, Verdict, smallest_failing

Run = Callable[..., subprocess.CompletedProcess[str]]
RUN_LIMIT_S = 100.0
IDS = ("ash", "birch", "cedar", "elm", "fir")
PLUGIN = """
import os
from pathlib import Path
from nanobot_core import on

@on.start
def start(ctx):
    with Path(os.environ["TRACE"]).open("a") as trace:
        trace.write(ctx.id + " ")

@on.before_turn
def listen(event): ...
"""
PROGRAM = """
import asyncio, os, sys, time
from pathlib import Path
from nanobot_core import Nanobot

async def main():
    Path(os.environ["TRACE"]).write_text("")
    async with Nanobot.from_config(home=Path(os.environ["NANOBOT_HOME"])):
        pass

asyncio.run(main())
started = set(Path(os.environ["TRACE"]).read_text().split())
"""


@pytest.fixture
def trees(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Installs five plugins; returns the folder of the program to be bisected."""
    site = tmp_path / "site"
    for plugin_id in IDS:
        package = site / f"acme_{plugin_id}"
        info = site / f"acme_{plugin_id}-1.0.dist-info"
        package.mkdir(parents=True)
        info.mkdir()
        (package / "__init__.py").write_text(PLUGIN, "utf-8")
        manifest = {"id": plugin_id, "schema_version": 1, "hooks": {"start": 1, "before_turn": 1}}
        (package / "nanobot-plugin.json").write_text(json.dumps(manifest), "utf-8")
        text = f"Metadata-Version: 2.1\nName: acme-{plugin_id}\nVersion: 1.0\n"
        (info / "METADATA").write_text(text, "utf-8")
        (info / "entry_points.txt").write_text(
            f"[nanobot]\n{plugin_id} = acme_{plugin_id}\n"
            f"[nanobot.manifest]\n{plugin_id} = acme_{plugin_id}\n",
            "utf-8",
        )
    monkeypatch.setenv("PYTHONPATH", str(site))
    monkeypatch.setenv("TRACE", str(tmp_path / "trace"))
    return tmp_path


def program(folder: Path, ending: str) -> tuple[str, str]:
    """Return the command that starts all plugins and then does `ending`."""
    file = folder / "program.py"
    file.write_text(PROGRAM + ending, "utf-8")
    return sys.executable, str(file)


@pytest.mark.promise(36)
@pytest.mark.timeout(RUN_LIMIT_S)
def test_the_plugin_that_makes_a_command_fail_is_named(nanobot: Run, trees: Path) -> None:
    home = trees / "home"
    home.mkdir()
    config = "# mine\nplugins:\n  required: [cedar]\n  disabled: [fir]\n"
    (home / "config.yaml").write_text(config, "utf-8")
    command = program(trees, "assert 'fir' not in started\nassert 'cedar' not in started, 'timber'")

    done = nanobot("plugins", "bisect", "--", *command)

    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == "1. with all 4 plugins: fails (exit code 1: AssertionError: timber)"
    assert lines[1] == "2. with no third-party plugin: passes"
    assert "The command fails because of 'cedar'. Next:" in lines
    assert lines[-1] == "  nanobot plugins disable cedar"
    assert (home / "config.yaml").read_text("utf-8") == config


@pytest.mark.promise(36)
@pytest.mark.timeout(RUN_LIMIT_S)
@pytest.mark.long
def test_two_plugins_that_fail_only_together_are_named_and_untestable_runs_skipped(
    nanobot: Run, trees: Path
) -> None:
    command = program(
        trees,
        "sys.exit(125 if 'ash' in started and len(started) < 4 else {'birch', 'fir'} <= started)",
    )

    done = nanobot("plugins", "bisect", "--json", "--", *command)

    assert done.returncode == 0, done.stdout + done.stderr
    data = json.loads(done.stdout)
    assert data["cause"] == ["birch", "fir"]
    assert {each["result"] for each in data["steps"]} == {"passes", "fails", "cannot be tested"}


NOTHING = Candidates(names=IDS, disabled=(), required=())


def has_ended(pid: int) -> bool:
    """Whether a process is gone, or only waits for its parent to notice."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except FileNotFoundError:
        return True


def test_a_command_that_hangs_counts_as_failed_and_is_ended_with_its_children(
    tmp_path: Path,
) -> None:
    pid = tmp_path / "pid"

    step = Trial(["sh", "-c", f"sleep 600 & echo $! > {pid}; wait"], 1, 2, NOTHING)(IDS)

    assert (step.verdict, step.how) == (Verdict.FAILS, "no end within 2 s")
    assert has_ended(int(pid.read_text()))


def test_a_failure_in_any_of_the_repeated_runs_counts(tmp_path: Path) -> None:
    once = f"test -e {tmp_path}/seen && exit 3; touch {tmp_path}/seen"

    step = Trial(["sh", "-c", once], 5, 10, NOTHING)(IDS)

    assert (step.verdict, step.how) == (Verdict.FAILS, "exit code 3")


def test_a_command_that_cannot_be_started_is_refused() -> None:
    with pytest.raises(BisectImpossible, match="cannot start 'no-such-program'"):
        Trial(["no-such-program"], 1, 10, NOTHING)(IDS)


@pytest.mark.parametrize(
    ("everything", "nothing", "expected"),
    [
        (Verdict.PASSES, Verdict.PASSES, "with all plugins, the command passes"),
        (Verdict.SKIPPED, Verdict.PASSES, "with all plugins, the command cannot be tested"),
        (Verdict.FAILS, Verdict.FAILS, "without any third-party plugin, the command fails"),
    ],
)
def test_a_command_from_which_nothing_can_be_learned_is_refused(
    everything: Verdict, nothing: Verdict, expected: str
) -> None:
    def judge(names: Names) -> Step:
        return Step(names, everything if names else nothing, "")

    with pytest.raises(BisectImpossible, match=expected):
        find_cause(NOTHING, judge, lambda _: None)


def test_without_third_party_plugins_the_command_is_not_run(nanobot: Run, tmp_path: Path) -> None:
    words = ("--safe", "plugins", "bisect", "--", "touch", str(tmp_path / "ran"))

    done = nanobot(*words)

    assert done.returncode == 1
    assert "no third-party plugin is enabled" in done.stderr
    assert not (tmp_path / "ran").exists()


NAMES = tuple("abcdefgh")


@given(cause=st.sets(st.sampled_from(NAMES), min_size=1, max_size=3))
def test_the_smallest_failing_part_is_the_cause(cause: set[str]) -> None:
    tried: list[Names] = []

    def judge(part: Names) -> Verdict:
        tried.append(part)
        return Verdict.FAILS if cause <= {*part} else Verdict.PASSES

    assert set(smallest_failing(NAMES, judge)) == cause
    assert len(tried) == len(set(tried))
    if len(cause) == 1:
        assert len(tried) <= 6


@given(
    cause=st.sets(st.sampled_from(NAMES), min_size=1, max_size=2),
    untestable=st.sets(st.frozensets(st.sampled_from(NAMES)), max_size=20),
)
def test_what_is_found_fails_also_if_some_parts_cannot_be_tested(
    cause: set[str], untestable: set[frozenset[str]]
) -> None:
    def judge(part: Names) -> Verdict:
        if frozenset(part) in untestable:
            return Verdict.SKIPPED
        return Verdict.FAILS if cause <= {*part} else Verdict.PASSES

    assert cause <= set(smallest_failing(NAMES, judge))


def test_a_second_cause_is_reported_instead_of_half_of_the_truth() -> None:
    def judge(names: Names) -> Step:
        is_failing = "ash" in names or "elm" in names
        return Step(names, Verdict.FAILS if is_failing else Verdict.PASSES, "")

    with pytest.raises(BisectImpossible, match="second cause"):
        find_cause(NOTHING, judge, lambda _: None)


def test_what_is_left_out_is_not_required_and_what_was_disabled_remains_so() -> None:
    candidates = Candidates(names=("a", "b"), disabled=("old",), required=("b", "files"))

    assert narrowed(candidates, ["a"]) == {
        "NANOBOT_PLUGINS__DISABLED": '["old", "b"]',
        "NANOBOT_PLUGINS__REQUIRED": '["files"]',
    }
