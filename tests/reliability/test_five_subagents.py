"""Five subagents of one conversation, each with another end, and a gateway that is killed."""

from __future__ import annotations

import json
import os
import re
import signal
from collections import Counter
from pathlib import Path

import pytest

for _plugin in ("nanobot_shell", "nanobot_subagents"):
    pytest.importorskip(_plugin, reason=f"{_plugin} is not installed")

from tests.gateways import GatewayProcess, Platform, until, write_config  # noqa: E402 - see above

pytestmark = pytest.mark.anyio
MARK = "7392.5"
TASKS = {
    "quick": "say RESULT-quick",
    "ended by a person": f'call exec {{"command": "sleep {MARK} & sleep {MARK}"}}',
    "over its budget": "spend",
    "asking": 'call note {"word": "RESULT-asked"}',
    "interrupted": 'call wait_beside {"seconds": 1.5}',
}
EXPECTED = {"RESULT-quick", "used up", "RESULT-asked", "waited 1.5"}


def processes() -> int:
    """Return how many processes the command of a subagent has."""
    lines = Path("/proc").glob("[0-9]*/cmdline")
    return sum(_read(line) == f"sleep\0{MARK}\0" for line in lines)


def _read(file: Path) -> str:
    try:
        return file.read_text(errors="replace")
    except OSError:
        return ""


def belongings(pid: int) -> tuple[int, int]:
    """Return how many files a process has open, and how many processes it has started."""
    children = (file.read_text().split() for file in Path(f"/proc/{pid}/task").glob("*/children"))
    return len(list(Path(f"/proc/{pid}/fd").iterdir())), sum(map(len, children))


def reported(platform: Platform) -> Counter[str]:
    """Return how often each result is in an answer, of those that were sent once."""
    texts = {one["key"]: one["text"] for one in platform.sent if one["text"].startswith("Reported")}
    return Counter(
        found
        for text in texts.values()
        for found in text.removeprefix("Reported: ").partition(". ")[0].split(", ")
    )


def question(platform: Platform) -> str | None:
    asked = [one["buttons"][0] for one in platform.sent if one["buttons"]]
    return asked[0] if asked else None


@pytest.mark.timeout(120)
async def test_five_subagents_end_each_in_its_way_and_once(tmp_path: Path) -> None:
    home = tmp_path / "home"
    spawns = ";; ".join(
        f"spawn {json.dumps({'task': task, 'label': label})}" for label, task in TASKS.items()
    )
    async with Platform() as platform:
        write_config(
            home,
            platform,
            plugins=["shell", "subagents"],
            tools={"approval": [{"tool": "note", "action": "ask"}]},
            subagents={"max_running_per_session": 5, "max_tokens": 2_500},
        )
        async with GatewayProcess(home) as first:
            await platform.say(f"call {spawns}")
            await platform.until(lambda: question(platform) is not None)
            await until(lambda: processes() == 2)
            await platform.say("/subagents")
            line = (await platform.shows("Subagents:\n"))["text"]
            (run,) = re.findall(r"`(\w+)` \*\*\w+\*\*: ended by a person", line)
            await platform.say(f"/subagents stop {run}")
            await platform.shows("Stopped: ended by a person")
            await until(lambda: processes() == 0)
            os.kill(first.pid, signal.SIGKILL)
            await first.ended()
        async with GatewayProcess(home) as second:
            await platform.say(str(question(platform)))
            await platform.until(lambda: set(reported(platform)) >= EXPECTED)
            await platform.say("say done")
            await platform.shows("done")
            await platform.say("/subagents")
            await platform.until(lambda: "Subagents:" in platform.texts()[-1])
            states = re.findall(r"\*\*(\w+)\*\*: ([a-z ]+),", platform.texts()[-1])
            idle = belongings(second.pid)
            second.send(signal.SIGTERM)
            assert await second.ended() == 0
        async with GatewayProcess(home) as third:
            await platform.say("say again")
            await platform.shows("again")
            fresh = belongings(third.pid)
    assert reported(platform) == dict.fromkeys(EXPECTED, 1)
    assert (home / "workspace" / "notes.txt").read_text() == "RESULT-asked\n"
    assert {label: state for state, label in states} == {
        "quick": "complete",
        "ended by a person": "stopped",
        "over its budget": "partial",
        "asking": "complete",
        "interrupted": "complete",
    }
    assert idle == fresh
    assert processes() == 0
