"""Lets an installed nanobot-ai write a home, which is kept as test data.

Run it with nanobot_core and one release of nanobot-ai installed apart:

    python tests/original_homes/play.py /path/to/venv/of/nanobot-ai tests/original_homes/0.3.5

The folder HOME below is made, filled and removed, so it must be one that nobody uses.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

from nanobot_core.testing import OpenAIServer, RecordedRequest, Reply, ScriptedCall

HOME = Path("/home/ada")
PORT = 18_801
LEFT_OUT = (".git", "logs", "bin", "run", "history", "bridge", "__pycache__", ".gitignore")
KEY = "made-up-key"
IN_TELEGRAM = ("My garden has six beds.", "My bicycle is called Rosinante.")
IN_TERMINAL = ("What grows in May?", "/new", "Is it raining?")
SAID = (*IN_TELEGRAM, *IN_TERMINAL)
WRITTEN = {
    "AGENTS.md": "# Agents\n\nAnswer in short sentences.\n",
    "SOUL.md": "# Soul\n\nCalm and curious.\n",
    "USER.md": "# User\n\nAda has a garden and a bicycle.\n",
    "TOOLS.md": "# Tools\n\nAsk before a command that deletes.\n",
    "HEARTBEAT.md": "# Tasks\n\n- [ ] Look whether the greenhouse is closed\n",
}
JOBS = """
import asyncio, sys
from pathlib import Path
from nanobot.cron.service import CronService
from nanobot.cron.types import CronSchedule

HOUR_MS, IN_2099_MS = 3_600_000, 4_070_908_800_000
service = CronService(Path(sys.argv[1]))

def add(name, task, **schedule):
    place = {"deliver": True, "channel": "telegram", "to": "42"}
    if "origin_channel" in service.add_job.__annotations__:
        place.update(session_key="telegram:42", origin_channel="telegram", origin_chat_id="42")
    service.add_job(name, CronSchedule(**schedule), task, **place)

async def main():
    await service.start()  # as a gateway does; what follows its end goes to action.jsonl
    add("water", "Water the plants", kind="every", every_ms=HOUR_MS)
    add("weather", "Tell me the weather", kind="cron", expr="0 7 * * 1-5", tz="Europe/Berlin")
    service.stop()
    add("dentist", "Go to the dentist", kind="at", at_ms=IN_2099_MS)

asyncio.run(main())
"""


def reply(request: RecordedRequest) -> Reply:
    """Answer as a model that keeps what Ada says in MEMORY.md."""
    names = {tool["function"]["name"] for tool in request.body.get("tools") or ()}
    messages: list[dict[str, Any]] = request.body["messages"]
    last = messages[-1]
    said = json.dumps(last.get("content"))
    if "save_memory" in names:
        saved = {
            "history_entry": "[2026-03-01 10:00] Ada spoke about her garden and her bicycle.",
            "memory_update": "# Memory\n\n- Ada's bicycle is called Rosinante.\n",
        }
        return Reply(calls=(ScriptedCall(name="save_memory", arguments=json.dumps(saved)),))
    if last["role"] == "user" and not any(text in said for text in SAID):
        return Reply(text="- Ada spoke about her garden and her bicycle.")  # a summary
    if last["role"] == "user" and "Rosinante" in said:
        text = "# Memory\n\n- Ada's bicycle is called Rosinante.\n"
        where = str(HOME / ".nanobot/workspace/memory/MEMORY.md")
        arguments = json.dumps({"path": where, "content": text})
        return Reply(calls=(ScriptedCall(id="call_1", name="write_file", arguments=arguments),))
    if last["role"] == "tool":
        return Reply(text="Noted: your bicycle is called Rosinante.")
    return Reply(text=f"I hear you ({len(messages)} messages).")


async def run(program: Path, *arguments: str, answer: str = "n\n") -> None:
    """Run a program as Ada; its failure ends this one."""
    env = {"HOME": str(HOME), "PATH": os.environ["PATH"], "TERM": "dumb", "NO_COLOR": "1"}
    work = partial(
        subprocess.run,
        [program, *arguments],
        input=answer,
        text=True,
        env=env,
        cwd=HOME,
        capture_output=True,
        timeout=240,
        check=False,
    )
    process = await asyncio.to_thread(work)
    sys.stdout.write(f"$ {program.name} {' '.join(arguments[:1])}: {process.returncode}\n")
    if process.returncode:
        sys.exit(process.stdout[-2000:] + process.stderr[-4000:])


def configure(path: Path) -> None:
    """Enter what a person enters into a new configuration."""
    config = json.loads(path.read_text("utf-8"))
    service = "custom" if "custom" in config["providers"] else "vllm"
    config["providers"][service].update(apiKey=KEY, apiBase=f"http://127.0.0.1:{PORT}/v1")
    config["agents"]["defaults"]["model"] = "garden-model"
    if "provider" in config["agents"]["defaults"]:
        config["agents"]["defaults"]["provider"] = service
    telegram = config["channels"].setdefault("telegram", {})
    telegram.update(enabled=True, token="42:made-up-token", allowFrom=["42"])
    path.write_text(json.dumps(config, indent=2), "utf-8")


def add_by_hand(home: Path) -> None:
    """Write what people write with an editor."""
    path, workspace = home / "config.json", home / "workspace"
    config = json.loads(path.read_text("utf-8"))
    server = {"command": "notes-server", "args": ["--stdio"], "env": {"NOTES_TOKEN": KEY}}
    config["tools"].setdefault("mcpServers", {})["notes"] = server
    path.write_text(json.dumps(config, indent=2, ensure_ascii=False), "utf-8")
    skill = workspace / "skills" / "tea" / "SKILL.md"
    skill.parent.mkdir(parents=True, exist_ok=True)
    skill.write_text("---\nname: tea\ndescription: How Ada likes her tea.\n---\n\nGreen, 70 °C.\n")
    for name, text in WRITTEN.items():
        if (workspace / name).exists() or name == "HEARTBEAT.md":
            (workspace / name).write_text(text, "utf-8")
    shutil.rmtree(workspace / "prompts", ignore_errors=True)


async def play(venv: Path, target: Path) -> None:
    """Write a home with the release in `venv`, and copy it to `target`."""
    nanobot, python = venv / "bin/nanobot", venv / "bin/python"
    HOME.mkdir()
    home = HOME / ".nanobot"
    try:
        async with OpenAIServer(default=reply, port=PORT):
            await run(nanobot, "onboard")
            configure(home / "config.json")
            await run(nanobot, "onboard")  # writes all keys of the release
            for said in IN_TELEGRAM:
                await run(nanobot, "agent", "-s", "telegram:42", "-m", said)
            for said in IN_TERMINAL:
                await run(nanobot, "agent", "-m", said)
        in_workspace = not target.name.startswith(("0.1.3", "0.1.4"))
        jobs = (home / "workspace" if in_workspace else home) / "cron" / "jobs.json"
        jobs.parent.mkdir(exist_ok=True)
        await run(python, "-c", JOBS, str(jobs))
        add_by_hand(home)
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(home, target, ignore=shutil.ignore_patterns(*LEFT_OUT), symlinks=True)
    finally:
        shutil.rmtree(HOME)


if __name__ == "__main__":
    asyncio.run(play(Path(sys.argv[1]).absolute(), Path(sys.argv[2]).absolute()))
