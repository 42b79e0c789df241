"""The stand-ins of the channels that are installed here."""

from __future__ import annotations

from importlib.util import find_spec

from nanobot_core.testing import StandIn
from nanobot_core.testing.stand_in import load_stand_in
from tests.gateways import REPOSITORY


def installed_stand_ins() -> list[type[StandIn]]:
    """Return the stand-ins of the channels that are installed, in the order of their names."""
    found = []
    for folder in sorted(REPOSITORY.glob("plugins/nanobot-*")):
        name = folder.name.removeprefix("nanobot-")
        file = folder / "tests" / f"local_{name}.py"
        if file.exists() and find_spec(f"nanobot_{name}") is not None:
            found.append(load_stand_in(file))
    return found
