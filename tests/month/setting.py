"""The home of a month: configuration, the owner's plugins, jobs and keys."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import yaml

from nanobot_core.testing import StandIn
from nanobot_core.testing.gateway import gateway_environment
from nanobot_core.testing.playing import write_config
from tests.month.attacks import Attacks

DAY_TOKENS: Final = 100_000_000
"""Two answers to ``spend`` are more."""
BEATS_S: Final = 6 * 3_600
PLUGINS: Final = (
    *("anthropic", "api", "cron", "heartbeat", "http", "litellm", "mcp", "mcp-server", "memory"),
    *("offline", "page", "skills", "subagents", "transcription", "usage", "web", "webhook"),
)
"""Besides those of the channels, and those that their tests need."""
FAULTY: Final[Mapping[str, str]] = {
    "raises": "@on.before_turn\ndef f(event): raise OSError('broken')",
    "blocks the loop": "import time\n@on.before_turn\ndef f(event): time.sleep(0.3)",
    "exits": "@on.before_turn\ndef f(event): raise SystemExit(3)",
    "interrupts": "@on.before_turn\ndef f(event): raise KeyboardInterrupt",
    "returns garbage": "@on.gather_context\ndef f(event): return object()",
    "cannot be imported": "1 / 0",
    "cannot be read": "def f(:",
    "never starts": "import asyncio\n@on.start\nasync def f(ctx): await asyncio.Event().wait()",
}
"""How a plugin of the owner's is broken, and its code."""
_FORECAST = '''\
from nanobot_core import on, tool


@tool
def forecast() -> str:
    """Say what the weather will be."""
    return "forecast of version {version}"


@on.contribute_tools
def contribute_tools(ctx):
    return [forecast]
'''


def write_home(home: Path, platforms: Sequence[StandIn], model_url: str, attacks: Attacks) -> None:
    """Write everything that the owner of a month has set up."""
    write_config(home, platforms, model_url, bert_may_write=True, settings={"streaming": False})
    attacks.plant()
    file = home / "config.yaml"
    config: dict[str, Any] = yaml.safe_load(file.read_text())
    server = {"command": sys.executable, "args": ["-m", "mcp_server_time"]}
    ask = {"tool": "exec", "arguments": {"command": "echo*"}, "action": "ask"}
    config["providers"]["custom"]["api_key"] = attacks.canary("provider-key")
    config["gateway"] |= {
        "heartbeat": {"interval_s": BEATS_S},
        "http": {"requests_per_minute": 1_000_000},
    }
    config |= {
        "tools": {
            "approval": [ask],
            "mcp_servers": {"clock": server},
            "guests": {"allow": ["forecast", "mcp_*"]},
        },
        "budgets": {"day": {"tokens": DAY_TOKENS}},
        "memory": {"dream": {"every_hours": 6}},
    }
    config["agents"]["defaults"]["timezone"] = "UTC"
    config["channels"]["web"] = {"rate_limit": 100_000}
    config["plugins"]["enabled"] = sorted({*config["plugins"]["enabled"], *PLUGINS, "forecast"})
    config["plugins"]["local"] = [str(home / "forecast.py"), str(home / "faulty.py")]
    (home / "workspace/HEARTBEAT.md").write_text("- [ ] look at the list\n")
    (home / "faulty.py").write_text("")
    forecast_plugin(home, 1)
    file.write_text(yaml.safe_dump(config))


def faulty_plugin(home: Path, name: str) -> None:
    """Write a plugin that is broken in this way."""
    (home / "faulty.py").write_text(f"from nanobot_core import on\n{FAULTY[name]}\n")


def forecast_plugin(home: Path, version: int) -> None:
    """Write a version of the owner's other plugin."""
    (home / "forecast.py").write_text(_FORECAST.format(version=version))


def command(home: Path, *words: str, must_succeed: bool = True) -> str:
    """Run ``nanobot`` with the clock of the gateway, and return what it prints."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.month.process", *words],
        env=gateway_environment(home),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert not done.returncode or not must_succeed, f"{words}: {done.stdout}{done.stderr}"
    return done.stdout


def add_job(home: Path, text: str, chat: str, *schedule: str) -> None:
    """Add a job of the owner's."""
    command(home, "cron", "add", text, *schedule, "--to", chat)
