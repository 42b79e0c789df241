"""The stand-ins of the channels that are installed here, and gateways on them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from nanobot_core.app.client import ControlClient
from nanobot_core.messages import JsonObject
from nanobot_core.testing import StandIn
from nanobot_core.testing.stand_in import load_stand_in
from tests.gateways import REPOSITORY

LIMIT_S = 60.0


def installed_stand_ins() -> list[type[StandIn]]:
    """Return the stand-ins of the channels that are installed, in the order of their names."""
    found = []
    for folder in sorted(REPOSITORY.glob("plugins/nanobot-*")):
        name = folder.name.removeprefix("nanobot-")
        file = folder / "tests" / f"local_{name}.py"
        if file.exists() and find_spec(f"nanobot_{name}") is not None:
            found.append(load_stand_in(file))
    return found


async def channel_states(home: Path) -> dict[str, str]:
    """Return the states of the channels by name."""
    status = await ControlClient(home / "gateway").call("status")
    assert isinstance(status, dict)
    rows = status["running"]
    assert isinstance(rows, list)
    shown: list[JsonObject] = [row for row in rows if isinstance(row, dict)]
    return {str(row["name"]): str(row["state"]) for row in shown if row["kind"] == "channel"}


async def all_running(home: Path, kinds: Sequence[type[StandIn]]) -> None:
    """Wait until each channel has run; a platform may be away again at the same moment."""
    missing, states = {kind.name for kind in kinds}, dict[str, str]()
    try:
        async with asyncio.timeout(LIMIT_S):
            while missing:
                states = await channel_states(home)
                missing -= {name for name, state in states.items() if state == "running"}
                await asyncio.sleep(0.05)
    except TimeoutError:
        raise AssertionError(f"not all channels run: {states}") from None
