"""What jobs may do after the rights of those who made them have changed."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from nanobot_core.app.client import CHANGE_LIMIT_S, ControlClient
from tests.gateways import Platform, running, until, write_config

pytest.importorskip("nanobot_cron")
pytestmark = pytest.mark.anyio
BOSS = "9"
EVERYONE = ["7", "8", BOSS]


async def make_job(platform: Platform, sender: str) -> str:
    """Have the agent make a job that notes a word, and return its id."""
    task = f"call note {json.dumps({'word': f'of-{sender}'})}"
    arguments = {"action": "add", "message": task, "cron_expr": "0 8 1 1 *"}
    await platform.say(f"call cron {json.dumps(arguments)}", chat=sender, sender=sender)
    answer = await platform.shows("Added job", chat=sender)
    (found,) = re.findall(r"Added job `?([\w-]+)`?", answer["text"])
    return str(found)


def places(home: Path) -> list[str]:
    """Return where words were noted: in the workspace, or in the folder of a guest."""
    workspace = home / "workspace"
    return sorted(
        f"{word} by {file.parent.name.partition('-')[0]}"
        for file in workspace.rglob("notes.txt")
        for word in file.read_text().split()
    )


async def test_a_job_has_the_rights_that_its_creator_has_when_it_runs(tmp_path: Path) -> None:
    async def configure(owners: list[str], admitted: list[str]) -> None:
        rights = {"guests": {"allow": ["cron", "note"]}}
        chatty = {"allow_from": admitted}
        write_config(
            tmp_path, platform, plugins=["cron"], tools=rights, chatty=chatty, owner=owners
        )
        if (tmp_path / "gateway" / "control.sock").exists():
            await ControlClient(tmp_path / "gateway").call("reload", limit_s=CHANGE_LIMIT_S)

    async def run_all() -> list[str]:
        """Let all jobs run by hand, and return where they have noted something."""
        for notes in (tmp_path / "workspace").rglob("notes.txt"):
            notes.unlink()
        before = len(platform.texts(BOSS))
        for job in jobs:
            await platform.say(f"/cron run {job}", chat=BOSS, sender=BOSS)
        await platform.until(lambda: len(platform.texts(BOSS)) >= before + len(jobs))
        await until(are_done)
        return places(tmp_path)

    def are_done() -> bool:
        content = json.loads((tmp_path / "plugins" / "cron" / "jobs.json").read_text())
        return not any(job["state"].get("claim") for job in content["jobs"])

    def answers() -> list[int]:
        return [sum("noted" in text for text in platform.texts(sender)) for sender in ("7", "8")]

    async with Platform() as platform:
        await configure(["7", BOSS], EVERYONE)
        async with running(tmp_path):
            jobs = [await make_job(platform, sender) for sender in ("7", "8")]
            assert await run_all() == ["of-7 by workspace", "of-8 by chatty_8"]
            await configure([BOSS], EVERYONE)
            assert await run_all() == ["of-7 by chatty_7", "of-8 by chatty_8"]
            await configure(["8", BOSS], ["8", BOSS])
            assert await run_all() == ["of-8 by chatty_8"]
            await configure([BOSS], [BOSS])
            assert await run_all() == []
            await platform.until(lambda: answers() == [2, 3])
            await platform.shows("failed", chat=BOSS)
    assert not any("longer" in text for chat in ("7", "8") for text in platform.texts(chat))
