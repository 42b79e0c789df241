"""The goals."""

from __future__ import annotations

from typing import Final

from tests.security.goals.areas.files import FILES
from tests.security.goals.areas.keys import KEYS
from tests.security.goals.areas.network import NETWORK
from tests.security.goals.areas.people import PEOPLE
from tests.security.goals.areas.persistence import PERSISTENCE
from tests.security.goals.areas.programs import PROGRAMS
from tests.security.goals.areas.rights import RIGHTS
from tests.security.goals.areas.work import WORK
from tests.security.goals.goal import Goal

AREAS: Final[dict[str, tuple[Goal, ...]]] = {
    "Files": FILES,
    "Keys": KEYS,
    "Rights of the owner": RIGHTS,
    "Network": NETWORK,
    "Persistence": PERSISTENCE,
    "Other people": PEOPLE,
    "Programs": PROGRAMS,
    "Work that continues by itself": WORK,
}
GOALS: Final[tuple[Goal, ...]] = tuple(goal for area in AREAS.values() for goal in area)
