"""What one look for secrets is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

from tests.security.leaks.world import GatewayHome


@dataclass(frozen=True)
class Probe:
    """A place in which no secret may be found.

    Attributes:
        name: the place.
        look: returns its content.
        witness: text that is there, which shows that the right content was read.
        allowed: secrets that belong there.
        fault: a known fault, until it is fixed.
        is_long: for the long form alone, since another looks nearly there.
    """

    name: str
    look: Callable[[GatewayHome], str | bytes]
    witness: str
    allowed: tuple[str, ...] = ()
    fault: str = ""
    is_long: bool = False


def commands(table: dict[str, str]) -> Iterator[Probe]:
    """Yield a probe for each command line; its value is the witness."""
    for line, witness in table.items():
        yield Probe(f"nanobot {line}", partial(_shown, line), witness)


def calls(table: dict[str, str]) -> Iterator[Probe]:
    """Yield a probe for each tool call, made in the running gateway; its value is the witness."""
    for line, witness in table.items():
        yield Probe(line, partial(_called, line), witness)


def _shown(line: str, world: GatewayHome) -> str:
    return world.nanobot(*line.split())


def _called(line: str, world: GatewayHome) -> str:
    line = line.replace("@HOME", str(world.path)).replace("@PID", str(world.pid))
    return world.turn(f"call {line}")
