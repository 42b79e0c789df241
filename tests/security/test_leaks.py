"""Secrets are planted everywhere a user can put them, and searched for in every output.

One gateway with all of them runs for the whole module. Every probe is a place and a witness: what
must be seen there, so that a probe that looks at nothing fails.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from _pytest.mark import ParameterSet

from tests.security.leaks import command_line, objects, running
from tests.security.leaks.canaries import PLANTED, forms, search
from tests.security.leaks.probe import Probe
from tests.security.leaks.services import Background
from tests.security.leaks.world import GatewayHome

LEAST = 60
PROBES: tuple[Probe, ...] = (*running.PROBES, *command_line.PROBES, *objects.PROBES)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayHome]:
    folder = tmp_path_factory.mktemp("leaks")
    with Background() as services, GatewayHome(folder, services) as home:
        running.begin(home)
        yield home


def _cases() -> Iterator[ParameterSet]:
    for probe in PROBES:
        marks = [pytest.mark.xfail(reason=probe.fault)] if probe.fault else []
        marks += [pytest.mark.long] if probe.is_long else []
        yield pytest.param(probe, id=probe.name, marks=marks)


@pytest.mark.parametrize("probe", list(_cases()))
def test_no_secret_is_found_in(probe: Probe, world: GatewayHome) -> None:
    seen = probe.look(world)
    data = seen.encode(errors="surrogateescape") if isinstance(seen, str) else seen
    assert probe.witness.encode() in data, data[:3_000]

    assert search(data, probe.allowed) == []


def test_there_are_enough_probes(capsys: pytest.CaptureFixture[str]) -> None:
    short = [probe for probe in PROBES if not probe.is_long]
    with capsys.disabled():
        print(f"\n{len(short)} of {len(PROBES)} probes for {len(PLANTED)} secrets")  # noqa: T201 - the figure
    assert len({probe.name for probe in PROBES}) == len(PROBES)
    assert len(short) >= LEAST


@pytest.mark.parametrize("name", PLANTED)
def test_a_secret_that_is_there_is_found_in_every_form(name: str) -> None:
    for form in forms(PLANTED[name]):
        assert search(f"before {form} behind") == [name], form
    assert search("nothing") == []
    assert search(PLANTED[name], allowed=[name]) == []


def test_the_file_itself_holds_what_is_looked_for(world: GatewayHome) -> None:
    """The control: a look at the wrong place finds nearly everything."""
    planted = world.written("config.yaml", ".env", "model.key") + repr(world.environment).encode()

    assert set(search(planted)) == set(PLANTED)
