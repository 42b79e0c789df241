"""A plugin provides the message queue and the sessions of a gateway."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.gateways import Platform, running, write_config

pytestmark = pytest.mark.anyio
STORES = """\
from nanobot_core import StoreSpec, on
from nanobot_core.bus.queues import MemoryBus
from nanobot_core.sessions.jsonl import JsonlSessionStore


def make_bus(ctx):
    return MemoryBus()


def make_sessions(ctx):
    return JsonlSessionStore(ctx.data_dir / "kept")


@on.contribute_stores
def contribute_stores(ctx):
    yield StoreSpec(name="depot", kind="bus", factory=f"{__name__}:make_bus")
    yield StoreSpec(name="depot", kind="sessions", factory=f"{__name__}:make_sessions")
"""


async def test_a_line_for_each_replaces_queue_and_sessions(tmp_path: Path) -> None:
    home, file = tmp_path / "home", tmp_path / "depot.py"
    file.write_text(STORES)
    defaults = {"model": "chatty/model", "session_store": "depot"}
    async with Platform() as platform:
        write_config(
            home,
            platform,
            plugins=[file],
            agents={"defaults": {**defaults, "workspace": str(home / "workspace")}},
            gateway={"bus": "depot"},
        )
        async with running(home):
            await platform.say("say hello")
            await platform.shows("hello")
    assert not (home / "gateway" / "bus.sqlite").exists()
    assert list((home / "workspace" / "sessions").glob("*.jsonl")) == []
    (stored,) = (home / "plugins" / "depot" / "kept").glob("chatty-*.jsonl")
    assert "say hello" in stored.read_text()
