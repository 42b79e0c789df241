"""The gateway of a month: a process whose clock follows a file, and which says what it holds.

``python -m tests.month.process`` is the command ``nanobot`` with that clock.
"""

from __future__ import annotations

import asyncio
import json
import runpy
import signal
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import ClassVar

import nanobot_core.clock
from nanobot_core.config.environment import process_environment
from nanobot_core.testing.gateway import GatewayProcess, SkippingClock, until
from tests.reliability.samples import Sample, sample

HOUR_S = 3_600.0


@dataclass(frozen=True)
class Shift:
    """How far the clock of a month is from that of the machine.

    Attributes:
        passed_s: seconds that have passed for everyone.
        wall_s: seconds by which the time of day is set besides, as by a person or by NTP.
    """

    passed_s: float = 0.0
    wall_s: float = 0.0

    def now(self) -> datetime:
        """Return the time of day that the gateway sees."""
        return datetime.now(UTC) + timedelta(seconds=self.passed_s + self.wall_s)


class MonthClock(SkippingClock):
    """A clock that follows a file with a `Shift`."""

    _wall_s: ClassVar[float] = 0.0

    def now(self) -> datetime:
        """Return the current instant, aware, in UTC."""
        return super().now() + timedelta(seconds=self._wall_s)

    @classmethod
    def follow(cls, file: Path) -> None:
        """Read the file; who sleeps until a time that has passed wakes up."""
        shift = Shift(**json.loads(file.read_text()))
        cls._wall_s = shift.wall_s
        cls.skip(shift.passed_s - cls._ahead_s)


class MonthGateway(GatewayProcess):
    """``nanobot gateway`` in a process.

    Args:
        home: nanobot's folder.
        shift: of its clock, also for the next process.
    """

    def __init__(self, home: Path, shift: Shift) -> None:
        super().__init__(home)
        self.shift: Shift = shift
        self._module = "tests.month.process"
        self._write()

    def move(self, shift: Shift) -> None:
        """Move the clock."""
        self.shift = shift
        self._write()
        self.send(signal.SIGUSR1)

    async def sample(self) -> Sample:
        """Return what the process holds now."""
        file = _sample_file(self.home)
        file.unlink(missing_ok=True)
        self.send(signal.SIGUSR2)
        await until(file.exists)
        return Sample(**json.loads(file.read_text()))

    def _write(self) -> None:
        _replace(_clock_file(self.home), json.dumps(asdict(self.shift)))


def _clock_file(home: Path) -> Path:
    return home.with_name("clock.json")


def _sample_file(home: Path) -> Path:
    return home.with_name("sample.json")


def _replace(file: Path, text: str) -> None:
    """Write a file that another process reads at any moment."""
    part = file.with_suffix(".part")
    part.write_text(text)
    part.replace(file)


def main() -> None:
    """Run the command ``nanobot``; SIGUSR1 moves its clock, SIGUSR2 writes a `Sample`."""
    home = Path(process_environment()["NANOBOT_HOME"])
    MonthClock.follow(_clock_file(home))
    nanobot_core.clock.SystemClock = MonthClock  # type: ignore[misc]
    signal.signal(signal.SIGUSR1, lambda *_: MonthClock.follow(_clock_file(home)))

    def write_sample() -> None:
        _replace(_sample_file(home), json.dumps(asdict(sample())))

    def look(*_: object) -> None:
        # Not in the handler, which can run in the middle of anything.
        asyncio.get_running_loop().call_soon_threadsafe(write_sample)

    signal.signal(signal.SIGUSR2, look)
    runpy.run_module("nanobot_core", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    # The class attributes belong to the imported module, not to ``__main__``.
    from tests.month.process import main as imported_main

    imported_main()
