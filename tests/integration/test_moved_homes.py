"""Homes that nanobot-ai wrote itself move in and go on, in a real gateway on a local Telegram."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import pytest

for _plugin in ("cron", "memory", "openai", "telegram"):
    if find_spec(f"nanobot_{_plugin}") is None:
        pytest.skip(f"nanobot-{_plugin} is not installed", allow_module_level=True)

from nanobot_core import JsonValue  # noqa: E402 - see above
from nanobot_core.config.editing import change_values  # noqa: E402 - see above
from nanobot_core.testing import RecordedRequest, Reply  # noqa: E402 - see above
from nanobot_core.testing.gateway import gateway_environment  # noqa: E402 - see above
from tests.gateways import GatewayProcess  # noqa: E402 - see above
from tests.local_telegram import load_token, person, serving, until  # noqa: E402 - see above

pytestmark = pytest.mark.anyio
HOMES = Path(__file__).parents[1] / "original_homes"
RELEASES = sorted(path.name for path in HOMES.iterdir() if path.is_dir())
ADA, _ = person(42, "Ada")
LIMIT_S = 60


def nanobot(home: Path, *words: str) -> str:
    """Run a command, which must succeed, and return what it prints."""
    done = subprocess.run(
        [sys.executable, "-m", "nanobot_core", *words],
        env=gateway_environment(home),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, (done.stdout, done.stderr)
    return done.stdout


def text_of(request: RecordedRequest) -> str:
    return json.dumps(request.body["messages"], ensure_ascii=False)


def answer(request: RecordedRequest) -> Reply:
    last = json.dumps(request.body["messages"][-1])
    if "Water the plants" in last:
        return Reply(text="The plants are watered.")
    return Reply(text="Rosinante." if "my bicycle" in last else "Nothing to do.")


def make_recent(original: Path) -> None:
    """Plan the hourly job for ten minutes before the hour that the test skips ends.

    Otherwise the time of the day decides whether that run counts as missed.
    """
    (path,) = original.rglob("jobs.json")
    content = json.loads(path.read_text())
    for job in content["jobs"]:
        if job["name"] == "water":
            job["state"]["nextRunAtMs"] = round((time.time() + 3_000) * 1000)
    path.write_text(json.dumps(content))


def connect(home: Path, telegram: str, model: str) -> None:
    """Point the moved configuration to local stand-ins."""
    config = home / "config.yaml"
    service = "vllm" if "vllm" in config.read_text() else "custom"
    changes: dict[str, JsonValue] = {
        "plugins.policy": "listed",
        "plugins.enabled": ["cron", "memory", "openai", "telegram"],
        "channels.telegram.api_base": telegram,
        "channels.telegram.token": load_token(),
        f"providers.{service}.api_base": model,
        "gateway.port": 0,
    }
    change_values(config, changes)


@pytest.mark.parametrize("release", RELEASES)
async def test_a_moved_home_goes_on(release: str, tmp_path: Path) -> None:
    original = tmp_path / "original"
    shutil.copytree(HOMES / release, original)
    make_recent(original)
    home = tmp_path / "home"
    nanobot(home, "onboard", "--from-nanobot-ai", str(original), "--yes")
    async with serving(answer) as (telegram, model):
        connect(home, telegram.url, model.url)
        async with GatewayProcess(home, skips=True) as gateway:
            telegram.say("What is the name of my bicycle?", sender=ADA, chat=person(42, "Ada")[1])
            await until(telegram, lambda: "Rosinante." in telegram.transcript(42))
            gateway.skip_hour()
            await until(telegram, lambda: "The plants are watered." in telegram.transcript(42))
    asked = next(text for each in model.requests if "my bicycle?" in (text := text_of(each)))
    assert "My garden has six beds." in asked  # its chat continues
    assert "Ada's bicycle is called Rosinante." in asked.partition("My garden has")[0]  # memory
