"""``nanobot cron``: each command, its output and its exit code."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable

import pytest
from typer.testing import CliRunner, Result

from nanobot_core import CommandCall, TurnInfo
from nanobot_core.testing import FakePluginContext
from nanobot_cron.commands import app
from nanobot_cron.replies import answer_cron

Run = Callable[..., Result]


class Line:
    """The terminal of an agent in this process."""

    def __init__(self, ctx: FakePluginContext) -> None:
        self._ctx = ctx
        self.works = True

    def slash(self, text: str) -> str:
        if not self.works:
            return "Unknown command /cron."
        name, _, rest = text.removeprefix("/").partition(" ")
        turn = TurnInfo(
            id="t",
            session_key="cli:commands",
            channel="cli",
            chat_id="direct",
            sender_id="user",
            source="cli",
            is_owner=True,
        )
        call = CommandCall(turn=turn, name=name, text=rest, is_owner=True)
        return asyncio.run(answer_cron(self._ctx, call))


@pytest.fixture
def line(ctx: FakePluginContext) -> Line:
    return Line(ctx)


@pytest.fixture
def run(line: Line) -> Run:
    def run(*words: str, code: int = 0) -> Result:
        result = CliRunner().invoke(app, words, obj=line, env={"COLUMNS": "120"})
        assert result.exit_code == code, result.output
        return result

    return run


def test_jobs_are_added_listed_switched_and_removed(run: Run) -> None:
    text = run("add", "Say hello", "--cron", "0 7 * * mon-fri", "--to", "telegram:42").stdout
    job_id = text.split()[2]
    added = run(
        "add", "Look", "--every", "2h", "--deliver", "never", "--name", "A\x1b[2J", "--json"
    )
    rows = [line.split() for line in run("list").stdout.splitlines()]

    assert "every weekday at 07:00 (Europe/Berlin)" in text
    assert json.loads(added.stdout)["job"]["when"] == "every 2 hours"
    assert rows[0] == ["ID", "WHEN", "NEXT", "LAST", "CHAT", "NAME"]
    assert [row[0] for row in rows[1:]] == [
        json.loads(added.stdout)["job"]["id"],
        job_id,
        "tidy",
    ]
    assert rows[1][4:] == ["2026-11-23", "12:30", "-", "-", "A(2J"]
    assert rows[2][-4:] == ["-", "telegram:42", "Say", "hello"]
    assert "(plugin acme) remove old files" in run("list").stdout

    assert run("disable", job_id).stdout == f"Disabled job {job_id}.\n"
    assert "disabled" in run("list").stdout
    assert "next run Tue 24 Nov 07:00" in run("enable", job_id).stdout
    assert run("run", job_id).stdout == f"Job {job_id} runs now.\n"
    assert "running" in run("list").stdout
    assert run("history", job_id).stdout == f"Job {job_id} has not run.\n"
    assert json.loads(run("history", job_id, "--json").stdout) == []
    assert "Removed" in run("remove", job_id).stdout
    assert len(json.loads(run("list", "--json").stdout)) == 2


@pytest.mark.parametrize(
    ("words", "code", "reason"),
    [
        (["add", "x"], 1, "exactly one of --at, --every, --cron, --on"),
        (["add", "x", "--every", "soon"], 2, "30m, 2h or 1d"),
        (["add", "x", "--on", "file", "--option", "path"], 2, "KEY=VALUE"),
        (["add", "x", "--every", "1h", "--deliver", "often"], 1, "deliver must be one of"),
        (["remove", "tidy"], 1, "managed by plugin 'acme'"),
        (["run", "unknown"], 1, "no job 'unknown'"),
        (["run", 'a" b'], 2, "does not exist"),
        (["history", " "], 2, "does not exist"),
    ],
)
def test_an_error_is_on_stderr_with_its_exit_code(
    run: Run, words: list[str], code: int, reason: str
) -> None:
    result = run(*words, code=code)

    assert reason in result.stderr
    assert result.stdout == ""


def test_an_answer_that_is_no_object_is_an_error(run: Run, line: Line) -> None:
    line.works = False

    assert "Unknown command /cron." in run("list", code=1).stderr
